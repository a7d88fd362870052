"""Data of the user's own: samples in a file, labels of any kind, a part of them for testing."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import Column, Table, reading, shown
from mu2mpi.data.formats.whole import read_csv, read_npz, read_svm
from mu2mpi.data.source import COLUMN_AT_ONCE, Samples, Source, Which, row_blocks
from mu2mpi.errors import InputError
from mu2mpi.files import check_readable

LARGEST = 1e150  # squares of larger numbers, and sums of them, may leave the range of floating-point numbers
READ_BYTES = 4 << 20  # of features at once
# Beyond the second, there should be at least two samples of each class, on average.
MOST_CLASSES, SURELY_MANY = 1_000_000, 1000

MISSING = frozenset(
    {"nan", "-nan", "na", "n/a", "<na>", "#n/a", "#na", "nat", "null", "none", "nil", "?", "."}
)
"""What usual tools write in small or capital letters for a value that is missing."""

UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no name has: a result cannot hold them, or a terminal obeys them."""


class UserFile(Source):
    """The samples of a file, of which a share is for testing, or of one for training and one for testing.

    Rows are read when they are asked for, from formats that allow it. Labels, whole numbers or text, become
    the classes 0, 1, ... in their order. Features are divided by the bound; without one, samples are to be
    scaled to norm 1.
    """

    remedy = "give a larger public bound with --normalize box --feature-bound, or --normalize unit"

    def __init__(
        self, training: Table, test: Table | float, seed: int, bound: float | None, missing: frozenset[str]
    ) -> None:
        self.name, self.has_owners = str(training.path), training.has_owners
        self.dimension = training.dimension
        if isinstance(test, Table):
            if test.dimension != training.dimension:
                sizes = f"{test.dimension} features a sample, and {training.path} has {training.dimension}"
                raise InputError(f"{test.path} has {sizes}")
            self._sets = {"training": (training, lambda rows: rows), "test": (test, lambda rows: rows)}
            self.training_samples, self.test_samples = training.samples, test.samples
        else:
            split = Split(training.samples, test, seed, self.name)
            self._sets = {"training": (training, split.training), "test": (training, split.test)}
            self.training_samples, self.test_samples = split.training_rows, split.test_rows
        self.scale = 1.0 if bound is None else 1 / bound
        if bound is None:
            self.limit, self.remedy = LARGEST, "remove the sample"
        self._missing = missing
        self._values = _find_classes(training, missing)
        self.class_names = tuple(str(value) for value in self._values)
        self.classes = len(self._values)
        self._at_once = max(1, READ_BYTES // (training.feature_type.itemsize * training.dimension))

    @classmethod
    def open(cls, experiment: Any, data_dir: Path | None, verify: bool) -> Self:
        """Open the file, or the two files, that an experiment names."""
        training = _open_table(Path(experiment.data).expanduser(), experiment, verify)
        test: Table | float = 0.2 if experiment.test is None else experiment.test
        if isinstance(experiment.test, str):
            path = Path(experiment.test).expanduser()
            with reading(path):
                same = os.path.samefile(path, training.path)
            if same:
                raise InputError(
                    f"the test file {path} is the training file itself: a test file is taken to be public, "
                    "and what is measured on it has no noise; give --test another file, or a share of this "
                    "one, such as 0.2"
                )
            test = _open_table(path, experiment, verify, training.dimension)
        # What a preset chooses here does not depend on the number of machines, which is not known yet.
        bound = None if experiment.scaling == "unit" else experiment.feature_bound or 1.0
        missing = MISSING if experiment.missing_labels is None else frozenset[str]()
        return cls(training, test, experiment.data_seed, bound, missing)

    def _read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        """Read rows in the order of the file, a few at a time, and put them where they are wanted."""
        table, rows_of = self._sets[which]
        rows = rows_of(rows)
        order = np.argsort(rows, kind="stable")
        features = np.empty((len(rows), self.dimension), table.feature_type)
        labels = np.empty(len(rows), np.int32)
        for start in range(0, len(rows), self._at_once):
            part = order[start : start + self._at_once]
            features[part] = table.features(rows[part])
            labels[part] = self._classes_of(table, rows[part])
        return Samples(features, labels)

    def _place(self, which: Which, number: int) -> str:
        table, rows_of = self._sets[which]
        return f"{table.path}: row {rows_of(np.array([number]))[0]}"

    def _classes_of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        labels = _plain(table, rows, "label", self._missing)
        if labels.dtype != self._values.dtype:
            raise InputError(f"the labels in {table.path} are not of the kind of those in {self.name}")
        place = np.minimum(np.searchsorted(self._values, labels), self.classes - 1)
        unknown = np.flatnonzero(self._values[place] != labels)
        if unknown.size:
            where, label = f"{table.path}: row {rows[unknown[0]]}", shown(labels[unknown[0]])
            raise InputError(f"{where} has the label {label}, of which {self.name} has no sample")
        return place.astype(np.int32)

    def training_labels(self) -> NDArray[np.int32]:
        """Return the class of every training sample; features are not read."""
        table, rows_of = self._sets["training"]
        blocks = row_blocks(self.training_samples, COLUMN_AT_ONCE)
        return np.concatenate([self._classes_of(table, rows_of(numbers)) for numbers in blocks])

    def _read_owners(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        if not self.has_owners:
            return super()._read_owners(rows)
        table, rows_of = self._sets["training"]
        return _plain(table, rows_of(rows), "owner", self._missing)


class Split:
    """A random part of the rows of a file, which messages call `what`, for testing, the rest for training.

    It needs no list: the rows are cut into as many stretches of nearly equal length as there are test rows,
    and one row of each, any with the same probability, is a test row. Both parts keep the order of the file
    and have a row at least.
    """

    def __init__(self, rows: int, fraction: float, seed: int, what: str) -> None:
        if rows < 2:
            raise InputError(f"{what} has one row, which cannot be split into training and test samples")
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


def _open_table(path: Path, experiment: Any, verify: bool, dimension: int | None = None) -> Table:
    """Open a file by its suffix; by default, a sparse file has as many features as occur."""
    check_readable(path)
    names = experiment.features, experiment.labels
    match Path(path.name.lower().removesuffix(".gz")).suffix:
        case ".csv":
            return read_csv(path, *names)
        case ".npz":
            return read_npz(path, *names)
        case ".svm" | ".libsvm" if names == (None, None):
            return read_svm(path, dimension)
        case ".svm" | ".libsvm":
            raise InputError(f"{path} has no names of features and labels; leave out --features and --labels")
    from mu2mpi.data.formats.hdf5 import read_hdf5

    return read_hdf5(path, *names, verify)


def _find_classes(table: Table, missing: frozenset[str]) -> NDArray[Any]:
    """Return the different labels of a file in order: at least two, and not so many that they are none."""
    found = _plain(table, np.arange(0), "label", missing)
    for rows in row_blocks(table.samples, COLUMN_AT_ONCE):
        found = np.union1d(found, _plain(table, rows, "label", missing))
        if len(found) > MOST_CLASSES or (SURELY_MANY < len(found) > table.samples / 2):
            raise InputError(
                f"{table.path} has {len(found)} different labels in its first {rows[-1] + 1} rows; these are "
                "no classes: name those with --labels"
            )
    if len(found) < 2:
        raise InputError(
            f"{table.path}: every label is {shown(found[0])}; classification needs at least two classes"
        )
    return found


def _plain(table: Table, rows: NDArray[np.int64], what: Column, missing: frozenset[str]) -> NDArray[Any]:
    """Return labels or owners of any kind as int64, or text as objects; none may be missing, or say so."""
    values: NDArray[Any] = table.column(what, rows)
    kind = values.dtype.kind
    if kind in "SUO":
        with reading(table.path):
            texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        faults = {text: fault for text in set(texts) if (fault := _fault(text, what, missing))}
        bad = next((k for k, text in enumerate(texts) if text in faults), None) if faults else None
        if bad is not None:
            raise InputError(f"{table.path}: row {rows[bad]} has {faults[texts[bad]]}")
        return np.array([*texts, None], dtype=object)[:-1]
    if kind not in "biuf":
        raise InputError(f"{table.path}: a {what} must be a whole number or text, not {values.dtype}")
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    # Also false for NaN, and for what passes the range of 64-bit integers.
    bad_rows = np.flatnonzero(whole != values)
    if bad_rows.size:
        raise InputError(
            f"{table.path}: row {rows[bad_rows[0]]} has the {what} {values[bad_rows[0]]}, which is neither a "
            "whole number nor text"
        )
    return whole


def _fault(name: object, what: Column, missing: frozenset[str]) -> str | None:
    """Say what is wrong with a label or owner that is to be text, if anything is."""
    if not isinstance(name, str) or not name.strip():
        return f"no {what}"
    if UNFIT.search(name):
        return f"the {what} {shown(name)}, with a character that no name may have; rename it"
    if name.strip().lower() in missing:
        return (
            f"the {what} {shown(name)}, which says that it is missing: remove the sample, or give "
            "--missing-labels keep if that is a name like any other"
        )
    return None
