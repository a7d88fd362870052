"""What settings and their values are called where people read of them: symbols, short numbers, own labels."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Any

from mu2mpi.analysis.settings import listed, number_text
from mu2mpi.config.options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.core.suggestions import or_else
from mu2mpi.core.toml import read_toml
from mu2mpi.results.reader import Summary

# The paper's letters for settings, where it has some
SYMBOLS = {
    "rho": "ρ", "epsilon": "ε", "delta": "δ", "machines": "M", "rounds": "T", "diameter": "D",
    "clip_norm": "C", "colluders": "c", "l2": "λ", "samples": "n", "colluders_share": "c/M",
}  # fmt: skip
# What it means where a setting is not set
UNSET = {
    "partition": "as the file says", "participation": "all machines", "budgets": "one budget",
    "noise": "noise by machine", "l2": "no regulariser", "norm_bound": "norms as they are",
    "clip_norm": "C = S", "eta_scale": "the theorem's η", "tail": "last iterate",
    "noise_correlation": "noise of its own", "preset": "the theory's settings", "seed": "no seed",
}  # fmt: skip
MISSING = "–"  # What stands in a table where there is nothing
Labels = Mapping[str, str] | Path | str | Sequence[str]


@dataclass(frozen=True)
class Words:
    """How settings are told in a figure or a table, with labels of the user's by ``rho`` or ``rho=4``."""

    labels: Mapping[str, str] = field(default_factory=dict)

    def name(self, setting: str) -> str:
        """Return what a setting is called, on an axis or in a header."""
        return self.labels.get(setting, SYMBOLS.get(setting, setting.replace("_", " ")))

    def of(self, settings: Mapping[str, Any]) -> str:
        """Return several settings for a legend, such as "M = 10, trusted server"."""
        # What a preset chose is not told, and is not unset either.
        told = UNSET if settings.get("preset") is None else ()
        said = [name for name, value in settings.items() if value is not None or name in told]
        return ", ".join(self.pair(name, settings[name]) for name in said or settings)

    def pair(self, name: str, value: Any) -> str:
        """Return a setting with its value."""
        text = self.value(name, value)
        if f"{name}={number_text(value)}" in self.labels:
            return text
        if value is None:
            return UNSET.get(name, f"{self.name(name)} unset")
        if name == "method" and value in names("methods"):
            return str(find("methods", value).title)
        if name in ("method", "data", "test", "partition", "loss"):
            return text
        if name in ("preset", "mechanism"):
            return f"{name} {text}"
        return f"{text} server" if name == "server" else f"{self.name(name)} = {text}"

    def value(self, name: str, value: Any) -> str:
        """Return the value of a setting, as short as it can be without merging two that differ."""
        if (own := self.labels.get(f"{name}={number_text(value)}")) is not None:
            return own
        if name in ("data", "test", "schema", "budgets") and value is not None:
            return Path(str(value)).name
        if value == math.inf:
            return "∞"
        return f"{value:,}" if isinstance(value, int) else number_text(value)

    def in_table(self, name: str, value: Any) -> str:
        """Return the value of a setting below its name: what speaks for itself without it."""
        own = f"{name}={number_text(value)}" in self.labels
        if value is None and name not in UNSET and not own:
            return MISSING
        speaks = value is None or name == "method"
        return self.pair(name, value) if speaks else self.value(name, value)


def read_labels(given: Labels) -> dict[str, str]:
    """Return own labels by what they stand for, a setting (``rho``) or one of its values (``rho=4``).

    They are given as such a mapping, as texts (``rho=4:strong``), or as TOML files with tables of values.
    """
    pairs: list[tuple[str, Any, str]] = []
    if isinstance(given, Mapping):
        pairs, given = [(key, label, "") for key, label in given.items()], ()
    for one in [given] if isinstance(given, Path | str) else given:
        if Path(one).suffix == ".toml":
            for key, value in read_toml(Path(one)).items():
                of_values = value.items() if isinstance(value, dict) else ()
                flat = {f"{key}={own}": label for own, label in of_values} or {key: value}
                pairs += [(*pair, f"{one}: ") for pair in flat.items()]
            continue
        # Values hold colons more often than labels do, as labels:1 and uniform:10.
        key, colon, label = str(one).rpartition(":")
        if not colon:
            raise InputError(f"{one!r} is no label such as rho=4:strong, and no TOML file of labels")
        pairs.append((key, label, ""))
    found = {}
    for key, label, where in pairs:
        name, equals, value = key.strip().partition("=")
        if name not in option_fields():
            meant = or_else(name, option_fields(), "settings")
            raise InputError(f"{where}there is no setting {name!r}{meant}")
        if not isinstance(label, str):
            raise InputError(f"{where}the label of {key} is no text")
        # A value is told as it is otherwise: 4.0 is 4.
        with suppress(ValueError):
            value = number_text(float(value))
        found[f"{name}{equals}{value}"] = label.strip()
    return found


def unmatched(given: Sequence[str], runs: Sequence[Summary]) -> list[str]:
    """Return what to say of labels whose value no run has; those of files may be for others."""
    said = []
    for key in read_labels([one for one in given if Path(one).suffix != ".toml"]):
        name, equals, value = key.partition("=")
        there = [(getattr(run.experiment, name), run.own_settings[name]) for run in runs]
        if equals and value not in {number_text(v) for values in there for v in values}:
            said.append(f"no run has {name} = {value}; {name} is {listed(v for v, _ in there)}")
    return said


def rounded_up(value: float, rounding: str = ROUND_CEILING) -> str:
    """Return four significant digits, rounded up: a guarantee must not look stronger than it is."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.10g}"


def rounded_down(value: float) -> str:
    """Return four significant digits, rounded down: a demand must not look weaker than it is."""
    return rounded_up(value, ROUND_FLOOR)
