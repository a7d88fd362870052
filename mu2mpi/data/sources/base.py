"""Sources of data as the user chooses them: their options, their facts, and how they are opened.

Source modules are imported to list their options: what is slow to import waits until data are opened.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import find, names
from mu2mpi.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from mu2mpi.data.source import Source


@dataclass(frozen=True)
class DataRequest:
    """Data to open: those of a source, by its options.

    The folder `data_dir` holds one for each data set; by default it is ``MU2MPI_DATA_DIR``, or else the
    user's cache.
    """

    data: str  # value of --data
    options: Any  # of the type that the source declares
    scaling: str = "none"  # of samples: none, unit or box
    data_dir: Path | None = None
    verify: bool = True  # whether to compare checksums, where there are any


class DataSource(ABC):
    """A source of data that ``--data`` names; what it opens is a `Source`."""

    kind: ClassVar[str] = "sources"
    name: ClassVar[str]
    form: ClassVar[str]  # value of --data in messages, by default the name
    summary: ClassVar[str] = ""  # a few words for its place in the help
    options: ClassVar[type[Options]] = Options
    draws_fresh: ClassVar[bool] = False  # whether machines draw samples of distributions, as of `Source`
    # Whether samples are the user's own data, perhaps people's: others may hold the same under another name
    is_user_data: ClassVar[bool] = False
    classes_are_numbers: ClassVar[bool] = True  # whether class c may serve a regression as the number c

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "form" not in vars(cls):
            cls.form = cls.name

    @property
    def accepted(self) -> str:
        """Values of ``--data`` that name this source, in words."""
        return self.form

    def claims(self, data: str) -> bool:
        """Whether a value of ``--data`` names this source."""
        return data == self.name

    def check(self, asked: Any, options: Any) -> None:
        """Raise InputError if other settings do not go with this source; the message says what would."""
        if asked.normalize == "box":
            raise InputError("normalize = box needs feature_bound, which files have; leave it out")

    def fetch(self, data_dir: Path | None) -> list[Path]:
        """Download what is missing, where that is possible; return the files."""
        return []

    @abstractmethod
    def open(self, request: DataRequest) -> "Source":
        """Open training and test set, without any download; InputError if they are missing or damaged."""


class GeneratedOptions(Options):
    """Sizes and seed of generated data."""

    samples: int = Field(
        10_000, ge=2, lt=2**32, description="number of training samples; a population has more for --rounds"
    )
    features: int = Field(20, ge=1, le=10_000_000, description="how many features a sample has")
    classes: int = Field(3, ge=2, le=1_000_000, description="number of classes")
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of what is made up")


def find_source(data: str) -> DataSource:
    """Return the source that a value of ``--data`` names; InputError if there is none."""
    known: list[DataSource] = [find("sources", name) for name in names("sources")]
    for source in known:
        if source.claims(data):
            return source
    accepted = ", ".join(source.accepted for source in known)
    raise InputError(f"should be one of: {accepted}{did_you_mean(data, names('sources'))}")
