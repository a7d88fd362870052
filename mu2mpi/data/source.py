"""What every source of data offers: its shape, and any rows of it on demand."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError

__all__ = ["CHUNK_BYTES", "Samples", "Source"]

CHUNK_BYTES = 48 << 20
"""About how much a rank reads at once: all of MNIST, or a part of what is larger."""


@dataclass(frozen=True)
class Samples:
    """Labelled samples, with features in the type in which they are stored.

    Attributes
    ----------
    features : ndarray of uint8, float32 or float64, shape (n, dimension)
        Raw features, C-contiguous, without the bias feature.
    labels : ndarray of int32, shape (n,)
        Class of each sample, in ``0 .. classes - 1``.
    """

    features: NDArray[np.generic]
    labels: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


class Source(ABC):
    """A training set and a test set of which each rank reads only the rows that it needs.

    Attributes
    ----------
    name : str
        What the user calls it, such as ``"mnist"``.
    classes : int
        Number of classes K.
    dimension : int
        Number of features, without the bias.
    training_samples, test_samples : int
        Sizes of the two sets.
    scale : float
        Factor that takes a stored feature into [-1, 1], such as 1/255 for pixels.
    """

    name: str
    classes: int
    dimension: int
    training_samples: int
    test_samples: int
    scale: float

    @property
    def sample_bytes(self) -> int:
        """Size of the features of a sample as they are stored."""
        nothing = self._read_training(np.empty(0, np.int64))
        return self.dimension * nothing.features.dtype.itemsize

    @abstractmethod
    def _read_training(self, rows: NDArray[np.int64]) -> Samples:
        """Return these rows of the training set, in this order."""

    @abstractmethod
    def _read_test(self, rows: NDArray[np.int64]) -> Samples:
        """Return these rows of the test set, in this order."""

    def training(self, rows: NDArray[np.int64]) -> Samples:
        """Return the given rows of the training set, checked.

        Parameters
        ----------
        rows : ndarray of int64, shape (n,)
            Row numbers in ``0 .. training_samples - 1``, in any order.

        Returns
        -------
        Samples
            The rows in the order asked for; a copy that the caller owns.

        Raises
        ------
        InputError
            If a feature is not finite or leaves [-1, 1] after scaling, or a label is out of range.
        IndexError
            If a row number is out of range.
        """
        _check_rows(rows, self.training_samples)
        return self._checked(self._read_training(rows), rows, "training")

    def test(self, rows: NDArray[np.int64]) -> Samples:
        """Return the given rows of the test set, checked like those of `training`."""
        _check_rows(rows, self.test_samples)
        return self._checked(self._read_test(rows), rows, "test")

    def _checked(self, samples: Samples, rows: NDArray[np.int64], which: str) -> Samples:
        if samples.features.dtype.kind == "f":
            self._check_bound(samples.features, rows, which)
        bad = np.flatnonzero((samples.labels < 0) | (samples.labels >= self.classes))
        if bad.size:
            raise InputError(
                f"{self.name}: {which} sample {rows[bad[0]]} has the label {samples.labels[bad[0]]}; "
                f"labels must lie in 0 .. {self.classes - 1}"
            )
        return samples

    def _check_bound(self, features: NDArray[np.generic], rows: NDArray[np.int64], which: str) -> None:
        # The comparison is false for NaN, so one pass finds values that are NaN, infinite or too large.
        limit = (1 + 1e-6) / self.scale
        for start in range(0, len(features), 4096):
            good = np.abs(features[start : start + 4096]) <= limit
            if not good.all():
                row, column = np.argwhere(~good)[0]
                value = features[start + row, column]
                raise InputError(
                    f"{self.name}: {which} sample {rows[start + row]} has the value {value} in feature "
                    f"{column}; the sensitivity bound needs |x_j| <= 1 (here: stored values of at most "
                    f"{1 / self.scale:g}), so remove the sample or rescale the features by a public factor"
                )


def _check_rows(rows: NDArray[np.int64], samples: int) -> None:
    # A negative number would silently count from the end, and a generated source has no end.
    if rows.size and (rows.min() < 0 or rows.max() >= samples):
        raise IndexError(f"rows {rows.min()} .. {rows.max()} are not among the {samples} of this set")
