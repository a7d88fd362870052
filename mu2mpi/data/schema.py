"""Schemas: TOML files that declare the columns of a table of the user's in public terms."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from mu2mpi.data.formats.table import MOST_FEATURES, listed, shown
from mu2mpi.data.labels import MOST_CLASSES, UNFIT
from mu2mpi.data.options import LEAST, MOST, SUFFIXES, is_file
from mu2mpi.errors import InputError
from mu2mpi.suggestions import did_you_mean
from mu2mpi.toml import read_toml

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")
"""Usual words of a boolean column, in small or capital letters."""

TENTHS = 10
"""Parts of the range of a number as label, which stand for classes where samples are dealt and counted."""


def _checked_values(values: object) -> tuple[str | int, ...]:
    """Values as they are fit to be names, which differ."""
    fits = isinstance(values, list | tuple) and len(values) > 0
    if not fits or not all(isinstance(v, str | int) and not isinstance(v, bool) for v in values):  # type: ignore[attr-defined]
        raise ValueError("should be a list of texts or whole numbers")
    checked = tuple(values)  # type: ignore[arg-type]
    if len(set(map(str, checked))) < len(checked):
        raise ValueError("should have no value twice")
    for text in map(str, checked):
        if not text or text != text.strip() or UNFIT.search(text):
            raise ValueError(f"'{shown(text)}' is empty, or has spaces around it or control characters")
    return checked


def _check_range(low: float, high: float) -> None:
    if not (abs(low) <= MOST and abs(high) <= MOST and high - low >= LEAST):
        raise ValueError(f"needs a low below its high, both of at most {MOST:g} in absolute value")


Value = Annotated[str | int, BeforeValidator(lambda value: _checked_values([value])[0])]
Values = Annotated[tuple[str | int, ...], BeforeValidator(_checked_values)]


class Column(BaseModel):
    """What every column has: a type, and how many features come from it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    needs: ClassVar[str] = "nothing more"  # how the rest of a declaration looks
    is_feature: ClassVar[bool] = False
    type: str

    def feature_names(self, name: str) -> list[str]:
        """Names of the features of a column of this name."""
        return [name] if self.is_feature else []

    @property
    def told(self) -> str:
        """What is declared, in words that follow the type."""
        declared = self.model_dump(exclude={"type"}, exclude_none=True)
        return "".join(f", {name} {_text(value)}" for name, value in declared.items())


class Numeric(Column):
    """A number of a range, which becomes [-1, 1]; what is missing becomes its middle."""

    type: Literal["numeric"]
    low: float
    high: float
    needs = "low = 0, high = 100"
    is_feature = True

    @property
    def range(self) -> tuple[float, float]:
        """The bounds."""
        return self.low, self.high

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_range(self.low, self.high)
        return self


class Categorical(Column):
    """One of some categories: an indicator of each, and none of them for what is missing or not declared."""

    type: Literal["categorical"]
    categories: Values
    needs = 'categories = ["a", "b"]'
    is_feature = True

    def feature_names(self, name: str) -> list[str]:
        """Name of the indicator of each category."""
        return [f"{name} = {category}" for category in self.categories]


class Ordinal(Column):
    """One of some categories in an order: evenly spaced numbers of [-1, 1], and 0 for what is missing."""

    type: Literal["ordinal"]
    categories: Annotated[Values, Field(min_length=2)]
    needs = 'two categories or more, in their order, such as categories = ["low", "middle", "high"]'
    is_feature = True


class Boolean(Column):
    """Yes or no: 1 or -1, and 0 for what is missing."""

    type: Literal["boolean"]
    true: Value | None = None
    false: Value | None = None
    needs = 'nothing more, or true = "ja", false = "nein"'
    is_feature = True

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.true is None) != (self.false is None):
            raise ValueError("needs both true and false, or neither")
        if self.true is not None and self.false is not None:
            _checked_values((self.true, self.false))
        return self


class Ignored(Column):
    """A column that is not read."""

    type: Literal["ignored"]


class Owner(Column):
    """Whose sample it is: text or whole numbers."""

    type: Literal["owner"]


class Label(Column):
    """What is learned: one of some classes, or a number of a range."""

    type: Literal["label"]
    classes: Annotated[Values, Field(min_length=2, max_length=MOST_CLASSES)] | None = None
    low: float | None = None
    high: float | None = None
    needs = 'classes = ["no", "yes"], or low = 0, high = 100'

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.low is None) != (self.high is None) or (self.classes is None) == (self.low is None):
            raise ValueError("needs either classes, or both low and high")
        if self.range is not None:
            _check_range(*self.range)
        return self

    @property
    def range(self) -> tuple[float, float] | None:
        """The bounds of a number."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def count(self) -> int:
        """The number of classes, or of tenths of the range of a number."""
        return TENTHS if self.classes is None else len(self.classes)


Declared = Numeric | Categorical | Ordinal | Boolean | Ignored | Owner | Label
TYPES: dict[str, type[Column]] = {
    kind.__name__.lower(): kind for kind in (Numeric, Categorical, Ordinal, Boolean, Ignored, Label, Owner)
}


class Schema(BaseModel):
    """The columns of a table, in their order, and what is for testing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    columns: dict[str, Annotated[Declared, Field(discriminator="type")]]
    test: float | str | None = None

    @field_validator("test", mode="before")
    @classmethod
    def _check_test(cls, value: object) -> object:
        fits = is_file(value) if isinstance(value, str) else isinstance(value, float) and 0 < value < 1
        if not fits:
            files = f"a file whose name ends in {', '.join(SUFFIXES)}"
            raise ValueError(f"should be a share such as 0.2, or {files}")
        return value

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        labels, owners = ([*self._having(kind)] for kind in (Label, Owner))
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

    def _having(self, kind: type[Column]) -> dict[str, Any]:
        return {name: column for name, column in self.columns.items() if isinstance(column, kind)}

    @property
    def label(self) -> tuple[str, Label]:
        """The name and the declaration of the column of labels."""
        return next(iter(self._having(Label).items()))

    @property
    def owner(self) -> str | None:
        """The name of the column of owners, if there is one."""
        return next(iter(self._having(Owner)), None)

    @property
    def features(self) -> dict[str, Column]:
        """The columns from which features come, by name."""
        return {name: column for name, column in self.columns.items() if column.is_feature}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of all features, such as "age" and "sex = f"."""
        return tuple(one for name, column in self.columns.items() for one in column.feature_names(name))

    @property
    def square(self) -> float:
        """Bound on the squared norm of all features: one a column, as of a group of indicators one is set."""
        return float(len(self.features))

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, if labels are classes."""
        classes = self.label[1].classes
        return None if classes is None else tuple(map(str, classes))

    @property
    def classes(self) -> int:
        """The number of classes, or of tenths of the range of a number."""
        return self.label[1].count

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
            raise InputError(
                f"{path} {', and '.join(lines)}; is it the schema of another table, or is a name misspelt? "
                "Columns that are not to be used are declared as ignored"
            )


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
    """One line on what is wrong with a schema, or with a column of it, and what would be right."""
    location, message = problem["loc"], str(problem["msg"]).removeprefix("Value error, ")
    if location[:1] != ("columns",) or len(location) == 1:
        where = "".join(f"{shown(part)}: " for part in location)
        return f"{where}{message}; a schema has a table [columns.NAME] for each column, and perhaps test"
    column = f"column {shown(location[1]) or 'without a name'}"
    if len(location) == 2:
        given = problem["input"].get("type") if isinstance(problem["input"], dict) else None
        has = f"has the type {shown(given)}" if given else "needs a type"
        return f"{column} {has}; the types are {', '.join(TYPES)}{did_you_mean(str(given or ''), TYPES)}"
    field = "".join(f"{shown(part)}: " for part in location[3:])
    return f"{column}: {field}{message}; a column of type {location[2]} has {TYPES[location[2]].needs}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else listed(value) if isinstance(value, tuple) else str(value)
