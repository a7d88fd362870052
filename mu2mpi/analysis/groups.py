"""Which runs belong together in a figure, and what tells the groups apart in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from mu2mpi.analysis.cells import by_rows
from mu2mpi.analysis.settings import own_settings, settings_of
from mu2mpi.analysis.words import number_text
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary
from mu2mpi.suggestions import or_else


@dataclass(frozen=True, eq=False)
class Group:
    """Runs, at least one, and the settings that they share, by which they were grouped."""

    settings: dict[str, Any]
    runs: list[Summary]


def grouped(runs: Iterable[Summary], names: Sequence[str]) -> list[Group]:
    """Group runs by settings, or other columns of their rows, in the order in which tables show them.

    A setting that follows from others in a run is None there.
    """
    groups = by_rows(runs, names, lambda run: {**run.row, **own_settings(run)})
    return [Group(dict(zip(names, key, strict=True)), of) for key, of in groups.items()]


def in_nats(runs: Iterable[Summary]) -> bool:
    """Return whether the losses of all runs are in nats, and none is in a unit of its own."""
    return all(find("problems", run.experiment.loss).unit == "nat" for run in runs)


def chosen(runs: Sequence[Summary], conditions: Sequence[str]) -> list[Summary]:
    """Return the runs that fulfil conditions such as ``server=trusted``, ``rho=4,16`` or ``clip_norm=unset``.

    Raises an InputError if a condition is none, names no setting, or has a value that no run has.
    """
    for condition in conditions:
        name, equals, text = condition.partition("=")
        if not equals or name not in option_fields():
            meant = or_else(name.strip(), option_fields(), "settings")
            raise InputError(f"{condition!r} is no condition such as rho=4{meant}")
        # A method that is known by a name of its own may also have been chosen by its parts.
        values = [getattr(run.experiment, name) for run in runs]
        there = [{v, settings_of(run)[name] or v} for run, v in zip(runs, values, strict=True)]
        # A value may have commas of its own.
        whole = any(_is(value, text) for of_run in there for value in of_run)
        texts = [text] if whole else [part.strip() for part in text.split(",")]
        matches = [{one for one in texts for value in of_run if _is(value, one)} for of_run in there]
        if missing := [one for one in texts if not any(one in found for found in matches)]:
            raise InputError(f"no run has {name}={missing[0]}; {name} is {listed(values)}")
        runs = [run for run, found in zip(runs, matches, strict=True) if found]
    return list(runs)


def listed(values: Iterable[Any]) -> str:
    """Return values in words, each once: numbers in their order, then names, and what is unset last."""
    order = {
        number_text(v): (v is None, not isinstance(v, Real), v if isinstance(v, Real) else str(v))
        for v in values
    }
    return ", ".join(sorted(order, key=order.__getitem__))


def _is(value: object, text: str) -> bool:
    """Return whether a text means a value: 4 is the same as 4.0."""
    try:
        return text == number_text(value) or float(text) == value
    except ValueError:
        return False
