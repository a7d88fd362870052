"""Data source of samples in the user's own file; the test set is a share of its rows or another file."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION, Options, check_file_name
from mu2mpi.core.registry import register
from mu2mpi.data.column_values import MISSING_MARKERS, UNPRINTABLE_CHARACTERS, parse_number
from mu2mpi.data.formats.format import MEMORY, Table, open_data_file
from mu2mpi.data.memory import MemoryData
from mu2mpi.data.redaction import DataError, describe_row, redacted_errors, safe_text
from mu2mpi.data.source import DataRequest, DataSource, Samples, SplitName, labels_to_classes, row_chunks
from mu2mpi.data.table_schema import (
    MAX_CLASSES,
    NUMERIC_LABEL_BINS,
    ColumnSchema,
    EncodedTable,
    InvalidValues,
    Schema,
    TestSetOption,
    read_schema,
)

MAX_ABS_FEATURE = 1e150  # sums of squares of larger features may overflow
FEATURE_READ_BYTES = 4 << 20  # features read at a time
MAX_STORED_TEST_ROWS = 1_000_000  # rows of the test set that a result stores
MAX_CLASSES_WITH_FEW_SAMPLES = 100  # with more classes, an average class must have at least three samples
MAX_FRACTIONAL_CLASSES = 10  # classes called by numbers that are not all whole

FileName = Annotated[str | None, AfterValidator(lambda name: name and check_file_name(name))]
BoolOption = Annotated[bool | None, AfterValidator(lambda value: value or None)]

# `schema` shadows a deprecated method of pydantic, now called model_json_schema.
warnings.filterwarnings("ignore", 'Field name "schema"')


def _text(description: str) -> Any:
    return Field(None, min_length=1, coerce_numbers_to_str=True, description=description)


class FileOptions(Options):
    """Options of a user's data file: arrays or columns of features and labels, test set, and validation."""

    schema: FileName = Field(  # type: ignore[assignment]
        None, description="file declaring the columns of a table in public terms (docs/guides/data.md)"
    )
    features: str | None = _text(
        "dataset or columns of features [default: features, X, x, images or data; in CSV all others]"
    )
    labels: str | None = _text("dataset or column of labels [default: labels, label, y, target or class]")
    test: TestSetOption = Field(None, description="share for testing, or another file [default: 0.2]")
    missing_labels: Literal["keep"] | None = Field(
        None, description="treatment of labels such as NA: keep them as class names"
    )
    feature_bound: float | None = Field(
        None,
        ge=MIN_REAL_OPTION,
        le=MAX_REAL_OPTION,
        description="public divisor of features, with normalize = box",
    )
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of the test split")
    label_range: str | None = Field(None, description="public range LOW:HIGH of numeric labels")
    data_is_public: BoolOption = Field(None, description="let messages name rows and values, and count flaws")

    @model_validator(mode="after")
    def _check_option_combination(self) -> Self:
        if self.schema is not None:
            replaced = ("features", "labels", "missing_labels", "feature_bound", "label_range")
            if given_options := [name for name in replaced if getattr(self, name) is not None]:
                raise ValueError(f"schema replaces {' and '.join(given_options)}; leave out either")
        return self

    @field_validator("label_range")
    @classmethod
    def _check_label_range(cls, value: str | None) -> str | None:
        try:
            low, high = map(float, (value or "0:1").split(":"))
            ColumnSchema(type="label", low=low, high=high)
        except ValueError:
            raise ValueError("must be LOW:HIGH with LOW < HIGH, such as 0:100") from None
        return value


@register
class UserFile(DataSource):
    """Samples of a user's data file, scaled by ``--feature-bound`` or to norm 1 (``--normalize unit``)."""

    name, option_syntax, summary = "user-file", "a file", "samples of your own (docs/guides/data.md)"
    options, is_user_data, supports_classes_as_numbers = FileOptions, True, False
    range_advice = "give --schema, --normalize unit, or --normalize box with a larger --feature-bound"

    @classmethod
    def check_experiment(cls, experiment: Any, options: Any) -> None:
        if options.schema is not None and experiment.normalize == "box":
            raise InputError("schema declares the range of each column. Leave out normalize = box.")
        if (experiment.normalize == "box") != (options.feature_bound is not None):
            raise InputError("normalize = box and feature_bound need each other. Give both or neither.")

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        return cls(request)

    def __init__(self, request: DataRequest) -> None:
        options = self._options = request.options
        self.is_public = bool(options.data_is_public)
        self.invalid_values = InvalidValues()
        self._missing_markers = MISSING_MARKERS if options.missing_labels is None else set[str]()
        self._tables: dict[str, tuple[Table, Callable[[IntArray], IntArray]]] = {}
        self._memory = request.memory or MemoryData()
        schema = self._memory.schema
        if schema is None and options.schema is not None:
            schema = read_schema(Path(options.schema).expanduser())
        with redacted_errors(self.is_public):
            training = self._open_table(schema, "training", request.data)
            self.name, self.dimension = str(training.path), training.dimension
            self.has_owners = training.has_owners
            self._open_test_set(schema, training)
            self._label_schema: ColumnSchema | None = None
            if schema is not None:
                self._label_schema, self.schema_toml = schema.label[1], schema.toml
                self.max_squared_norm = float(len(schema.features))  # as categorical columns are one-hot
            elif options.label_range is not None:
                low, high = map(float, options.label_range.split(":"))
                self._label_schema = ColumnSchema(type="label", low=low, high=high)
            if self._label_schema is None:
                self._class_labels = _distinct_labels(training, self._missing_markers)
                self.class_names = tuple(map(str, self._class_labels))
            else:
                self.label_range, classes = self._label_schema.range, self._label_schema.classes
                self.class_names = tuple(map(str, classes)) if classes else None
            self.classes = len(self.class_names) if self.class_names else NUMERIC_LABEL_BINS
        self.feature_scale = 1 / (options.feature_bound or 1.0)
        if request.scaling == "unit":
            self.feature_scale, self.max_abs_feature = 1.0, MAX_ABS_FEATURE
            self.range_advice = "remove the sample"
        self._rows_per_block = max(1, FEATURE_READ_BYTES // training.feature_dtype.itemsize // self.dimension)
        self.feature_names = training.feature_names
        if any(map(UNPRINTABLE_CHARACTERS.search, self.feature_names or ())):
            self.feature_names = None  # A result file cannot store them.

    def _open_test_set(self, schema: Schema | None, training: Table) -> None:
        test = self._options.test or (schema and schema.test) or 0.2
        if not isinstance(test, str):
            if training.samples < 2:
                raise InputError(f"{self.name} has only one row. Give another file for testing with --test.")
            split = HoldoutSplit(training.samples, test, self._options.data_seed)
            self.training_samples, self.test_samples = split.training_samples, split.test_samples
            self._tables = {"training": (training, split.training_rows), "test": (training, split.test_rows)}
            self.files = (training.path,)
            if split.test_samples <= MAX_STORED_TEST_ROWS:
                self.test_rows = split.test_rows(np.arange(split.test_samples))
            return
        test_table = self._open_table(schema, "test", test, training.dimension)
        path = test_table.path
        if MEMORY not in (test, self.name) and os.path.samefile(path, training.path):
            raise InputError(f"the test file {path} is the training file. Give another, or a share.")
        if (count := test_table.dimension) != self.dimension:
            raise InputError(f"{path} has {count} features a sample, and {self.name} has {self.dimension}")
        self.training_samples, self.test_samples = training.samples, test_table.samples
        self._tables = {"training": (training, np.asarray), "test": (test_table, np.asarray)}
        self.files = training.path, path

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        """Read samples block by block in the order of the file; return them in the order of `rows`."""
        table, file_rows = self._tables[split]
        rows = file_rows(rows)
        order = np.argsort(rows, kind="stable")
        features = np.empty((len(rows), self.dimension), table.feature_dtype)
        labels: NDArray[Any] = np.empty(len(rows), np.int32 if self.label_range is None else np.float64)
        for start in range(0, len(rows), self._rows_per_block):
            block = order[start : start + self._rows_per_block]
            features[block] = table.features(rows[block])
            labels[block] = self._read_labels(table, rows[block])
        return Samples(features, labels)

    def _describe_sample(self, split: SplitName, number: int) -> str:
        table, file_rows = self._tables[split]
        return f"{table.path}: {describe_row(file_rows(np.array([number]))[0], table.has_header)}"

    def training_labels(self) -> NDArray[np.int32]:
        table, file_rows = self._tables["training"]
        with redacted_errors(self.is_public):
            labels = [self._read_labels(table, file_rows(r)) for r in row_chunks(self.training_samples)]
        return labels_to_classes(np.concatenate(labels), self.classes)

    def read_owners(self, rows: IntArray) -> NDArray[np.generic]:
        if not self.has_owners:
            return super().read_owners(rows)
        table, file_rows = self._tables["training"]
        with redacted_errors(self.is_public):
            return table.column("owner", file_rows(rows)).to_integers_or_texts(self._missing_markers)

    def _read_labels(self, table: Table, rows: IntArray) -> NDArray[Any]:
        column = table.column("label", rows)
        if self._label_schema is not None:
            return self._label_schema.encode_labels(column, self.invalid_values)
        labels = column.to_integers_or_texts(self._missing_markers)
        if labels.dtype != self._class_labels.dtype:
            raise InputError(f"the labels in {table.path} differ in type from those in {self.name}")
        classes = np.minimum(np.searchsorted(self._class_labels, labels), self.classes - 1)
        unknown = self._class_labels[classes] != labels
        column.reject_values(unknown, f"a label of which {self.name} has no sample", "remove the sample")
        return classes.astype(np.int32)

    def _open_table(self, schema: Schema | None, split: str, name: str, dimension: int = 0) -> Table:
        if name != MEMORY:
            file = open_data_file(Path(name).expanduser(), dimension)
        elif split in self._memory.files:
            file = self._memory.files[split]
        else:
            missing = f"{MEMORY} stands for {split} data of a Python program, which are not stored"
            raise InputError(f"{missing}. Pass them to mu2mpi.run or sweep again, or name a file.")
        if schema is None:
            return file.table(self._options.features, self._options.labels)
        if file.has_feature_matrix:
            advice = "Use a data frame, or a file of columns such as CSV or Parquet"
            raise InputError(f"{file.path} has features without names, and a schema needs them. {advice}.")
        schema.check_column_names(file.path, file.column_names)
        return EncodedTable(file, schema, self.invalid_values, schema.value_types)


def _distinct_labels(table: Table, missing_markers: set[str]) -> NDArray[Any]:
    classes = table.column("label", np.arange(0)).to_integers_or_texts(missing_markers)
    for rows in row_chunks(table.samples):
        classes = np.union1d(classes, table.column("label", rows).to_integers_or_texts(missing_markers))
        are_fractions = len(classes) > MAX_FRACTIONAL_CLASSES and _are_fractions(classes)
        are_rare = MAX_CLASSES_WITH_FEW_SAMPLES < len(classes) > table.samples / 3
        if len(classes) > MAX_CLASSES or are_rare or are_fractions:
            fix = "give numbers a --label-range LOW:HIGH and --loss squared, name other labels"
            fix += ", or declare them as classes in a schema" if are_fractions else ""
            kind = "different labels with fractions" if are_fractions else "different labels"
            raise DataError(
                f"{table.path} has too many {kind} for classes; {fix}",
                f"{table.path} has {len(classes)} {kind} in its first {rows[-1] + 1} rows; {fix}",
            )
    if len(classes) < 2:
        raise DataError(
            f"{table.path}: every label is the same; classification needs two",
            f"{table.path}: every label is {safe_text(classes[0])}; classification needs two",
        )
    return classes


def _are_fractions(labels: NDArray[Any]) -> bool:
    """Whether all labels are numbers, and some of them not whole."""
    texts = [] if labels.dtype.kind in "iu" else map(str, labels.tolist())
    numbers = [*map(parse_number, texts)]
    return None not in numbers and any(number is not None and number % 1 for number in numbers)


class HoldoutSplit:
    """Random split of file rows into training and test sets, with one test row in each of equal strata."""

    def __init__(self, rows: int, fraction: float, seed: int) -> None:
        self.test_samples = min(rows - 1, max(1, round(fraction * rows)))
        self.training_samples = rows - self.test_samples
        self._row_count = rows
        digest = hashlib.sha256(b"mu2mpi: test split %d" % seed).digest()
        self._salt = np.uint64(int.from_bytes(digest[:8], "little"))

    def test_rows(self, sample_numbers: IntArray) -> IntArray:
        """File rows of test samples by their numbers; test sample k lies in stratum k."""
        start = self._stratum_start(sample_numbers)
        length = (self._stratum_start(sample_numbers + 1) - start).astype(np.uint64)
        return start + (_splitmix64(sample_numbers.astype(np.uint64) + self._salt) % length).astype(np.int64)

    def training_rows(self, sample_numbers: IntArray) -> IntArray:
        """File rows of training samples by their numbers."""
        # floor(k training_samples / test_samples) training samples precede stratum k.
        stratum = ((sample_numbers + 1) * self.test_samples - 1) // self.training_samples
        rows = sample_numbers + stratum
        return rows + (rows >= self.test_rows(stratum))

    def _stratum_start(self, stratum: IntArray) -> IntArray:
        return stratum * self._row_count // self.test_samples


def _splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64-bit hash of each integer by the finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
