"""Data source of the 1,797 images of handwritten digits, 8 x 8 pixels, in scikit-learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import DataSource, Samples, SplitName


@register
class Digits(DataSource):
    """Handwritten digits of scikit-learn as uint8 pixels, in a fixed stratified split."""

    name, summary = "digits", "1,797 images of 8 x 8 pixels, built in"
    classes, dimension, feature_scale = 10, 64, 1 / 16
    training_samples, test_samples = 1437, 360

    def __init__(self) -> None:
        table = _read_digits()
        if table.shape != (1797, 65) or table.min() < 0 or table[:, :-1].max() * self.feature_scale > 1:
            raise InputError('the digits are damaged: pip install --force-reinstall "mu2mpi[digits]"')
        self._features = np.ascontiguousarray(table[:, :-1], np.uint8)
        self._labels = table[:, -1].astype(np.int32)
        self._training_rows, self._test_rows = stratified_split(self._labels, self.test_samples)

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        stored_rows = (self._training_rows if split == "training" else self._test_rows)[rows]
        return Samples(self._features[stored_rows], self._labels[stored_rows])


def stratified_split(labels: NDArray[np.int32], test_samples: int) -> tuple[IntArray, IntArray]:
    """Training and test rows (ascending) of a fixed pseudorandom split that is stratified by class."""
    # NumPy guarantees the raw bits of a bit generator, but not its shuffle.
    order = np.argsort(np.random.Philox(key=0).random_raw(len(labels)), kind="stable")
    shuffled = order[np.argsort(labels[order], kind="stable")]
    picked = (np.arange(test_samples) * len(labels) + len(labels) // 2) // test_samples
    is_test = np.zeros(len(labels), bool)
    is_test[shuffled[picked]] = True
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _read_digits() -> IntArray:
    specification = importlib.util.find_spec("sklearn")
    if specification is None or not specification.submodule_search_locations:
        raise InputError('the digits need scikit-learn: pip install "mu2mpi[digits]"')
    # Read as a file, since importing sklearn.datasets would take seconds on every rank.
    path = Path(specification.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    return np.loadtxt(path, delimiter=",").astype(np.int64)
