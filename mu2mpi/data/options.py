"""The options of sources of data, apart from the sources, so that the help need not import those."""

import math
import re
import warnings
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mu2mpi.core.suggestions import did_you_mean

FILE = "a file"
SUFFIXES = (".h5", ".hdf5", ".npz", ".parquet", ".csv", ".svm", ".libsvm", ".csv.gz", ".svm.gz", ".libsvm.gz")
FILES = f"a file whose name ends in {', '.join(SUFFIXES)}"

# Of what is multiplied and squared later on, which must not leave the range of floating-point numbers
LEAST, MOST = 1e-100, 1e100
PARTITION = re.compile(r"iid|contiguous|sorted|owner|dirichlet:(\d*\.?\d+(?:e-?\d\d?)?)|labels:[1-9]\d{0,8}")


def check_partition(text: str) -> str:
    """Return the name of a way to deal samples to machines, or raise ValueError if it is none."""
    found = PARTITION.fullmatch(text)
    if not found or not LEAST <= float(found[1] or 1) <= MOST:
        raise ValueError(
            "should be iid, contiguous, sorted, owner, dirichlet:A with a positive number A such as "
            "dirichlet:0.3, or labels:N with a number of classes such as labels:2"
            + did_you_mean(text, ("iid", "contiguous", "sorted", "owner", "dirichlet:A", "labels:N"))
        )
    return text


def is_file(data: str) -> bool:
    """Return whether this is, by its suffix, a file of the user's."""
    return data.lower().endswith(SUFFIXES)


def check_file_name(name: str) -> str:
    """Return the name of a file, or raise ValueError if no result could hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("should be text in UTF-8; rename the file, or link to it") from None
    return name


class SourceOptions(BaseModel):
    """Options of a source: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SyntheticOptions(SourceOptions):
    """What is made up."""

    samples: int = Field(
        10_000, ge=2, lt=2**32, description="number of training samples; a population has more for --rounds"
    )
    features: int = Field(20, ge=1, le=10_000_000, description="how many features a sample has")
    classes: int = Field(3, ge=2, le=1_000_000, description="number of classes")
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of what is made up")


class PopulationOptions(SyntheticOptions):
    """How hard it is, and how far machines differ."""

    margin: float = Field(0.5, ge=0, le=1, description="how far apart classes are, 1 for a point each")
    label_noise: float = Field(0.1, ge=0, le=1, description="share of labels that are drawn at random")
    heterogeneity: float = Field(
        0.0, ge=0, le=1, description="how far random labels lean to a model of each machine's own"
    )


# `schema` is also an old name of pydantic's for what is model_json_schema by now.
warnings.filterwarnings("ignore", 'Field name "schema"')


def _text(description: str) -> Any:
    return Field(None, min_length=1, coerce_numbers_to_str=True, description=description)


class FileOptions(SourceOptions):
    """What of a file is what."""

    schema: str | None = Field(  # type: ignore[assignment]
        None, description="file that declares the columns of a table in public terms (docs/guides/data.md)"
    )
    features: str | None = _text(
        "name of the dataset, or names of the columns, that hold them [default: features, X, x, images or "
        "data; in CSV all other columns]"
    )
    labels: str | None = _text(
        "name of the dataset or column that holds the labels [default: labels, label, y, target or class]"
    )
    test: float | str | None = Field(
        None, description="share of it, chosen at random, that is for testing, or another file [default: 0.2]"
    )
    missing_labels: Literal["keep"] | None = Field(
        None,
        description="keep takes texts such as NA for names of classes and owners [default: they are refused]",
    )
    feature_bound: float | None = Field(
        None,
        ge=1e-100,
        le=1e100,
        description="with normalize = box: public bound on every feature, by which they are divided",
    )
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of the test split")
    label_range: str | None = Field(
        None, description="public range LOW:HIGH of numbers as labels, such as 0:100; others are clamped"
    )
    strict: bool | None = Field(
        None, description="refuse values that are missing or outside what is declared: for public data"
    )
    data_is_public: bool | None = Field(
        None, description="let messages name rows and values of the data, and say how many are clamped"
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.schema is not None:
            taken = ("features", "labels", "missing_labels", "feature_bound", "label_range")
            if given := [name for name in taken if getattr(self, name) is not None]:
                raise ValueError(f"schema declares what {' and '.join(given)} would say; leave out either")
        elif self.strict and self.label_range is None:
            raise ValueError("strict is about what is declared: give schema or label_range with it")
        return self

    @field_validator("schema")
    @classmethod
    def _check_schema(cls, value: str | None) -> str | None:
        return value and check_file_name(value)

    @field_validator("strict", "data_is_public")
    @classmethod
    def _unset(cls, value: bool | None) -> bool | None:
        return value or None

    @field_validator("label_range")
    @classmethod
    def _check_range(cls, value: str | None) -> str | None:
        try:
            low, high = map(float, (value or "0:1").split(":"))
        except ValueError:
            low = high = math.nan
        if not (max(abs(low), abs(high)) <= MOST and high - low >= LEAST):
            raise ValueError("should be LOW:HIGH, such as 0:100, with a low below its high")
        return value

    @field_validator("test", mode="before")
    @classmethod
    def _read_test(cls, value: object) -> object:
        if value is None or is_file(str(value)):
            return value and check_file_name(str(value))
        try:
            share = float(str(value))
        except ValueError:
            raise ValueError(f"should be a share such as 0.2, or {FILES}") from None
        if not 0 < share < 1:
            raise ValueError("should be greater than 0 and less than 1")
        return share


BUILT_IN: dict[str, type[SourceOptions]] = {
    "digits": SourceOptions,
    "mnist": SourceOptions,
    "synthetic": SyntheticOptions,
    "population": PopulationOptions,
}


# The options of each kind of source, by its name in messages
OPTIONS: dict[str, type[SourceOptions]] = {**BUILT_IN, FILE: FileOptions}


def check_data(name: str) -> str:
    """Return the name of a data set or of a file, or raise ValueError if it is none."""
    if name not in BUILT_IN and not is_file(name):
        raise ValueError(f"should be {', '.join(BUILT_IN)}, or {FILES}{did_you_mean(name, BUILT_IN)}")
    return check_file_name(name)
