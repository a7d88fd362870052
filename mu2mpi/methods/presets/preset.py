"""Base class of presets: settings chosen from public facts."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from mu2mpi.data.source import PublicFacts


class Preset(ABC):
    """Settings that replace those of the theorems where the user gives none."""

    kind: ClassVar[str] = "presets"
    name: ClassVar[str]
    summary: ClassVar[str] = ""  # for the help
    is_default: ClassVar[bool] = False  # whether `mu2mpi sweep --methods` uses it
    method: ClassVar[str | None] = None  # method of experiments that name none

    @abstractmethod
    def settings(self, method: Any, asked: Any, facts: PublicFacts | None) -> dict[str, Any]:
        """Return settings of a `Method` by name of the option; what the `Experiment` asks for overrides them.

        Before the data are read, facts are None, and so are the values that depend on them.
        """
