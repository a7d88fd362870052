"""Data of the user's own: samples in a file, labels of any kind, a part of them for testing."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.preset import with_preset
from mu2mpi.data.formats.table import Table, reading
from mu2mpi.data.source import COLUMN_AT_ONCE, Samples, Source, row_blocks
from mu2mpi.data.split import Split
from mu2mpi.errors import InputError

__all__ = ["FileSource", "open_file", "open_table"]

LARGEST = 1e150
"""Squares of larger numbers, and sums of them, may leave the range of floating-point numbers."""

READ_BYTES = 4 << 20
"""Features that are read at once."""

MOST_CLASSES = 1_000_000

SURELY_MANY = 1000
"""Classes beyond which there should be at least two samples of each, on average."""


def open_file(experiment: Experiment, verify: bool = True) -> "FileSource":
    """Open the file, or the two files, that an experiment names.

    Parameters
    ----------
    experiment : Experiment
        Its data are a file.
    verify : bool, optional
        Whether to look for damage that could hang or crash a process.

    Raises
    ------
    InputError
        If they cannot be used, or do not fit together.
    """
    names = None if experiment.features is None else str(experiment.features), experiment.labels
    training = open_table(Path(experiment.data).expanduser(), *names, verify)
    test: Table | float = 0.2
    if isinstance(experiment.test, str):
        place = Path(experiment.test).expanduser()
        _check_another(place, training.path)
        test = open_table(place, *names, verify, training.dimension)
    elif experiment.test is not None:
        test = experiment.test
    # What a preset chooses here does not depend on the number of machines, which is not known yet.
    normalize = with_preset(experiment.model_copy(update={"machines": 1})).normalize
    bound = None if normalize == "unit" else experiment.feature_bound or 1.0
    return FileSource(training, test, experiment.data_seed, bound)


def _check_another(test: Path, training: Path) -> None:
    """Refuse to test on the training data, whose losses without noise would pass for those of others."""
    with reading(test):
        same = os.path.samefile(test, training)
    if same:
        raise InputError(
            f"the test file {test} is the training file itself: a test file is taken to be public, and what "
            "is measured on it has no noise; give --test another file, or a share of this one, such as 0.2"
        )


def open_table(
    path: Path, features: str | None, labels: str | None, verify: bool = True, dimension: int | None = None
) -> Table:
    """Open a file by its suffix.

    Parameters
    ----------
    path : Path
        The file.
    features, labels : str, optional
        Names of arrays or columns.
    verify : bool, optional
        Whether to look for damage that could hang or crash a process.
    dimension : int, optional
        Number of features, where the format leaves it open.

    Raises
    ------
    InputError
        If the file cannot be used.
    """
    # Imported here, so that a run pays only for the format that it uses.
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in (".svm", ".libsvm"):
        from mu2mpi.data.formats.svm import read_svm

        if features is not None or labels is not None:
            raise InputError(f"{path} has no names of features and labels; leave out --features and --labels")
        return read_svm(path, dimension)
    if suffix == ".csv":
        from mu2mpi.data.formats.text import read_csv

        return read_csv(path, features, labels)
    if suffix == ".npz":
        from mu2mpi.data.formats.npz import read_npz

        return read_npz(path, features, labels)
    from mu2mpi.data.formats.hdf5 import Hdf5Table

    return Hdf5Table(path, features, labels, verify)


class FileSource(Source):
    """The samples of a file, or of one for training and one for testing.

    Rows are read when they are asked for, from formats that allow it. Labels may be whole numbers or text;
    in their order they become the classes 0, 1, ...

    Parameters
    ----------
    training : Table
        The file.
    test : Table or float
        Another file, or which share of the rows is for testing.
    seed : int
        Decides which rows those are.
    bound : float or None
        What features are divided by, and none may pass in absolute value; None if samples are to be scaled
        to norm 1.

    Raises
    ------
    InputError
        If the labels are not those of at least two classes, or the files do not fit together.
    """

    def __init__(self, training: Table, test: Table | float, seed: int, bound: float | None) -> None:
        self.name = str(training.path)
        self.dimension = training.dimension
        self._training, self._test = training, training
        if isinstance(test, Table):
            self._test = test
            self.training_samples, self.test_samples = training.samples, test.samples
            self._split = None
            if test.dimension != training.dimension:
                raise InputError(
                    f"{test.path} has {test.dimension} features a sample, and {training.path} has "
                    f"{training.dimension}"
                )
        else:
            self._split = Split(training.samples, test, seed, self.name)
            self.training_samples, self.test_samples = self._split.training_rows, self._split.test_rows
        self.scale = 1.0 if bound is None else 1 / bound
        if bound is None:
            self.limit, self.remedy = LARGEST, "remove the sample"
        else:
            self.remedy = (
                "give a larger public bound with --normalize box --feature-bound, or --normalize unit"
            )
        self._values = _find_classes(training)
        self.class_names = tuple(str(value) for value in self._values)
        self.classes = len(self._values)
        self.has_owners = training.has_owners
        self._at_once = max(1, READ_BYTES // (training.feature_type.itemsize * training.dimension))

    def _read_training(self, rows: NDArray[np.int64]) -> Samples:
        return self._read(self._training, self._training_rows(rows))

    def _read_test(self, rows: NDArray[np.int64]) -> Samples:
        return self._read(self._test, rows if self._split is None else self._split.test(rows))

    def _place(self, which: str, number: int) -> str:
        rows = np.array([number])
        if which == "training":
            return f"{self.name}: row {self._training_rows(rows)[0]}"
        return f"{self._test.path}: row {(rows if self._split is None else self._split.test(rows))[0]}"

    def _training_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers if self._split is None else self._split.training(numbers)

    def _read(self, table: Table, rows: NDArray[np.int64]) -> Samples:
        """Read rows in the order of the file, a few at a time, and put them where they are wanted."""
        order = np.argsort(rows, kind="stable")
        features = np.empty((len(rows), self.dimension), table.feature_type)
        labels = np.empty(len(rows), np.int32)
        for start in range(0, len(rows), self._at_once):
            part = order[start : start + self._at_once]
            features[part] = table.features(rows[part])
            labels[part] = self._classes_of(table, rows[part])
        return Samples(features, labels)

    def _classes_of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        labels = plain(table, rows, table.labels(rows), "label")
        if labels.dtype != self._values.dtype:
            raise InputError(f"the labels in {table.path} are not of the kind of those in {self.name}")
        place = np.minimum(np.searchsorted(self._values, labels), self.classes - 1)
        unknown = np.flatnonzero(self._values[place] != labels)
        if unknown.size:
            raise InputError(
                f"{table.path}: row {rows[unknown[0]]} has the label {labels[unknown[0]]}, of which "
                f"{self.name} has no sample"
            )
        return place.astype(np.int32)

    def training_labels(self) -> NDArray[np.int32]:
        """Return the class of every training sample; features are not read."""
        blocks = row_blocks(self.training_samples, COLUMN_AT_ONCE)
        return np.concatenate([self._classes_of(self._training, self._training_rows(k)) for k in blocks])

    def _read_owners(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        if not self.has_owners:
            return super()._read_owners(rows)
        rows = self._training_rows(rows)
        return plain(self._training, rows, self._training.owners(rows), "owner")


def _find_classes(table: Table) -> NDArray[Any]:
    """Return the different labels of a file in their order.

    Raises
    ------
    InputError
        If there are less than two, or so many that they are no classes.
    """
    found: NDArray[Any] | None = None
    for rows in row_blocks(table.samples, COLUMN_AT_ONCE):
        values = np.unique(plain(table, rows, table.labels(rows), "label"))
        found = values if found is None else np.union1d(found, values)
        if len(found) > MOST_CLASSES or (SURELY_MANY < len(found) > table.samples / 2):
            raise InputError(
                f"{table.path} has {len(found)} different labels in its first {rows[-1] + 1} rows; these are "
                "no classes: name those with --labels"
            )
    if found is None or len(found) < 2:
        raise InputError(
            f"{table.path}: every label is {'absent' if found is None else found[0]}; "
            "classification needs at least two classes"
        )
    return found


def plain(table: Table, rows: NDArray[np.int64], values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return labels or owners of any kind as int64, or as text in an array of objects.

    Raises
    ------
    InputError
        If they are neither, or one is missing; the message names its row.
    """
    kind = values.dtype.kind
    if kind in "SUO":
        with reading(table.path):
            texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        bad = next((k for k, text in enumerate(texts) if not isinstance(text, str) or not text), None)
        if bad is not None:
            raise InputError(f"{table.path}: row {rows[bad]} has no {what}")
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
