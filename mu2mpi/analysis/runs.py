"""Results for notebooks: one run with labelled arrays, many runs as one data frame."""

import warnings
from collections import UserList
from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.extra import needed
from mu2mpi.analysis.labels import Labels, read_labels
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.tables import Dress, Format, build_table
from mu2mpi.analysis.words import Words
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.collection import check_some, find_summaries
from mu2mpi.results.reader import Summary, read_result
from mu2mpi.results.schema import SCORES, Diagnostics, History, Result, Theory, metadata_of, score_text
from mu2mpi.suggestions import or_else

if TYPE_CHECKING:
    import pandas
    import xarray

    from mu2mpi.results.coefficients import Coefficients

WHOLE = ("seed", "machines", "rounds", "evaluations", "samples", "features", "classes", "data_seed", "ranks")
"""Columns of integers that may be unset, which pandas would otherwise turn into floats."""


def load(paths: Path | str | Iterable[Path | str], *, strict: bool = False) -> "Runs":
    """Load all results among files and folders, in the order of their names.

    Folders are searched for ``*.h5``, subfolders included. A file that cannot be used is skipped with a
    warning; with `strict` it is an InputError, as are a path that does not exist, and no result at all.

    Examples
    --------
    >>> import mu2mpi
    >>> runs = mu2mpi.load("runs/")
    >>> runs.to_dataframe().groupby(["server", "rho"]).test_loss.mean()
    >>> runs[0].history.test_loss.plot()
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    found, complaints = find_summaries([Path(path) for path in given], strict)
    for complaint in complaints:
        warnings.warn(f"skipped: {complaint}", stacklevel=2)
    check_some(found, given)
    return Runs(map(Run, found))


class Run:
    """One result file, of which arrays are read when they are asked for.

    `path` is the file, `summary` what tables need of it, and `experiment` what was run, with machines and
    rounds filled in.
    """

    def __init__(self, summary: Summary) -> None:
        self.summary, self.path, self.experiment = summary, summary.path, summary.experiment

    def __repr__(self) -> str:
        score = score_text(self.summary.score, self.summary.labels)
        return f"<Run {self.path}: test loss {self.summary.test_loss:.4f}, {score}>"

    @cached_property
    def result(self) -> Result:
        """Everything that the file holds, as plain arrays."""
        return read_result(self.path)

    @property
    def x(self) -> NDArray[np.float64]:
        """The output x_T, shape (rows, features); the last feature is the bias."""
        return self.result.x

    @property
    def privacy(self) -> PrivacyStatement:
        """What the released messages reveal at most."""
        return self.result.privacy

    @property
    def theory(self) -> Theory | None:
        """The theorem's bound and the smallest loss over K."""
        return self.result.theory

    @property
    def diagnostics(self) -> Diagnostics | None:
        """Facts about the private data that the guarantee does not cover; None of a published file."""
        return self.result.diagnostics

    def predict(self, X: Any) -> NDArray[Any]:
        """Return what the model predicts of samples, as `Result.predict` does."""
        return self.result.predict(X)

    def scores(self, X: Any) -> NDArray[np.float64]:
        """Return a score for each class, as `Result.scores` does."""
        return self.result.scores(X)

    def coefficients(self, scaled: bool = False) -> "Coefficients":
        """Return the model in the columns' own units, as `Result.coefficients` does."""
        return self.result.coefficients(scaled)

    @property
    def history(self) -> "xarray.Dataset":
        """Loss, score and cost along ``round``, with names and units."""
        history, unit = self.result.history, self.result.unit
        columns = {
            c.name: ("round", getattr(history, c.name), metadata_of(c, unit))
            for c in fields(History)
            if c.name not in SCORES.values() or c.name == SCORES[self.result.labels]
        }
        dataset: xarray.Dataset = needed("xarray").Dataset(columns).set_coords("round")
        return dataset

    @property
    def timing(self) -> "xarray.Dataset":
        """Seconds by phase along ``rank``."""
        timing = self.result.timing
        said = {phase: {"long_name": f"time spent on {phase}", "units": "s"} for phase in timing}
        columns = {phase: ("rank", seconds, said[phase]) for phase, seconds in timing.items()}
        ranks = len(next(iter(timing.values()), ()))
        dataset: xarray.Dataset = needed("xarray").Dataset(columns, coords={"rank": np.arange(ranks)})
        return dataset


class Runs(UserList[Run]):
    """Runs in an order; a slice of them, or a sum, is one of these as well."""

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    @property
    def summaries(self) -> list[Summary]:
        """What tables and figures are made of."""
        return [run.summary for run in self]

    def where(self, **settings: Any) -> "Runs":
        """Return the runs with these settings, such as ``server="trusted", rho=4``."""
        known = option_fields()
        for name in settings:
            if name not in known:
                raise InputError(f"there is no setting {name!r}{or_else(name, known, 'settings')}")
        return Runs(run for run in self if all(getattr(run.experiment, n) == settings[n] for n in settings))

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row for each run: settings, final loss, score and metrics, epsilon, theory, times, file.

        Diagnostics, which the guarantee does not cover, are left out.
        """
        pandas = needed("pandas")
        frame = pandas.DataFrame([run.summary.row for run in self])
        # The features of a file are a name.
        whole = {n: "Int64" for n in WHOLE if n in frame and not frame[n].map(type).eq(str).any()}
        frame = frame.astype({**whole, "clip_norm": float, "eta_scale": float, "epsilon": float})
        frame["created"] = pandas.to_datetime(frame["created"], utc=True)
        return frame

    def plot(
        self,
        kind: str,
        against: str | None = None,
        *,
        ax: Any = None,
        width: float | str = "page",
        title: str | None = None,
        linear: bool = False,
        labels: Any = (),
        style: Path | str | None = None,
    ) -> Any:
        """Return a figure of those that ``mu2mpi plot --help`` lists, such as ``"history"``.

        The others are as on the command line: what is across, the width in inches or ``"column"`` or
        ``"page"``, and `labels` such as ``{"rho=4": "strong"}``. With `ax`, axes of the user's or an array
        of them are drawn into, in the user's style, and returned; one is enough for the loss of a figure of
        losses and scores. Raises an InputError if there is no such figure, or the runs do not suit it.
        """
        from mu2mpi.analysis.figures import draw, page_of

        page = page_of(width, title, linear, labels, style, ax)
        figure = draw(kind, self.summaries, against, page)
        return figure if ax is None else ax

    def table(
        self,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        values: Sequence[str] = (),
        format: Format = "text",
        *,
        caption: str = "",
        label: str = "",
        siunitx: bool = False,
        best: bool = False,
        labels: Labels = (),
    ) -> str:
        """Return a table such as ``mu2mpi table`` prints: text, csv, markdown or latex.

        Rows and columns are settings, and values measurements: columns of `to_dataframe`, by default the loss
        and the accuracy, or R^2 where numbers are learned. The others are the options of ``mu2mpi table``;
        `labels` may also be a mapping, such as ``{"rho=4": "strong"}``.
        """
        table = build_table(self.summaries, Layout(tuple(rows), tuple(columns), tuple(values)))
        return table.render(format, Dress(caption, label, siunitx, best, Words(read_labels(labels))))
