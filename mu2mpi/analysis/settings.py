"""In which settings runs differ, as a reader would say it: what follows from others is not one of them."""

from collections.abc import Sequence
from functools import cache
from typing import Any, get_args

from mu2mpi.analysis.words import PRIVACY
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import following
from mu2mpi.config.options import method_options, option_fields, values_in
from mu2mpi.problem.practical import Facts
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary

POOLED = ("seed", "evaluations")
"""Settings that may differ within a cell: the seed, and what changes nothing in the model."""


def settings_of(run: Summary) -> dict[str, Any]:
    """Return all settings of a run by name, each of two ways to say the same as one."""
    return dict(canonical(run.experiment))


@cache
def canonical(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an experiment as `settings_of` does; not to be changed.

    A method that was chosen by its estimator and query point has its own name, and where data name no
    owners, the partition is iid.
    """
    parts = experiment.source_options, experiment.options, experiment.server_options
    settings = dict.fromkeys(option_fields()) | values_in(experiment, *parts)
    settings |= {"method": experiment.chosen_method.name, "estimator": None, "query": None}
    if settings["partition"] is None and not experiment.on_file:
        settings["partition"] = "iid"
    return settings


def own_settings(run: Summary) -> dict[str, Any]:
    """Return the settings of a run by name, with None for those that follow from its others.

    These are what a preset or the server chose, and rho where epsilon is given; and where it is not, delta,
    which changes nothing in the model then.
    """
    return dict(_own_settings(run.experiment, run.facts))


@cache
def _own_settings(experiment: Experiment, facts: Facts | None) -> dict[str, Any]:
    settings = dict(canonical(experiment))
    follows = following(experiment, facts)
    if experiment.epsilon is not None:
        follows["rho"] = settings["rho"]
    elif find("mechanisms", experiment.chosen_mechanism).spends == "rho" and experiment.budgets is None:
        follows["delta"] = settings["delta"]
    return {name: None if name in follows and follows[name] == v else v for name, v in settings.items()}


def varying(runs: Sequence[Summary]) -> list[str]:
    """Return the settings in which runs differ, but for the seed and what changes nothing in the model.

    Sizes that follow from the others, as rounds do from the number of machines, are left out.
    """
    return varying_among([own_settings(run) for run in runs])


def varying_among(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return in which of their `own_settings` runs differ, as `varying` does."""
    rows, fields = _without_drawn_rounds(rows), option_fields()
    # A delta that changes nothing is None.
    values = {
        name: {row.get(name) for row in rows} - ({None} if name == "delta" else set()) for name in fields
    }
    differ = [name for name in fields if len(values[name]) > 1]
    sizes = ["rounds", *(n for n in method_options(presets=False) if int in get_args(fields[n].annotation))]
    for name in reversed([name for name in sizes if name in differ]):
        others = [other for other in differ if other != name and other not in POOLED]
        if others and is_settled(name, others, rows):
            differ.remove(name)
    return [name for name in differ if name not in POOLED]


def _without_drawn_rounds(rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return runs without rounds that were drawn: of each seed others, and nearly as many.

    Who is there, and who has which labels, follows from the seed, and how far samples last from that.
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        if row["participation"] or str(row["partition"]).startswith(("labels:", "dirichlet:")):
            others = tuple(value for name, value in row.items() if name not in (*POOLED, "rounds"))
            groups.setdefault(others, []).append(row)
    drawn: set[int] = set()
    for group in groups.values():
        rounds = [row["rounds"] or 0 for row in group]
        if max(rounds) <= 1.3 * min(rounds) and len({row["seed"] for row in group}) == len(group):
            drawn |= {id(row) for row in group}
    return [{**row, "rounds": None} if id(row) in drawn else row for row in rows]


def is_settled(name: str, others: Sequence[str], rows: Sequence[dict[str, Any]]) -> bool:
    """Return whether runs that agree in other settings agree in this one."""
    known: dict[tuple[Any, ...], Any] = {}
    return all(
        known.setdefault(tuple(row.get(o) for o in others), row.get(name)) == row.get(name) for row in rows
    )


def privacy_of(runs: Sequence[Summary]) -> tuple[str, ...]:
    """Return how the privacy of runs was set: by epsilon, by rho, or some by one and some by the other."""
    given = {"rho" if run.experiment.epsilon is None else "epsilon" for run in runs}
    return tuple(name for name in PRIVACY if name in given)
