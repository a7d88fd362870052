"""Which figures there are; imports nothing, since the command line's help names them."""

from pathlib import Path

from mu2mpi.errors import InputError

__all__ = ["AGAINST", "KINDS", "SUFFIXES", "check_kind", "suffix_of"]

KINDS = {
    "history": "loss and accuracy along a run, with a band over seeds",
    "tradeoff": "loss and accuracy against privacy, a line for each M and server",
    "weights": "the rows of x_T as images",
    "errors": "error of the estimates d_t of the gradient along a run, before noise",
    "noise": "norms of signal and noise in what is released",
    "timing": "where the time goes, by phase and rank",
    "scaling": "time per round against the number of ranks",
    "partition": "which share of each class each machine got",
    "comparison": "methods at equal privacy: loss and accuracy against gradients computed, and these against "
    "the number of samples, with fitted exponents",
    "rates": "excess loss against n, M, d and rho, with exponents beside the theorem's",
}
"""The figures and what they show."""

AGAINST = {"history": ("round", "samples", "gradient_evaluations"), "tradeoff": ("rho", "epsilon")}
"""What may be on the horizontal axis, the default first."""

SUFFIXES = ("png", "svg", "pdf")


def check_kind(kind: str, against: str | None) -> None:
    """Find out whether there is such a figure, with such a horizontal axis.

    Raises
    ------
    InputError
        If not.
    """
    if kind not in KINDS:
        raise InputError(f"there is no figure {kind!r}; the figures are {', '.join(KINDS)}")
    axes = AGAINST.get(kind, ())
    if against is not None and against not in axes:
        choice = f"is drawn against {' or '.join(axes)}" if axes else "leaves no choice of what is across"
        raise InputError(f"the figure {kind} {choice}, not {against}")


def suffix_of(path: Path) -> str:
    """Return the format that the suffix of a file asks for.

    Raises
    ------
    InputError
        If a figure cannot have it.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in SUFFIXES:
        raise InputError(
            f"a figure is written as {', '.join(SUFFIXES)}, by its suffix; {path} has none of them"
        )
    return suffix
