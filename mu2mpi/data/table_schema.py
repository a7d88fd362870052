"""Table schemas: TOML declarations of the columns of a data file, and encoding of tables by a schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION, check_file_name
from mu2mpi.core.suggestions import did_you_mean, one_of
from mu2mpi.core.toml import parse_toml, read_toml
from mu2mpi.data.column_values import MISSING_CODE, UNDECLARED_CODE, UNPRINTABLE_CHARACTERS, ColumnValues
from mu2mpi.data.formats.format import (
    MAX_FEATURES,
    ColumnRole,
    DataFile,
    Table,
    ValueType,
    describe_columns,
    describe_suffixes,
    is_data_file,
)
from mu2mpi.data.redaction import format_names, safe_text, to_nfc

MAX_CLASSES = 1_000_000
NUMERIC_LABEL_BINS = 10  # bins of a numeric label's range, used as classes by partitions and class counts
# Valid sets of keys of each column type, and its explanation in templates and messages
COLUMN_TYPES: dict[str, tuple[tuple[set[str], ...], str]] = {
    "numeric": (
        ({"low", "high"},),
        "and low = 18, high = 100; others are clamped, missing ones the midpoint",
    ),
    "categorical": (({"categories"},), 'and categories = ["a", "b"]; other values set no indicator'),
    "ordinal": (({"categories"},), 'and categories = ["low", "middle", "high"], in ascending order'),
    "boolean": ((set(), {"true", "false"}), 'and, if not yes/no or similar, true = "ja", false = "nein"'),
    "ignored": ((set(),), "is not read"),
    "owner": ((set(),), "names the owner of the sample; at most one column"),
    "label": (({"classes"}, {"low", "high"}), 'and classes = ["no", "yes"], or low = 0, high = 10; just one'),
}
BOOLEAN_TEXTS = {  # code of each common spelling of a boolean, in lower, upper and title case
    change_case(text): code
    for code, texts in enumerate(("false f no n 0", "true t yes y 1"))
    for text in texts.split()
    for change_case in (str, str.upper, str.title)
}


def _validate_categories(values: object) -> tuple[str | int, ...]:
    if not isinstance(values, list | tuple) or not values or any(type(v) not in (str, int) for v in values):
        raise ValueError("must be a list of texts or whole numbers")
    values = [to_nfc(value) if isinstance(value, str) else value for value in values]
    texts = [*map(str, values)]
    if len(set(texts)) < len(texts):
        raise ValueError("must have no value twice")
    if bad := [t for t in texts if not t or t != t.strip() or UNPRINTABLE_CHARACTERS.search(t)]:
        raise ValueError(f"'{safe_text(bad[0])}' is empty, or has spaces around it or control characters")
    return tuple(values)


def _validate_test_set(value: object) -> object:
    """Validate the value of `test`: a share of the samples, possibly as text, or a file name."""
    if value is None or is_data_file(str(value)):
        return value and check_file_name(str(value))
    with suppress(ValueError):
        if 0 < (share := float(str(value))) < 1:
            return share
    raise ValueError(f"must be a share such as 0.2, or {describe_suffixes()}")


TestSetOption = Annotated[float | str | None, BeforeValidator(_validate_test_set)]
CategoryValue = Annotated[str | int, BeforeValidator(lambda value: _validate_categories([value])[0])]
CategoryList = Annotated[tuple[str | int, ...], BeforeValidator(_validate_categories)]
InvalidValues = dict[str, IntArray]  # Counts of missing and of undeclared values read so far, by column


class ColumnSchema(BaseModel):
    """Declaration of one column in a table schema: its type, and the keys of that type."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True)

    type: Literal["numeric", "categorical", "ordinal", "boolean", "ignored", "label", "owner"]
    categories: CategoryList | None = None
    classes: CategoryList | None = None
    true: CategoryValue | None = None
    false: CategoryValue | None = None
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.model_fields_set - {"type"} not in COLUMN_TYPES[self.type][0]:
            raise ValueError("lacks a key, or has one of another type")
        if self.range is not None:
            low, high = self.range
            if not (max(abs(low), abs(high)) <= MAX_REAL_OPTION and high - low >= MIN_REAL_OPTION):
                raise ValueError(f"needs low < high, both at most {MAX_REAL_OPTION:g} in absolute value")
        if self.true is not None:
            _validate_categories((self.true, self.false))
        if self.type == "ordinal" and len(self.categories or ()) < 2:
            raise ValueError("needs at least two categories")
        if self.classes is not None and not 2 <= len(self.classes) <= MAX_CLASSES:
            raise ValueError(f"needs 2 to {MAX_CLASSES} classes")
        return self

    @property
    def range(self) -> tuple[float, float] | None:
        """Declared bounds (low, high) of a numeric column or label; None for other columns."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def feature_names(self, name: str) -> list[str]:
        """Names of the features encoded from a column called `name`; a categorical column has several."""
        if self.type == "categorical":
            return [f"{name} = {category}" for category in self.categories or ()]
        return [] if self.type in ("ignored", "label", "owner") else [name]

    def encode(self, column: ColumnValues, out: NDArray[np.floating], invalid_values: InvalidValues) -> None:
        """Encode features or numeric labels of a column into `out`, and count invalid values."""
        if self.range is not None:
            values, (low, high) = column.to_numbers(), self.range
            is_missing, is_undeclared = np.isnan(values), (values < low) | (values > high)
            midpoint, half_range = low / 2 + high / 2, high / 2 - low / 2
            scaled = np.clip((np.clip(values, low, high) - midpoint) / half_range, -1, 1)
            out[:, 0] = np.where(is_missing, 0, scaled)
        else:
            if self.type == "boolean" and self.true is None:
                codes = column.to_category_codes(BOOLEAN_TEXTS, match_integers=True)
            else:
                codes = _encode_categories(self.categories or (self.false, self.true), column)
            is_missing, is_undeclared = codes == MISSING_CODE, codes == UNDECLARED_CODE
            if self.type == "categorical":
                out[:] = codes[:, np.newaxis] == np.arange(out.shape[1])
            else:
                points = np.linspace(-1, 1, len(self.categories or (False, True)))
                out[:, 0] = np.where(codes < 0, 0, points[np.maximum(codes, 0)])
        counts = np.array([is_missing.sum(), is_undeclared.sum()])
        invalid_values[column.column] = invalid_values.get(column.column, 0) + counts

    def encode_labels(self, column: ColumnValues, invalid_values: InvalidValues) -> NDArray[Any]:
        """Encode a label column as int32 classes or float64 in [-1, 1]; DataError for missing labels."""
        if self.range is None:
            codes = _encode_categories(self.classes or (), column)
            is_missing, is_undeclared = codes == MISSING_CODE, codes == UNDECLARED_CODE
            column.reject_values(is_missing, "a label that is missing", "remove the sample")
            column.reject_values(is_undeclared, "a label that is not declared", "declare or correct it")
            return codes.astype(np.int32)
        column.reject_values(np.isnan(column.to_numbers()), "a label that is missing", "remove the sample")
        numbers = np.empty((len(column.rows), 1))
        self.encode(column, numbers, invalid_values)
        return numbers[:, 0]


def _encode_categories(values: Sequence[str | int | None], column: ColumnValues) -> IntArray:
    category_codes = {str(value): k for k, value in enumerate(values)}
    return column.to_category_codes(category_codes, all(isinstance(value, int) for value in values))


class Schema(BaseModel):
    """Schema of a table: declarations of its columns in order, test set, and decimal mark of numbers."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True)

    columns: dict[Annotated[str, AfterValidator(to_nfc)], ColumnSchema]
    test: TestSetOption = None
    decimal: Literal[","] | None = None

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        labels, owners = ([*self._columns_of_type(name)] for name in ("label", "owner"))
        if len(labels) != 1:
            raise ValueError(f"has {len(labels)} columns of the type label; declare exactly one")
        if len(owners) > 1:
            raise ValueError(f"has {format_names(owners)} as owners; declare at most one")
        if unfit := [name for name in self.columns if UNPRINTABLE_CHARACTERS.search(name)]:
            raise ValueError(f"has {format_names(unfit)}, with a forbidden character; rename it")
        if not 1 <= (count := len(self.feature_names)) <= MAX_FEATURES:
            advice = f"declare 1 to {MAX_FEATURES} with numeric, categorical, ordinal or boolean columns"
            raise ValueError(f"has {count} features; {advice}")
        return self

    def _columns_of_type(self, column_type: str) -> dict[str, ColumnSchema]:
        return {name: column for name, column in self.columns.items() if column.type == column_type}

    @property
    def label(self) -> tuple[str, ColumnSchema]:
        """Name and declaration of the label column."""
        return next(iter(self._columns_of_type("label").items()))

    @property
    def owner(self) -> str | None:
        """Name of the owner column, or None if the schema declares none."""
        return next(iter(self._columns_of_type("owner")), None)

    @property
    def features(self) -> dict[str, ColumnSchema]:
        """Declarations of the columns that are encoded as features, by column name."""
        return {name: column for name, column in self.columns.items() if column.feature_names(name)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all encoded features of the table, such as "age" and "sex = f"."""
        return tuple(f for name, column in self.columns.items() for f in column.feature_names(name))

    @property
    def value_types(self) -> dict[str, ValueType]:
        """Text conversion of each column, by name, without ignored columns."""
        return {
            name: "numbers" if column.range else "names" if column.type == "owner" else "texts"
            for name, column in self.columns.items()
            if column.type != "ignored"
        }

    @property
    def toml(self) -> str:
        """Text of the schema in TOML, without comments."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def check_column_names(self, path: Path, names: Sequence[str]) -> None:
        """Raise InputError unless the columns of a data file are exactly those that the schema declares."""
        faults = []
        numbered = {name or f"{k} (without a name)": name for k, name in enumerate(names, 1)}
        if extra := [shown for shown, name in numbered.items() if name not in self.columns]:
            faults.append(f"has the columns {describe_columns(extra)}, which the schema does not declare")
        if missing := [name for name in self.columns if name not in names]:
            faults.append(f"lacks {format_names(missing)}, which the schema declares")
        if faults:
            raise InputError(f"{path} {', and '.join(faults)}. Declare unused columns as ignored.")


def read_schema(path: Path) -> Schema:
    """Read and validate a schema file; a relative test file is resolved against the schema's folder."""
    schema = validate_schema(read_toml(path), str(path))
    if isinstance(schema.test, str):
        return schema.model_copy(update={"test": str(path.parent / Path(schema.test).expanduser())})
    return schema


def parse_schema(text: str) -> Schema:
    """Parse and validate the TOML text of a schema, as results store it."""
    return validate_schema(parse_toml(text, "the schema"), "the schema")


def validate_schema(content: Mapping[str, Any], origin: str) -> Schema:
    """Validate the content of a schema; errors begin with its origin, such as a file name."""
    tables = content.get("columns")
    columns = tables.items() if isinstance(tables, dict) else ()
    if blank := [name for name, column in columns if isinstance(column, dict) and column.get("type") == ""]:
        advice = f"Fill in {one_of(COLUMN_TYPES)}, and the keys that each needs"
        raise InputError(f"{origin}: {format_names(blank)} have no type yet. {advice} (docs/guides/data.md).")
    try:
        return Schema.model_validate(content)
    except ValidationError as error:
        raise InputError("\n".join(f"{origin}: {_schema_error_text(e)}" for e in error.errors())) from None


def _schema_error_text(error: Any) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    place = "".join(f"{safe_text(part) or 'without a name'}: " for part in error["loc"])
    given = error["input"].get("type") if isinstance(error["input"], dict) else error["input"]
    if isinstance(given, str) and given in COLUMN_TYPES:
        return f'{place}{message}; a column of type = "{given}" {COLUMN_TYPES[given][1]}'
    hint = f"the types are {', '.join(COLUMN_TYPES)}{did_you_mean(str(given or ''), COLUMN_TYPES)}"
    keys = "a table [columns.NAME] for each column, and perhaps test or decimal"
    return f"{place}{message}; a schema has {keys}; {hint}"


class EncodedTable(Table):
    """Table of samples encoded by a schema, with features in [-1, 1], that counts invalid values."""

    def __init__(
        self, file: DataFile, schema: Schema, invalid_values: InvalidValues, columns: Mapping[str, ValueType]
    ) -> None:
        file.decimal = schema.decimal or "."
        self._file, self._schema, self._columns = file, schema, file.columns(columns)
        self.path, self.samples = file.path, next(iter(self._columns.values())).shape[0]
        self._invalid_values, self.feature_dtype = invalid_values, np.dtype(np.float32)
        self.dimension, self.has_owners = len(schema.feature_names), schema.owner is not None
        self.has_header, self.feature_names = file.has_header, schema.feature_names

    def features(self, rows: IntArray) -> NDArray[np.float32]:
        """Return encoded features of given rows (ascending): shape (len(rows), dimension), float32."""
        features = np.empty((len(rows), self.dimension), self.feature_dtype)
        start = 0
        for name, declared in self._schema.features.items():
            width = len(declared.feature_names(name))
            column = self._column_values(name, rows)
            declared.encode(column, features[:, start : start + width], self._invalid_values)
            start += width
        return features

    def column(self, role: ColumnRole, rows: IntArray) -> ColumnValues:
        """Unconverted labels or owners in given rows (ascending)."""
        name = str(self._schema.owner) if role == "owner" else self._schema.label[0]
        return self._column_values(name, rows)

    def _column_values(self, name: str, rows: IntArray) -> ColumnValues:
        return self._file.column_values(name, rows, self._columns[name][rows])
