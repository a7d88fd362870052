"""Runs grouped as in the paper's tables: servers and rho down, machines across, one cell for all seeds."""

import csv
import importlib.resources
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.errors import InputError
from mu2mpi.experiment import Experiment
from mu2mpi.results.reader import Summary

__all__ = ["Cell", "Column", "Estimate", "Row", "Section", "build_sections", "number_text"]

POOLED = ("seed", "delta", "evaluations")
"""Settings that may differ within a cell: the seed, and what changes nothing in the trained model."""


class Row(NamedTuple):
    """What stands at the left of a row: server and rho."""

    server: str
    rho: float


class Column(NamedTuple):
    """What stands above a column: M and T."""

    machines: int
    rounds: int


class Estimate(NamedTuple):
    """Mean and sample standard deviation over seeds; the deviation of one run is NaN."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Cell:
    """What the runs of one cell say.

    Attributes
    ----------
    seeds : int
        Number of runs.
    loss, accuracy : Estimate
        Of the output on the test set; accuracy as a share in [0, 1].
    """

    seeds: int
    loss: Estimate
    accuracy: Estimate


@dataclass(frozen=True)
class Section:
    """Runs that differ in nothing but server, rho, M, T and the seed.

    Attributes
    ----------
    settings : dict of str to value
        The settings that they share.
    rows : list of Row
        Untrusted first, then by rho.
    columns : list of Column
        By M, then by T.
    cells : dict of (Row, Column) to Cell
        Combinations without a run are absent.
    paper : dict of (Row, Column) to (float, float)
        Loss and accuracy in the paper; empty unless the settings are the paper's.
    """

    settings: dict[str, Any]
    rows: list[Row]
    columns: list[Column]
    cells: dict[tuple[Row, Column], Cell]
    paper: dict[tuple[Row, Column], tuple[float, float]]

    @property
    def heading(self) -> str:
        """The shared settings in words."""
        return ", ".join(f"{name} = {number_text(value)}" for name, value in self.settings.items())


def build_sections(summaries: Iterable[Summary]) -> tuple[list[Section], list[str]]:
    """Group runs into sections and cells.

    Returns
    -------
    sections : list of Section
        One for each set of shared settings.
    notes : list of str
        One for each run that is there twice.
    """
    runs, notes = _without_repeats(summaries)
    groups: dict[tuple[tuple[str, Any], ...], list[Summary]] = {}
    for run in runs:
        groups.setdefault(tuple(_shared_settings(run.experiment).items()), []).append(run)
    return [_section(dict(key), groups[key]) for key in sorted(groups)], notes


def _without_repeats(summaries: Iterable[Summary]) -> tuple[list[Summary], list[str]]:
    first: dict[tuple[Any, ...], Summary] = {}
    notes = []
    for run in summaries:
        trained = run.experiment.model_copy(update={"delta": None, "evaluations": None})
        # Without a seed every run is a new one, and only a copy of its file agrees in all of these.
        copied = () if run.experiment.seed is not None else (run.created, run.test_loss, run.test_accuracy)
        earlier = first.setdefault((trained, *copied), run)
        if earlier is not run:
            notes.append(f"{run.path} repeats the run of {earlier.path} and is not counted again")
    return list(first.values()), notes


def _shared_settings(experiment: Experiment) -> dict[str, Any]:
    apart = (*Row._fields, *Column._fields, *POOLED)
    return {name: value for name, value in experiment.settings().items() if name not in apart}


def _section(settings: dict[str, Any], runs: Sequence[Summary]) -> Section:
    grouped: dict[tuple[Row, Column], list[Summary]] = {}
    for run in runs:
        grouped.setdefault(_place(run.experiment), []).append(run)
    return Section(
        settings=settings,
        rows=sorted({row for row, _ in grouped}, key=lambda row: (row.server != "untrusted", row)),
        columns=sorted({column for _, column in grouped}),
        cells={place: _cell(members) for place, members in grouped.items()},
        paper=_paper() if settings == _paper_settings() else {},
    )


def _place(experiment: Experiment) -> tuple[Row, Column]:
    if experiment.machines is None or experiment.rounds is None:
        raise InputError("a result without its number of machines and of rounds has no place in a table")
    return Row(experiment.server, experiment.rho), Column(experiment.machines, experiment.rounds)


def _cell(runs: Sequence[Summary]) -> Cell:
    losses, accuracies = [run.test_loss for run in runs], [run.test_accuracy for run in runs]
    return Cell(len(runs), _estimate(losses), _estimate(accuracies))


def _estimate(values: Sequence[float]) -> Estimate:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Estimate(float(np.mean(values)), deviation)


@cache
def _paper() -> dict[tuple[Row, Column], tuple[float, float]]:
    """Return loss and accuracy of the paper's two tables."""
    text = importlib.resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    return {
        (Row(line["server"], float(line["rho"])), Column(int(line["machines"]), int(line["rounds"]))): (
            float(line["loss"]),
            float(line["accuracy"]),
        )
        for line in csv.DictReader(text.splitlines())
    }


def _paper_settings() -> dict[str, Any]:
    return _shared_settings(Experiment.make({"data": "mnist", "diameter": 0.1}))


def number_text(value: object) -> str:
    """Return a setting as short as it can be without merging two that differ."""
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() and value < 1e15 else str(value)
