"""Which runs belong together in a figure, and what tells the groups apart in words."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mu2mpi.analysis.cells import POOLED, by_settings, counted, number_text
from mu2mpi.config.identity import following
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary

SYMBOLS = {"rho": "ρ", "machines": "M", "rounds": "T", "diameter": "D", "clip_norm": "C"}


@dataclass(frozen=True, eq=False)
class Group:
    """Runs, at least one, and the settings that they share, by which they were grouped."""

    settings: dict[str, Any]
    runs: list[Summary]


def varying(runs: Sequence[Summary]) -> list[str]:
    """Return the settings in which runs differ, but for the seed and what changes nothing in the model.

    Rounds that follow from the number of machines are left out, and so is what a preset or the server chose.
    """
    rows = [dict(run.row) for run in runs]
    for row, run in zip(rows, runs, strict=True):
        follows = following(run.experiment, run.facts)
        row.update({name: None for name, value in follows.items() if row[name] == value})
    names = [n for n in option_fields() if n not in POOLED and len({row[n] for row in rows}) > 1]
    if "rounds" in names and "machines" in names:
        rounds_of = {(row["machines"], row["rounds"]) for row in rows}
        if len(rounds_of) == len({machines for machines, _ in rounds_of}):
            names.remove("rounds")
    return names


def grouped(runs: Iterable[Summary], names: Sequence[str]) -> list[Group]:
    """Group runs by settings, or other columns of their rows, in the order in which tables show them."""
    return [Group(dict(zip(names, key, strict=True)), of) for key, of in by_settings(runs, names).items()]


def in_nats(runs: Iterable[Summary]) -> bool:
    """Return whether the losses of all runs are in nats, and none is in a unit of its own."""
    return all(find("problems", run.experiment.loss).unit == "nat" for run in runs)


def chosen(runs: Sequence[Summary], conditions: Sequence[str]) -> list[Summary]:
    """Return the runs that fulfil conditions such as ``server=trusted``, ``rho=4`` or ``clip_norm=unset``.

    Raises an InputError if a condition is none, names no setting, or leaves no run.
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


def _is(value: object, text: str) -> bool:
    """Return whether a text means a value: 4 is the same as 4.0."""
    try:
        return text == number_text(value) or float(text) == value
    except ValueError:
        return False


def in_words(settings: dict[str, Any]) -> str:
    """Return several settings for a legend, such as "M = 10"; names that speak for themselves stand alone."""
    return ", ".join(_setting_text(name, value) for name, value in settings.items())


def _setting_text(name: str, value: Any) -> str:
    if name == "server":
        return f"{value} server"
    if name == "partition" and value is not None:
        return str(value)
    if name == "data":
        return Path(value).name
    if name == "budgets" and value is not None:
        return f"budgets = {Path(value).name}"
    return f"{SYMBOLS.get(name, name)} = {'∞' if value == math.inf else counted(value)}"
