"""Data of the user's own: samples in a file, labels of any kind, a part of them for testing."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import LEAST, MOST, Options, check_file_name
from mu2mpi.core.registry import register
from mu2mpi.data.column_values import MISSING, UNFIT
from mu2mpi.data.formats.format import Table, open_file
from mu2mpi.data.redaction import DataError, row_text, shown, telling
from mu2mpi.data.source import COLUMN_AT_ONCE, DataRequest, Samples, Source, Which, classes_of, row_blocks
from mu2mpi.data.table_schema import (
    MOST_CLASSES,
    TENTHS,
    Column,
    Encoded,
    Flaws,
    Schema,
    ShareOrFile,
    read_schema,
)

LARGEST = 1e150  # squares of larger features, and sums of them, may leave the range of floating-point numbers
READ_BYTES = 4 << 20  # features that are read at once
MOST_LISTED = 1_000_000  # test rows that a result lists
SURELY_MANY = 100  # beyond so many classes, there should be at least three samples of each, on average

FileName = Annotated[str | None, AfterValidator(lambda name: name and check_file_name(name))]
Switch = Annotated[bool | None, AfterValidator(lambda value: value or None)]

# `schema` is also an old name of pydantic's for what is model_json_schema by now.
warnings.filterwarnings("ignore", 'Field name "schema"')


def _text(description: str) -> Any:
    return Field(None, min_length=1, coerce_numbers_to_str=True, description=description)


class FileOptions(Options):
    """Contents of a file, and how they are checked."""

    schema: FileName = Field(  # type: ignore[assignment]
        None, description="file that declares the columns of a table in public terms (docs/guides/data.md)"
    )
    features: str | None = _text(
        "dataset or columns that hold them [default: features, X, x, images or data; in CSV all others]"
    )
    labels: str | None = _text("dataset or column of labels [default: labels, label, y, target or class]")
    test: ShareOrFile = Field(None, description="share for testing, or another file [default: 0.2]")
    missing_labels: Literal["keep"] | None = Field(None, description="keep takes NA and the like for names")
    feature_bound: float | None = Field(
        None, ge=LEAST, le=MOST, description="with normalize = box: public bound, by which they are divided"
    )
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of the test split")
    label_range: str | None = Field(None, description="public range LOW:HIGH of labels that are numbers")
    strict: Switch = Field(None, description="refuse missing and undeclared values: for public data")
    data_is_public: Switch = Field(None, description="let messages name rows and values, and count flaws")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.schema is not None:
            taken = ("features", "labels", "missing_labels", "feature_bound", "label_range")
            if given := [name for name in taken if getattr(self, name) is not None]:
                raise ValueError(f"schema declares what {' and '.join(given)} would say; leave out either")
        elif self.strict and self.label_range is None:
            raise ValueError("strict is about what is declared: give schema or label_range with it")
        return self

    @field_validator("label_range")
    @classmethod
    def _check_range(cls, value: str | None) -> str | None:
        try:
            low, high = map(float, (value or "0:1").split(":"))
            Column(type="label", low=low, high=high)
        except ValueError:
            raise ValueError("should be LOW:HIGH, such as 0:100, with a low below its high") from None
        return value


@register
class UserFile(Source):
    """The samples of a file, of which a share is for testing, or of one for training and one for testing.

    Rows are read when they are asked for, from formats that allow it. Features are divided by the bound;
    without one, samples are to be scaled to norm 1.
    """

    name, form, summary = "user-file", "a file", "samples of your own (docs/guides/data.md)"
    options, is_user_data, classes_are_numbers = FileOptions, True, False
    remedy = "declare columns with --schema, or give --normalize unit, or box with a larger --feature-bound"

    @classmethod
    def check(cls, asked: Any, options: Any) -> None:
        if options.schema is not None and asked.normalize == "box":
            raise InputError("schema declares the range of each column; leave out normalize = box")
        if (asked.normalize == "box") != (options.feature_bound is not None):
            raise InputError("normalize = box and feature_bound need each other: features are divided by it")

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        return cls(request)

    def __init__(self, request: DataRequest) -> None:
        options = self._options = request.options
        self.public, self._strict = bool(options.data_is_public), bool(options.strict)
        self._missing = MISSING if options.missing_labels is None else set[str]()
        self.flaws: Flaws = {}  # counted as rows are read
        self._sets: dict[str, tuple[Table, Callable[[NDArray[np.int64]], NDArray[np.int64]]]] = {}
        schema = None if options.schema is None else read_schema(Path(options.schema).expanduser())
        with telling(self.public):
            training = self._open_table(schema, Path(request.data).expanduser())
            self.name, self.has_owners = str(training.path), training.has_owners
            self.dimension = training.dimension
            self._open_test(schema, training)
            self._label: Column | None = None
            if schema is not None:
                self._label, self.columns = schema.label[1], schema.toml
                self.square = float(len(schema.features))  # of a group of indicators one is set
            elif options.label_range is not None:
                low, high = map(float, options.label_range.split(":"))
                self._label = Column(type="label", low=low, high=high)
            if self._label is None:
                self._values = _find_classes(training, self._missing)
                self.class_names = tuple(map(str, self._values))
            else:
                self.label_range = self._label.range
                self.class_names = tuple(map(str, self._label.classes)) if self._label.classes else None
            self.classes = len(self.class_names) if self.class_names else TENTHS
        # What a preset chooses here does not depend on the number of machines, which is not known yet.
        if request.scaling == "unit":
            self.scale, self.limit, self.remedy = 1.0, LARGEST, "remove the sample"
        else:
            self.scale = 1 / (options.feature_bound or 1.0)
        self._at_once = max(1, READ_BYTES // (training.feature_type.itemsize * training.dimension))
        names = training.feature_names
        # A result could not hold others.
        self.feature_names = names if names and not any(map(UNFIT.search, names)) else None

    def _open_test(self, schema: Schema | None, training: Table) -> None:
        """Set what is for training and what for testing: a share of the training file, or another file."""
        test = self._options.test or (schema and schema.test) or 0.2
        if not isinstance(test, str):
            if training.samples < 2:
                raise InputError(f"{self.name} has one row; give another file for testing, with --test")
            split = Split(training.samples, test, self._options.data_seed)
            self.training_samples, self.test_samples = split.training_rows, split.test_rows
            self._sets = {"training": (training, split.training), "test": (training, split.test)}
            self.files = (training.path,)
            if split.test_rows <= MOST_LISTED:
                self.test_rows = split.test(np.arange(split.test_rows))
            return
        path = Path(test).expanduser()
        other = self._open_table(schema, path, training.dimension)
        if os.path.samefile(path, training.path):
            raise InputError(f"the test file {path} is the training file; give --test another, or a share")
        if (count := other.dimension) != self.dimension:
            raise InputError(f"{path} has {count} features a sample, and {self.name} has {self.dimension}")
        self.training_samples, self.test_samples = training.samples, other.samples
        self._sets = {"training": (training, np.asarray), "test": (other, np.asarray)}
        self.files = training.path, path

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        """Read rows in the order of the file, a few at a time, and put them where they are wanted."""
        table, rows_of = self._sets[which]
        rows = rows_of(rows)
        order = np.argsort(rows, kind="stable")
        features = np.empty((len(rows), self.dimension), table.feature_type)
        labels: NDArray[Any] = np.empty(len(rows), np.int32 if self.label_range is None else np.float64)
        for start in range(0, len(rows), self._at_once):
            part = order[start : start + self._at_once]
            features[part] = table.features(rows[part])
            labels[part] = self._labels_of(table, rows[part])
        return Samples(features, labels)

    def _place(self, which: Which, number: int) -> str:
        table, rows_of = self._sets[which]
        return f"{table.path}: {row_text(rows_of(np.array([number]))[0], table.has_header)}"

    def training_labels(self) -> NDArray[np.int32]:
        table, rows_of = self._sets["training"]
        blocks = row_blocks(self.training_samples, COLUMN_AT_ONCE)
        with telling(self.public):
            parts = [self._labels_of(table, rows_of(numbers)) for numbers in blocks]
        return classes_of(np.concatenate(parts), self.classes)

    def read_owners(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        if not self.has_owners:
            return super().read_owners(rows)
        table, rows_of = self._sets["training"]
        with telling(self.public):
            return table.cells("owner", rows_of(rows)).names(self._missing)

    def _labels_of(self, table: Table, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return the class of each of some rows, ascending, or its label in [-1, 1]."""
        cells = table.cells("label", rows)
        if self._label is not None:
            return self._label.labels(cells, self._strict, self.flaws)
        labels = cells.names(self._missing)
        if labels.dtype != self._values.dtype:
            raise InputError(f"the labels in {table.path} are not of the kind of those in {self.name}")
        place = np.minimum(np.searchsorted(self._values, labels), self.classes - 1)
        unknown = self._values[place] != labels
        cells.refuse(unknown, f"a label of which {self.name} has no sample", "remove the sample")
        return place.astype(np.int32)

    def _open_table(self, schema: Schema | None, path: Path, dimension: int = 0) -> Table:
        if schema is None:
            return open_file(path, dimension).table(self._options.features, self._options.labels)
        # What a sparse file lacks at the end is 0.
        file = open_file(path, max((int(name) for name in schema.columns if name.isdecimal()), default=0))
        schema.check_names(path, file.column_names)
        return Encoded(file.columns(schema.kinds), schema, self._strict, self.flaws)


def _find_classes(table: Table, missing: set[str]) -> NDArray[Any]:
    """Return the different labels of a file in order: two at least, and not too many to be classes."""
    found = table.cells("label", np.arange(0)).names(missing)
    for rows in row_blocks(table.samples, COLUMN_AT_ONCE):
        found = np.union1d(found, table.cells("label", rows).names(missing))
        if len(found) > MOST_CLASSES or (SURELY_MANY < len(found) > table.samples / 3):
            fix = "give numbers a --label-range LOW:HIGH and a loss such as squared, or name other --labels"
            raise DataError(
                f"{table.path} has too many different labels for classes; {fix}",
                f"{table.path} has {len(found)} different labels in its first {rows[-1] + 1} rows; {fix}",
            )
    if len(found) < 2:
        raise DataError(
            f"{table.path}: every label is the same; classification needs two",
            f"{table.path}: every label is {shown(found[0])}; classification needs two",
        )
    return found


class Split:
    """A random part of the rows of a file for testing, the rest for training.

    It needs no list: the rows are cut into as many stretches of nearly equal length as there are test rows,
    and one row of each, any with the same probability, is a test row. Both parts have a row at least.
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
        # Before the stretch k lie floor(k training_rows / test_rows) training samples.
        stretch = ((numbers + 1) * self.test_rows - 1) // self.training_rows
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
