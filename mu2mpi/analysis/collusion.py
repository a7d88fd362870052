"""Colluders of runs: their number, or their share of the machines where it goes with these."""

from collections.abc import Callable, Sequence
from fractions import Fraction

from mu2mpi.federation.servers.base import TENTH
from mu2mpi.results.reader import Summary


def colluders_of(runs: Sequence[Summary]) -> Callable[[Summary], Fraction | None]:
    """Return what tells the colluders of a run, if any: a number where each M has the same, else a share."""
    numbers: dict[int | None, set[int]] = {}
    for run in runs:
        if run.experiment.colluders is not None:
            numbers.setdefault(run.experiment.machines, set()).add(run.experiment.colluders)
    is_number = len({frozenset(each) for each in numbers.values()}) == 1

    def colluders(run: Summary) -> Fraction | None:
        number, machines = run.experiment.colluders, run.experiment.machines or 1
        if number is None or is_number:
            return None if number is None else Fraction(number)
        # The default is a tenth, rounded up.
        return Fraction(1, TENTH) if number == -(-machines // TENTH) else Fraction(number, machines)

    return colluders


def share_text(share: Fraction) -> str:
    """Return a number, or a share of M such as "3M/4"."""
    if share.denominator == 1:
        return str(share)
    return f"{share.numerator if share.numerator > 1 else ''}M/{share.denominator}"
