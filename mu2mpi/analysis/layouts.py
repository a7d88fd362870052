"""What stands where in a table: settings down and across, and which measurements are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mu2mpi.analysis.settings import privacy_of, settings_of
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import SCORES
from mu2mpi.suggestions import or_else

SHARE = "colluders_share"
"""Colluders as a share of the machines, exactly: what is the same for each number of machines."""

PLACES = (*option_fields(), "ranks", SHARE)
"""What may be a row or a column: the settings, and the number of ranks, which changes times alone."""


@dataclass(frozen=True)
class Layout:
    """Which settings stand where, and which measurements of `Summary.row` are shown; empty: what suits runs.

    Raises an InputError if a setting does not exist or is named twice.
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [*self.rows, *self.columns]
        for name in named:
            if name not in PLACES:
                raise InputError(f"there is no setting {name!r}{or_else(name, PLACES, 'settings')}")
            if named.count(name) > 1:
                raise InputError(f"{name} cannot stand in two places of a table")

    @property
    def places(self) -> tuple[str, ...]:
        """All settings that are rows or columns."""
        return (*self.rows, *self.columns)

    def completed(self, runs: Sequence[Summary], tell: Sequence[str]) -> "Layout":
        """Return the layout with what it lacks for these runs, which differ in `tell`; T stands beside M."""
        columns = self.columns or usual_columns(runs, tell, self.rows)
        rows = self.rows or tuple(name for name in usual_rows(runs, tell) if name not in columns)
        layout = replace(self, rows=rows, columns=columns, values=self.values or usual_values(runs))
        pairs = {(run.experiment.machines, run.experiment.rounds) for run in runs}
        is_settled = len({machines for machines, _ in pairs}) == len(pairs)
        if "rounds" in layout.places or not (is_settled or "rounds" in tell):
            return layout
        rows, columns = (
            tuple(n for name in part for n in (name, *["rounds"] * (name == "machines")))
            for part in (layout.rows, layout.columns)
        )
        return replace(layout, rows=rows, columns=columns)


def usual_rows(runs: Sequence[Summary], tell: Sequence[str]) -> tuple[str, ...]:
    """Return what stands down in a table: the paper's server and rho, or what these runs have instead."""
    methods = {settings_of(run)["method"] for run in runs}
    sizes = {run.experiment.machines for run in runs}
    colluders = (SHARE if len(sizes) > 1 else "colluders",) * ("colluders" in tell)
    return (*["method"] * (len(methods) > 1), "server", *colluders, *privacy_of(runs))


def usual_columns(runs: Sequence[Summary], tell: Sequence[str], rows: Sequence[str]) -> tuple[str, ...]:
    """Return what stands across: the paper's numbers of machines, or what differs where these do not."""
    sizes, privacy = ["machines"], privacy_of(runs)
    if all(settings_of(run)["samples"] is not None for run in runs):
        sizes.append("samples")
    if len(privacy) == 1 and {"method", "server", *rows} & {*tell}:
        # Something else differs that can stand down.
        sizes += privacy
    usual = [name for name in ("machines", *sizes, *privacy, "server") if name not in rows]
    return (next((name for name in usual if name in tell and name in sizes), usual[0]),)


def usual_values(runs: Iterable[Summary]) -> tuple[str, ...]:
    """Return the loss and the score of runs: accuracy, R^2, or both where they learn classes and numbers."""
    learned = {run.labels for run in runs}
    return ("test_loss", *(score for labels, score in SCORES.items() if labels in learned))


def check_values(runs: Iterable[Summary], values: Iterable[str]) -> None:
    """Raise an InputError if no run has one of these measurements."""
    numbers = (name for run in runs for name, value in run.row.items() if isinstance(value, int | float))
    known = [name for name in dict.fromkeys(numbers) if name not in PLACES]
    for name in values:
        if name not in known:
            raise InputError(f"no run has a value {name!r}{or_else(name, known, 'values')}")
