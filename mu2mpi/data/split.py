"""The rows of a file that are for testing, and those that are for training."""

from __future__ import annotations

import hashlib

from mu2mpi.core.lazy import NDArray, np


class Split:
    """A random part of the rows of a file for testing, the rest for training.

    It needs no list: the rows are cut into as many stretches of nearly equal length as there are test rows,
    and one row of each, any with the same probability, is a test row. Both parts keep the order of the file
    and have a row at least.
    """

    def __init__(self, rows: int, fraction: float, seed: int) -> None:
        self.test_rows = min(rows - 1, max(1, round(fraction * rows)))
        self.training_rows = rows - self.test_rows
        self._rows = rows
        digest = hashlib.sha256(b"mu2mpi: test split %d" % seed).digest()
        self._key = np.uint64(int.from_bytes(digest[:8], "little"))

    def test(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of some test samples; the k-th lies in the k-th stretch."""
        start = self._start(numbers)
        length = (self._start(numbers + 1) - start).astype(np.uint64)
        return start + (_mixed(numbers.astype(np.uint64) + self._key) % length).astype(np.int64)

    def training(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of some training samples."""
        # Before the stretch k lie k test rows, so the training sample that is the n-th lies in the last
        # stretch that starts at row n + k or before. A first guess misses it by a stretch or two.
        stretch = np.minimum(numbers * self.test_rows // self.training_rows, self.test_rows - 1)
        while (late := self._start(stretch) - stretch > numbers).any():
            stretch -= late
        while (early := self._start(stretch + 1) - (stretch + 1) <= numbers).any():
            stretch += early
        rows = numbers + stretch
        return rows + (rows >= self.test(stretch))

    def _start(self, stretch: NDArray[np.int64]) -> NDArray[np.int64]:
        return stretch * self._rows // self.test_rows


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each word: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    words = (words + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
