"""Which figures there are, each drawn by the module of its name; imports little, as the help names them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mu2mpi.config.together import machines_differ
from mu2mpi.errors import InputError
from mu2mpi.suggestions import or_else

LOSSES, TIMES = ("test_loss", "test loss"), ("elapsed_seconds", "times")
"""What a published file may be without, by its name in a summary and in words."""

FORMATS: dict[str, dict[str, None]] = {
    "png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}, "pgf": {},
}  # fmt: skip
"""Of files, by their suffix, with what keeps the date out of each."""


@dataclass(frozen=True)
class Kind:
    """What there is to know of a figure beside how it is drawn."""

    meaning: str
    against: tuple[str, ...] = ()
    """What may be on the horizontal axis, the default first; empty where there is no such choice."""
    takes_settings: bool = False
    """Whether any setting may be there; by itself, privacy is."""
    needs: tuple[str, str] | None = None
    """What it cannot do without: `LOSSES` or `TIMES`."""
    scored: bool = False
    """Whether panels of losses, the first of two rows or else of all panels, will do without the others."""
    reported: Callable[[Sequence[Any]], bool] = lambda runs: True
    """Whether it is on a report of these summaries, which is made to be shown around."""


def _differ(*names: str) -> Callable[[Sequence[Any]], bool]:
    """Return what finds out whether runs differ in one of these settings."""
    return lambda runs: len({tuple(getattr(run.experiment, name) for name in names) for run in runs}) > 1


FIGURES = {
    "history": Kind(
        "loss and accuracy (or R^2) along a run, with a band over seeds",
        against=("round", "samples", "gradient_evaluations"),
        scored=True,
        needs=LOSSES,
    ),
    "tradeoff": Kind(
        "loss and accuracy (or R^2) against privacy or any setting, a line for each of the others",
        takes_settings=True,
        scored=True,
        needs=LOSSES,
        reported=_differ("rho"),
    ),
    "weights": Kind("the rows of x_T as images"),
    "coefficients": Kind(
        "the coefficients of features in [-1, 1], with the standard error that the noise alone would give",
        reported=lambda runs: any(run.experiment.schema for run in runs),
    ),
    "errors": Kind(
        "error of the estimates d_t of the gradient along a run, before noise",
        reported=lambda runs: any(run.experiment.data == "population" for run in runs),
    ),
    "noise": Kind("norms of signal and noise in what is released"),
    "machines": Kind(
        "samples, rounds and privacy of each machine, where machines differ or are away",
        reported=lambda runs: any(machines_differ(run.experiment) for run in runs),
    ),
    "timing": Kind("where the time goes, by phase and rank", needs=TIMES),
    "scaling": Kind("time per round, efficiency and phases against the number of ranks", needs=TIMES),
    # A diagnostic, which the guarantee does not cover.
    "partition": Kind("which share of each class each machine got", reported=lambda runs: False),
    "comparison": Kind(
        "methods at equal privacy: loss and score against gradients computed, and these against the "
        "number of samples, with fitted exponents",
        scored=True,
        needs=LOSSES,
        reported=_differ("method", "estimator", "query"),
    ),
    "rates": Kind("excess loss against n, M, d and rho, with exponents beside the theorem's"),
    "participation": Kind(
        "loss against the share of machines that takes part, for each method and its noise",
        needs=LOSSES,
        reported=_differ("participation"),
    ),
    "trust": Kind(
        "loss against M, for each trust mode and share of machines that may work together with the server",
        needs=LOSSES,
        reported=lambda runs: (
            _differ("machines")(runs) and any(run.experiment.colluders is not None for run in runs)
        ),
    ),
}
"""By name, in the order in which the help and a report have them."""

KINDS = {name: kind.meaning for name, kind in FIGURES.items()}
AXES = {name: kind.against for name, kind in FIGURES.items() if kind.against}


def check_kind(kind: str, against: str | None) -> None:
    """Raise an InputError unless there is such a figure, with such a horizontal axis."""
    if kind not in FIGURES:
        raise InputError(f"there is no figure {kind!r}{or_else(kind, FIGURES, 'figures')}")
    facts = FIGURES[kind]
    axes = facts.against
    if against is None or against in axes:
        return
    if not facts.takes_settings:
        choice = f"is drawn against {' or '.join(axes)}" if axes else "leaves no choice of what is across"
        raise InputError(f"the figure {kind} {choice}, not {against}")
    from mu2mpi.config.options import option_fields

    if against not in option_fields():
        raise InputError(
            f"the figure {kind} is drawn against a setting, and {against} is none"
            f"{or_else(against, option_fields(), 'settings')}"
        )


def suffix_of(path: Path) -> str:
    """Return the format that the suffix of a file asks for, or raise an InputError."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"a figure is written as {', '.join(FORMATS)}, by its suffix; {path} has none of them"
        )
    return suffix
