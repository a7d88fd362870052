"""The user's own files as a source."""

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.data.formats.base import file_form, is_file
from mu2mpi.data.options import LEAST, MOST, check_file_name
from mu2mpi.data.sources.base import DataRequest, DataSource

if TYPE_CHECKING:
    from mu2mpi.data.source import Source

# `schema` is also an old name of pydantic's for what is model_json_schema by now.
warnings.filterwarnings("ignore", 'Field name "schema"')


def _text(description: str) -> Any:
    return Field(None, min_length=1, coerce_numbers_to_str=True, description=description)


class FileOptions(Options):
    """Contents of a file, and how they are checked."""

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
            raise ValueError(f"should be a share such as 0.2, or {file_form()}") from None
        if not 0 < share < 1:
            raise ValueError("should be greater than 0 and less than 1")
        return share


@register
class UserFileSource(DataSource):
    """See `mu2mpi.data.user_file`."""

    name, form, summary = "user-file", "a file", "samples of your own (docs/guides/data.md)"
    options = FileOptions
    is_user_data = True
    classes_are_numbers = False

    @property
    def accepted(self) -> str:
        """All suffixes of files that can be read."""
        return file_form()

    def claims(self, data: str) -> bool:
        """Whether the suffix is that of a file format."""
        return is_file(data)

    def check(self, asked: Any, options: Any) -> None:
        """Refuse a scale of features beside a schema, and a scale without its bound."""
        if options.schema is not None and asked.normalize == "box":
            raise InputError("schema declares the range of each column; leave out normalize = box")
        if (asked.normalize == "box") != (options.feature_bound is not None):
            raise InputError("normalize = box and feature_bound need each other: features are divided by it")

    def open(self, request: DataRequest) -> "Source":
        """Open the file, and perhaps another for testing."""
        from mu2mpi.data.user_file import UserFile

        return UserFile(request)
