"""Schemas: TOML files that declare the columns of a table in public terms, and what they make of it."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import LEAST, MOST, check_file_name
from mu2mpi.core.suggestions import did_you_mean
from mu2mpi.core.toml import read_toml
from mu2mpi.data.column_values import ABSENT, UNFIT, UNKNOWN, Cells
from mu2mpi.data.formats.format import MOST_FEATURES, Columns, Kind, Role, Table, file_form, is_file
from mu2mpi.data.redaction import listed, shown

MOST_CLASSES = 1_000_000

# Parts of the range of a number as label, which stand for classes where samples are dealt and counted
TENTHS = 10
# The keys that may go with each type of a column, and how templates and messages explain it
TYPES: dict[str, tuple[tuple[set[str], ...], str]] = {
    "numeric": (({"low", "high"},), "and low = 18, high = 100; others are clamped, missing ones the middle"),
    "categorical": (({"categories"},), 'and categories = ["a", "b"]; what is none of them sets no indicator'),
    "ordinal": (({"categories"},), 'and categories = ["low", "middle", "high"], in their order'),
    "boolean": ((set(), {"true", "false"}), 'and, but for usual words and 1, 0, true = "ja", false = "nein"'),
    "ignored": ((set(),), "is not read"),
    "owner": ((set(),), "says whose sample it is; one column at most"),
    "label": (({"classes"}, {"low", "high"}), 'and classes = ["no", "yes"], or low = 0, high = 10; just one'),
}
# Numbers of values that are missing, and outside what is declared, by column
Flaws: TypeAlias = "dict[str, NDArray[np.int64]]"
# What usual words of a boolean column mean, in small or capital letters
WORDS = {
    form(word): k
    for k, some in enumerate(("false f no n 0", "true t yes y 1"))
    for word in some.split()
    for form in (str, str.upper, str.title)
}


def _checked_values(values: object) -> tuple[str | int, ...]:
    """Values as they are fit to be names, which differ."""
    if not isinstance(values, list | tuple) or not values or any(type(v) not in (str, int) for v in values):
        raise ValueError("should be a list of texts or whole numbers")
    texts = [*map(str, values)]
    if len(set(texts)) < len(texts):
        raise ValueError("should have no value twice")
    if bad := [text for text in texts if not text or text != text.strip() or UNFIT.search(text)]:
        raise ValueError(f"'{shown(bad[0])}' is empty, or has spaces around it or control characters")
    return tuple(values)


def _checked_share(value: object) -> object:
    """Share of the samples, perhaps as text, or the name of a file."""
    if value is None or is_file(str(value)):
        return value and check_file_name(str(value))
    with suppress(ValueError):
        if 0 < (share := float(str(value))) < 1:
            return share
    raise ValueError(f"should be a share such as 0.2, or {file_form()}")


ShareOrFile = Annotated[float | str | None, BeforeValidator(_checked_share)]
Value = Annotated[str | int, BeforeValidator(lambda value: _checked_values([value])[0])]
Values = Annotated[tuple[str | int, ...], BeforeValidator(_checked_values)]


class Column(BaseModel):
    """What a schema declares of a column: its type, and the keys that go with it.

    `numeric` is a number of a range, which becomes [-1, 1]. `categorical` has an indicator of each category.
    `ordinal` has categories in an order, which are evenly spaced numbers of [-1, 1]. `boolean` is 1 or -1.
    """

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True)

    type: Literal["numeric", "categorical", "ordinal", "boolean", "ignored", "label", "owner"]
    categories: Values | None = None
    classes: Values | None = None
    true: Value | None = None
    false: Value | None = None
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.model_fields_set - {"type"} not in TYPES[self.type][0]:
            raise ValueError("lacks a key, or has one of another type")
        if self.range is not None:
            low, high = self.range
            if not (abs(low) <= MOST and abs(high) <= MOST and high - low >= LEAST):
                raise ValueError(f"needs a low below its high, both of at most {MOST:g} in absolute value")
        if self.true is not None:
            _checked_values((self.true, self.false))
        if self.type == "ordinal" and len(self.categories or ()) < 2:
            raise ValueError("needs two categories at least")
        if self.classes is not None and not 2 <= len(self.classes) <= MOST_CLASSES:
            raise ValueError(f"needs two classes at least, and {MOST_CLASSES} at most")
        return self

    @property
    def range(self) -> tuple[float, float] | None:
        """The bounds of a number."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def feature_names(self, name: str) -> list[str]:
        """Names of the features that come from a column of this name: of a category, its indicator."""
        if self.type == "categorical":
            return [f"{name} = {category}" for category in self.categories or ()]
        return [] if self.type in ("ignored", "label", "owner") else [name]

    @property
    def told(self) -> str:
        """What is declared, in words that follow the type."""
        told = ""
        for name, value in self.model_dump(exclude={"type"}, exclude_none=True).items():
            text = f"{value:g}" if isinstance(value, float) else str(value)
            told += f", {name} {listed(value) if isinstance(value, tuple) else text}"
        return told

    def encode(self, cells: Cells, into: NDArray[np.floating], strict: bool, flaws: Flaws) -> None:
        """Write features of a column, or labels that are numbers; count or refuse what is not declared."""
        if self.range is not None:
            values, (low, high) = cells.numbers(), self.range
            missing, outside = np.isnan(values), (values < low) | (values > high)
            middle, half = low / 2 + high / 2, high / 2 - low / 2
            inside = np.clip((np.clip(values, low, high) - middle) / half, -1, 1)
            into[:, 0] = np.where(missing, 0, inside)
        else:
            if self.type == "boolean" and self.true is None:
                codes = cells.codes(WORDS, whole=True)
            else:
                codes = _declared(self.categories or (self.false, self.true), cells)
            missing, outside = codes == ABSENT, codes == UNKNOWN
            if self.type == "categorical":
                into[:] = codes[:, np.newaxis] == np.arange(into.shape[1])
            else:
                points = np.linspace(-1, 1, len(self.categories or (False, True)))
                into[:, 0] = np.where(codes < 0, 0, points[np.maximum(codes, 0)])
        flaws[cells.column] = flaws.get(cells.column, 0) + np.array([missing.sum(), outside.sum()])
        if strict:
            remedy = "correct it, widen what is declared, or leave out --strict"
            cells.refuse(missing, "a value that is missing", remedy)
            cells.refuse(outside, "a value outside what is declared", remedy)

    def labels(self, cells: Cells, strict: bool, flaws: Flaws) -> NDArray[Any]:
        """Labels as classes, or as numbers of [-1, 1]; DataError if one is missing, or of no class."""
        if self.range is None:
            codes = _declared(self.classes or (), cells)
            cells.refuse(codes == ABSENT, "a label that is missing", "remove the sample")
            cells.refuse(codes == UNKNOWN, "a label that is no class declared", "declare it, or correct it")
            return codes.astype(np.int32)
        cells.refuse(np.isnan(cells.numbers()), "a label that is missing", "remove the sample")
        numbers = np.empty((len(cells.rows), 1))
        self.encode(cells, numbers, strict, flaws)
        return numbers[:, 0]


def _declared(values: Sequence[str | int | None], cells: Cells) -> NDArray[np.int64]:
    whole = all(isinstance(value, int) for value in values)
    return cells.codes({str(value): k for k, value in enumerate(values)}, whole)


class Schema(BaseModel):
    """The columns of a table, in their order, and what is for testing."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=True)

    columns: dict[str, Column]
    test: ShareOrFile = None

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        labels, owners = ([*self._having(kind)] for kind in ("label", "owner"))
        if len(labels) != 1:
            raise ValueError(f"has {len(labels)} columns of the type label; declare exactly one")
        if len(owners) > 1:
            raise ValueError(f"has {listed(owners)} as owners; declare one at most")
        if unfit := [name for name in self.columns if UNFIT.search(name)]:
            raise ValueError(f"has {listed(unfit)}, with a character that no name may have; rename it")
        if not 1 <= (count := len(self.feature_names)) <= MOST_FEATURES:
            some = f"declare 1 to {MOST_FEATURES} with numeric, categorical, ordinal or boolean columns"
            raise ValueError(f"has {count} features; {some}")
        return self

    def _having(self, kind: str) -> dict[str, Column]:
        return {name: column for name, column in self.columns.items() if column.type == kind}

    @property
    def label(self) -> tuple[str, Column]:
        """The name and the declaration of the column of labels."""
        return next(iter(self._having("label").items()))

    @property
    def owner(self) -> str | None:
        """The name of the column of owners, if there is one."""
        return next(iter(self._having("owner")), None)

    @property
    def features(self) -> dict[str, Column]:
        """The columns from which features come, by name."""
        return {name: column for name, column in self.columns.items() if column.feature_names(name)}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of all features, such as "age" and "sex = f"."""
        return tuple(one for name, column in self.columns.items() for one in column.feature_names(name))

    @property
    def kinds(self) -> dict[str, Kind]:
        """How each column is read; those that are ignored are not among these."""
        return {
            name: "numbers" if column.range else "names" if column.type == "owner" else "texts"
            for name, column in self.columns.items()
            if column.type != "ignored"
        }

    @property
    def toml(self) -> str:
        """The TOML of the schema, without comments."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))

    def check_names(self, path: Path, names: Sequence[str]) -> None:
        """Raise InputError unless these are the columns."""
        lines = []
        if extra := [name for name in names if name not in self.columns]:
            lines.append(f"has the columns {listed(extra)}, which the schema does not declare")
        if gone := [name for name in self.columns if name not in names]:
            lines.append(f"lacks {listed(gone)}, which the schema declares")
        if lines:
            raise InputError(f"{path} {', and '.join(lines)}; declare what is not to be used as ignored")


def read_schema(path: Path) -> Schema:
    """Read a schema; a file for testing that it names lies where it is from the schema's folder."""
    schema = _checked(read_toml(path), str(path))
    if isinstance(schema.test, str):
        return schema.model_copy(update={"test": str(path.parent / Path(schema.test).expanduser())})
    return schema


def parse_schema(text: str) -> Schema:
    """Return the schema that a result holds as TOML."""
    return _checked(tomllib.loads(text), "the schema")


def _checked(content: dict[str, Any], where: str) -> Schema:
    try:
        return Schema.model_validate(content)
    except ValidationError as error:
        raise InputError("\n".join(f"{where}: {_explained(one)}" for one in error.errors())) from None


def _explained(problem: Any) -> str:
    """Line on what is wrong with a schema, or with a column of it, and what would be right."""
    message = str(problem["msg"]).removeprefix("Value error, ")
    where = "".join(f"{shown(part) or 'without a name'}: " for part in problem["loc"])
    given = problem["input"].get("type") if isinstance(problem["input"], dict) else problem["input"]
    if isinstance(given, str) and given in TYPES:
        return f'{where}{message}; a column of type = "{given}" {TYPES[given][1]}'
    hint = f"the types are {', '.join(TYPES)}{did_you_mean(str(given or ''), TYPES)}"
    return f"{where}{message}; a schema has a table [columns.NAME] for each column, and perhaps test; {hint}"


class Encoded(Table):
    """A table as a schema declares it: features in [-1, 1]; flaws are counted as rows are read."""

    def __init__(self, columns: Columns, schema: Schema, strict: bool, flaws: Flaws) -> None:
        self.path, self.samples, self._named, self._schema = columns.path, columns.samples, columns, schema
        self._strict, self._flaws, self.feature_type = strict, flaws, np.dtype(np.float32)
        self.dimension, self.has_owners = len(schema.feature_names), schema.owner is not None
        self.has_header, self.feature_names = columns.has_header, schema.feature_names

    def features(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of some rows, ascending: shape (n, dimension)."""
        found = np.empty((len(rows), self.dimension), self.feature_type)
        start, declared = 0, self._schema.features
        for name, cells in self._named.cells([*declared], rows).items():
            width = len(declared[name].feature_names(name))
            declared[name].encode(cells, found[:, start : start + width], self._strict, self._flaws)
            start += width
        return found

    def cells(self, role: Role, rows: NDArray[np.int64]) -> Cells:
        """Labels or owners of some rows, ascending, as the file holds them."""
        name = str(self._schema.owner) if role == "owner" else self._schema.label[0]
        return self._named.cells([name], rows)[name]
