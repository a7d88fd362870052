"""What settings and their values are called where people read of them: symbols, short numbers, own labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mu2mpi.registry import find, names

PRIVACY = ("epsilon", "rho")
"""Two ways to say one thing: where one is given, the other follows."""

SYMBOLS = {
    "rho": "ρ", "epsilon": "ε", "delta": "δ", "machines": "M", "rounds": "T", "diameter": "D",
    "clip_norm": "C", "colluders": "c", "l2": "λ", "samples": "n", "colluders_share": "c/M",
}  # fmt: skip
"""The paper's letters for settings, where it has some."""

UNSET = {
    "partition": "as the file says", "participation": "all machines", "budgets": "one budget",
    "noise": "noise by machine", "l2": "no regulariser", "norm_bound": "norms as they are",
    "clip_norm": "C = S", "eta_scale": "the theorem's η", "tail": "last iterate",
    "noise_correlation": "noise of its own", "preset": "the theory's settings", "seed": "no seed",
}  # fmt: skip
"""What it means where a setting is not set."""

MISSING = "–"
"""What stands in a table where there is nothing."""


@dataclass(frozen=True)
class Words:
    """How settings are told in a figure or a table, with labels of the user's by ``rho`` or ``rho=4``."""

    labels: Mapping[str, str] = field(default_factory=dict)

    def name(self, setting: str) -> str:
        """Return what a setting is called, on an axis or in a header."""
        return self.labels.get(setting, SYMBOLS.get(setting, setting.replace("_", " ")))

    def of(self, settings: Mapping[str, Any]) -> str:
        """Return several settings for a legend, such as "M = 10, trusted server".

        Names that speak for themselves stand alone, and what does not apply is left out where others do.
        """
        # What a preset chose is not told, and is not unset either.
        told = UNSET if settings.get("preset") is None else ()
        said = [name for name, value in settings.items() if value is not None or name in told]
        return ", ".join(self.pair(name, settings[name]) for name in said or settings)

    def pair(self, name: str, value: Any) -> str:
        """Return a setting with its value."""
        own = self.labels.get(f"{name}={number_text(value)}")
        if own is not None:
            return own
        if value is None:
            return UNSET.get(name, f"{self.name(name)} unset")
        if name == "method" and value in names("methods"):
            return str(find("methods", value).title)
        text = self.value(name, value)
        if name in ("method", "data", "test", "partition", "loss"):
            return text
        if name in ("preset", "mechanism"):
            return f"{name} {text}"
        return f"{text} server" if name == "server" else f"{self.name(name)} = {text}"

    def value(self, name: str, value: Any) -> str:
        """Return the value of a setting, as short as it can be without merging two that differ."""
        own = self.labels.get(f"{name}={number_text(value)}")
        if own is not None:
            return own
        if name in ("data", "test", "schema", "budgets") and value is not None:
            return Path(str(value)).name
        return "∞" if value == math.inf else counted(value)

    def in_table(self, name: str, value: Any) -> str:
        """Return the value of a setting below its name: what speaks for itself without it."""
        own = f"{name}={number_text(value)}" in self.labels
        if value is None and name not in UNSET and not own:
            return MISSING
        speaks = value is None or name == "method"
        return self.pair(name, value) if speaks else self.value(name, value)


def told_privacy(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without that of epsilon and rho by which privacy was not set, if either is there."""
    given = any(settings.get(name) is not None for name in PRIVACY)
    return {n: value for n, value in settings.items() if value is not None or not given or n not in PRIVACY}


def counted(value: object) -> str:
    """Return a setting as `number_text` does, with thousands parted in those that count something."""
    return f"{value:,}" if isinstance(value, int) else number_text(value)


def number_text(value: object) -> str:
    """Return a setting as short as it can be without merging two that differ."""
    if value is None:
        return "unset"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)
