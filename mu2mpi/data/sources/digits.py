"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: no network needed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import Samples, Source, Which

SAMPLES, TEST_SAMPLES, PIXELS, LARGEST = 1797, 360, 64, 16


@register
class Digits(Source):
    """scikit-learn's digits, as bytes, in a fixed split with the same share of each class on both sides."""

    name, summary = "digits", "1,797 images of 8 x 8 pixels, built in"
    classes, dimension, scale = 10, PIXELS, 1 / LARGEST
    training_samples, test_samples = SAMPLES - TEST_SAMPLES, TEST_SAMPLES

    def __init__(self) -> None:
        table = _read_table()
        if table.shape != (SAMPLES, PIXELS + 1) or table.min() < 0 or table[:, :-1].max() > LARGEST:
            raise InputError('the digits are damaged: pip install --force-reinstall "mu2mpi[digits]"')
        self._features = np.ascontiguousarray(table[:, :-1], np.uint8)
        self._labels = table[:, -1].astype(np.int32)
        self._training_rows, self._test_rows = split(self._labels, TEST_SAMPLES)

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        chosen = (self._training_rows if which == "training" else self._test_rows)[rows]
        return Samples(self._features[chosen], self._labels[chosen])


def split(labels: NDArray[np.int32], test_samples: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows for training and testing, ascending, at random but always alike, classes in proportion."""
    # Raw bits of a bit generator, unlike numpy's shuffling, are promised to stay the same for ever.
    order = np.argsort(np.random.Philox(key=0).random_raw(len(labels)), kind="stable")
    shuffled = order[np.argsort(labels[order], kind="stable")]
    # With the samples grouped by class, evenly spaced picks give every class its share.
    picks = (np.arange(test_samples) * len(labels) + len(labels) // 2) // test_samples
    test = np.zeros(len(labels), bool)
    test[shuffled[picks]] = True
    return np.flatnonzero(~test), np.flatnonzero(test)


def _read_table() -> NDArray[np.int64]:
    """One row per image: 64 pixels and the class."""
    specification = importlib.util.find_spec("sklearn")
    if specification is None or not specification.submodule_search_locations:
        raise InputError('the digits come with scikit-learn, which is missing: pip install "mu2mpi[digits]"')
    # Read as a file: importing sklearn.datasets takes seconds, and every rank would pay.
    path = Path(specification.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    return np.loadtxt(path, delimiter=",").astype(np.int64)
