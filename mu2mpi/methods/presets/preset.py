"""Base class of presets: settings chosen from public facts."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from mu2mpi.data.source import PublicFacts


class Preset(ABC):
    """Settings that replace those of the theorems for options that the user leaves open."""

    kind: ClassVar[str] = "presets"
    name: ClassVar[str]
    summary: ClassVar[str] = ""  # short description in the help
    is_default: ClassVar[bool] = False  # preset of `mu2mpi sweep --methods`
    method: ClassVar[str | None] = None  # default of --method with this preset

    @abstractmethod
    def settings(self, method: Any, experiment: Any, facts: PublicFacts | None) -> dict[str, Any]:
        """Return settings by option name; values that depend on `facts` are None before the data are read."""
