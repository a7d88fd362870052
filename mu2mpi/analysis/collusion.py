"""How many machines may work together with the server, as a share of them where it goes with their number."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from mu2mpi.federation.servers.base import TENTH
from mu2mpi.results.reader import Summary


def colluders_of(runs: Sequence[Summary]) -> Callable[[Summary], Fraction | None]:
    """Return what tells the colluders of a run: a number where each M has the same ones, and else a share.

    It is None where nobody has to be trusted, or the server alone.
    """
    numbers: dict[int | None, set[int]] = {}
    for run in runs:
        if run.experiment.colluders is not None:
            numbers.setdefault(run.experiment.machines, set()).add(run.experiment.colluders)
    is_number = len({frozenset(each) for each in numbers.values()}) == 1

    def colluders(run: Summary) -> Fraction | None:
        number = run.experiment.colluders
        return None if number is None else Fraction(number) if is_number else _share(run)

    return colluders


def _share(run: Summary) -> Fraction:
    """Return which share of the machines may work together with the server; the default is rounded up."""
    number, machines = run.experiment.colluders or 0, run.experiment.machines or 1
    return Fraction(1, TENTH) if number == -(-machines // TENTH) else Fraction(number, machines)


def share_text(share: Fraction) -> str:
    """Return a number, or a share of M such as "3M/4"."""
    if share.denominator == 1:
        return str(share)
    return f"{share.numerator if share.numerator > 1 else ''}M/{share.denominator}"
