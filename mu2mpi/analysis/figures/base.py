"""Base class of figures."""

from collections.abc import Sequence

from mu2mpi.analysis.figures._page import Page
from mu2mpi.analysis.figures._sheet import Sheet
from mu2mpi.results.reader import Summary


class Figure:
    """Figure of result files; the first line of a subclass's docstring is its summary.

    A subclass of a user's is registered with `mu2mpi.register`, in a file that ``--import`` names.

    Attributes
    ----------
    name : str
        What users call it: ``mu2mpi plot NAME``.
    needs : str
        A column of a run's row without which it cannot be drawn; empty for none.
    axes : tuple of str
        Choices for its horizontal axis; empty if there is no choice.
    repeats_differ_in : tuple of str
        Columns that tell runs of one experiment apart; if empty, repeated runs count once.
    """

    kind = "figures"
    name: str
    needs = ""
    axes: tuple[str, ...] = ()
    repeats_differ_in: tuple[str, ...] = ()

    def is_reported(self, runs: Sequence[Summary]) -> bool:
        """Return whether a report of these runs has this figure."""
        return True

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Return the figure of at least one run; `against` is one of `axes`, or None for the default.

        Raises InputError if the runs do not suit it.
        """
        raise NotImplementedError
