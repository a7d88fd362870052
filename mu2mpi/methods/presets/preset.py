"""Base class of presets, which choose settings of a method from public facts about the data."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from mu2mpi.data.source import PublicFacts


class Preset(ABC):
    """Preset of settings that replace those of the theorems for options that the user leaves open."""

    component_kind: ClassVar[str] = "presets"
    name: ClassVar[str]
    summary: ClassVar[str] = ""  # short description in the help
    is_default: ClassVar[bool] = False  # preset of `mu2mpi sweep --methods`
    default_method: ClassVar[str | None] = None  # default of --method with this preset

    @abstractmethod
    def settings(self, method: Any, experiment: Any, public_facts: PublicFacts | None) -> dict[str, Any]:
        """Return the preset's settings by option name; None if they depend on missing facts."""

    def advice(self, method: Any, problem: Any) -> str | None:
        """Return advice to use another method for a problem, as a sentence; by default None."""
        return None
