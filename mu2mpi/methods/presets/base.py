"""Base class of presets: settings chosen from public facts."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from mu2mpi.data.facts import PublicFacts


class Preset(ABC):
    """Settings that replace those of the theorems where the user gives none."""

    kind: ClassVar[str] = "presets"
    name: ClassVar[str]
    summary: ClassVar[str] = ""  # for the help
    is_default: ClassVar[bool] = False  # whether `mu2mpi sweep --methods` uses it
    method: ClassVar[str | None] = None  # method of experiments that name none

    @abstractmethod
    def settings(self, method: Any, asked: Any, facts: PublicFacts | None) -> dict[str, Any]:
        """Return the settings that the preset chooses.

        Parameters
        ----------
        method : Method
            The method of the experiment.
        asked : Experiment
            What the user gave, which overrides the settings.
        facts : PublicFacts or None
            What is public of the data; None before the data are read.

        Returns
        -------
        dict of str to object
            Values by name of the option. Without facts, the names are the same, and values that depend on
            facts are None.
        """
