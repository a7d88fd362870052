"""Which runs belong together in a figure, and what tells the groups apart in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mu2mpi.analysis.cells import POOLED, number_text, sort_key
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["Group", "chosen", "grouped", "in_words", "setting_text", "varying"]

SYMBOLS = {"rho": "ρ", "machines": "M", "rounds": "T", "diameter": "D", "clip_norm": "C"}


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed alone.

    Attributes
    ----------
    settings : dict of str to value
        The settings by which runs were grouped.
    runs : list of Summary
        At least one.
    """

    settings: dict[str, Any]
    runs: list[Summary]


def varying(runs: Sequence[Summary]) -> list[str]:
    """Return the settings in which runs differ, but for the seed and what changes nothing in the model.

    The number of rounds is left out where it follows from the number of machines, and so is what follows
    from a preset.
    """
    rows = [run.row() for run in runs]
    for row, run in zip(rows, runs, strict=True):
        follows = run.experiment.by_preset()
        row.update({name: None for name, value in follows.items() if row[name] == value})
    names = [n for n in option_fields() if n not in POOLED and len({row[n] for row in rows}) > 1]
    if "rounds" in names and "machines" in names:
        rounds_of = {(row["machines"], row["rounds"]) for row in rows}
        if len(rounds_of) == len({machines for machines, _ in rounds_of}):
            names.remove("rounds")
    return names


def grouped(runs: Iterable[Summary], names: Sequence[str]) -> list[Group]:
    """Group runs by some settings (or `ranks`), in the order in which tables show them."""
    groups: dict[tuple[Any, ...], list[Summary]] = {}
    for run in runs:
        row = run.row()
        groups.setdefault(tuple(row.get(name) for name in names), []).append(run)
    return [Group(dict(zip(names, key, strict=True)), groups[key]) for key in sorted(groups, key=sort_key)]


def chosen(runs: Sequence[Summary], conditions: Sequence[str]) -> list[Summary]:
    """Return the runs that fulfil conditions such as ``server=trusted``, ``rho=4`` or ``clip_norm=unset``.

    Raises
    ------
    InputError
        If a condition is none, names no setting, or no run is left.
    """
    for condition in conditions:
        name, equals, text = condition.partition("=")
        if not equals or name not in option_fields():
            raise InputError(
                f"{condition!r} is no condition such as rho=4; the settings are {', '.join(option_fields())}"
            )
        left = [run for run in runs if _is(getattr(run.experiment, name), text)]
        if not left:
            there = {number_text(getattr(run.experiment, name)) for run in runs}
            raise InputError(f"no run has {condition}; {name} is {', '.join(sorted(there))}")
        runs = left
    return list(runs)


def _is(value: Any, text: str) -> bool:
    """Return whether a text means a value: 4 is the same as 4.0."""
    if value is None or isinstance(value, str):
        return text == ("unset" if value is None else value)
    try:
        return bool(float(text) == value)
    except ValueError:
        return False


def setting_text(name: str, value: Any) -> str:
    """Return a setting for a legend, such as "M = 10"; names that speak for themselves stand alone."""
    if name == "server":
        return f"{value} server"
    if name == "partition" and value is not None:
        return str(value)
    if name == "data":
        return Path(value).name
    text = f"{value:,}" if isinstance(value, int) else "∞" if value == float("inf") else number_text(value)
    return f"{SYMBOLS.get(name, name)} = {text}"


def in_words(settings: dict[str, Any]) -> str:
    """Return several settings for a legend."""
    return ", ".join(setting_text(name, value) for name, value in settings.items())
