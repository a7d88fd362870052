"""Results in notebooks: many runs as data frame, dataset, table or figure, and one run as it goes on."""

import io
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, overload

from mu2mpi.analysis.aggregation import Layout
from mu2mpi.analysis.datasets import arrays_of, statistics
from mu2mpi.analysis.setting_labels import Labels, Words, chosen, number_text, read_labels
from mu2mpi.analysis.tables import Dress, Format, build_table
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import needed
from mu2mpi.core.parallel import world
from mu2mpi.core.toml import read_toml
from mu2mpi.execution.signals import CHECKPOINT_SECONDS
from mu2mpi.results.callbacks import Evaluation, Observer, Start
from mu2mpi.results.reader import Summary, read_result, read_summary
from mu2mpi.results.records import SCORES
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import check_some, find_summaries

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.figure import Figure

# Seconds between drawings of a live figure, and the share of the time that they may take
MIN_SECONDS, MAX_SHARE = 1.0, 0.05


def load(paths: Path | str | Iterable[Path | str], *, strict: bool = False) -> "Runs":
    """Load all results among files and folders, in the order of their names.

    Parameters
    ----------
    paths : path, or iterable of paths
        Files, and folders, which are searched for ``*.h5``, subfolders included.
    strict : bool, optional
        Raise InputError for a file that cannot be used, instead of skipping it with a warning.

    Examples
    --------
    >>> runs = mu2mpi.load("runs/")
    >>> losses = runs.to_dataframe().groupby(["machines", "epsilon"]).test_loss.mean()
    >>> losses.shape
    (4,)
    >>> runs.select(machines=10, epsilon=2).to_xarray().final_test_loss.dims
    ('seed',)
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    found, complaints = find_summaries([Path(path) for path in given], strict)
    for complaint in complaints:
        warnings.warn(f"skipped: {complaint}", stacklevel=2)
    check_some(found, given)
    return Runs(found)


def sweep(
    settings: Mapping[str, Any] | Path | str,
    *,
    output: Path | str,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    observers: Sequence[Observer] = (),
    progress: bool = True,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> "Runs":
    """Run every combination of the lists among some settings, but for what is finished, and load the results.

    Parameters
    ----------
    settings : dict or path
        Settings by name, of which any may be a list; or the TOML file that holds them.
    output : path
        The folder of the results. The same call goes on from what is there.
    data_dir, checkpoint_every
        As for `run`.
    overwrite : bool, optional
        Run again what is finished.
    observers : sequence of Observer, optional
        Hear of each run, on rank 0 of those that take it.
    progress : bool, optional
        Say on standard error how it goes, on a terminal or in a notebook with a bar for each run.

    Returns
    -------
    Runs
        In the order of the sweep, the last list fastest; the same on every rank. Raises as `run` does, before
        the first run if an experiment does not fit its data, or a file in the folder is of another.

    Examples
    --------
    >>> settings = {"machines": [1, 10], "epsilon": [1, 2], "seed": [1, 2]}
    >>> runs = mu2mpi.sweep(settings, output="runs/", progress=False)
    >>> runs
    <8 runs>
    >>> table = runs.table(rows=["epsilon"], columns=["machines"], values=["test_loss"])
    """
    from mu2mpi.execution.sweep_runner import run_sweep

    communicator = world()
    with communicator.together():
        if isinstance(settings, Path | str):
            found = Sweep(read_toml(Path(settings)), str(settings))
        else:
            found = Sweep(settings)
    paths = run_sweep(
        found,
        found.choose(None),
        Path(output),
        data_dir=None if data_dir is None else Path(data_dir),
        overwrite=overwrite,
        checkpoint_every=checkpoint_every,
        observers=observers,
        progress=progress,
    )
    with communicator.together():
        summaries = [read_summary(path) for path in paths] if communicator.rank == 0 else []
    return Runs(communicator.share(summaries))


class Runs(Sequence[Result]):
    """Runs in an order, as `load` and `sweep` return them; a slice or a sum of them is one as well.

    What tables and figures need is in memory. A result is read in full when it is asked for, as ``runs[0]``.

    Examples
    --------
    >>> runs = mu2mpi.load("runs/")
    >>> runs[:2] + runs[4:]
    <6 runs>
    >>> runs[0].experiment.machines
    10
    """

    def __init__(self, summaries: Iterable[Summary]) -> None:
        self.summaries = list(summaries)

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    def __len__(self) -> int:
        return len(self.summaries)

    @overload
    def __getitem__(self, index: int) -> Result: ...

    @overload
    def __getitem__(self, index: slice) -> "Runs": ...

    def __getitem__(self, index: int | slice) -> "Result | Runs":
        if isinstance(index, slice):
            return Runs(self.summaries[index])
        return read_result(self.summaries[index].path)

    def __add__(self, others: "Runs") -> "Runs":
        return Runs([*self.summaries, *others.summaries])

    def select(self, **settings: Any) -> "Runs":
        """Return the runs with these settings, such as ``epsilon=2, server="trusted"``; None is unset.

        Raises an InputError if there is no such setting, or no such run.
        """
        conditions = [f"{name}={number_text(value)}" for name, value in settings.items()]
        return Runs(chosen(self.summaries, conditions))

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return one row for each run: all but the diagnostics, which the guarantee does not cover."""
        pandas = needed("pandas")
        columns = [*option_fields(), "test_loss", *SCORES.values(), "created", "file"]
        rows = [run.row for run in self.summaries]
        frame = pandas.DataFrame(rows, columns=None if rows else columns)
        # Integers that may be unset, which pandas would turn into floats; the features of a file are a name.
        sizes = ("machines", "rounds", "evaluations", "samples", "features", "classes", "ranks")
        there = [n for n in ("seed", "data_seed", *sizes) if n in frame]
        whole = {n: "Int64" for n in there if not frame[n].map(type).eq(str).any()}
        frame = frame.astype({**whole, "clip_norm": float, "eta_scale": float, "epsilon": float})
        frame["created"] = pandas.to_datetime(frame["created"], utc=True)
        return frame

    def to_xarray(self, history: bool = True) -> "xarray.Dataset | xarray.DataTree":
        """Return one labelled dataset over the settings that vary, the seed and the round.

        What follows from the settings that vary, as rounds may from machines, is a coordinate along them, and
        what all share is an attribute. Columns are those of the history, along ``round``, unless it is left
        out, and of `to_dataframe`, as ``final_test_loss`` where the history has the name.

        Where data sets differ, it is a DataTree with a dataset for each. Repeats of a run count once.
        """
        return arrays_of(self.summaries, history)

    def over_seeds(
        self, confidence: float = 0.95, history: bool = True
    ) -> "xarray.Dataset | xarray.DataTree":
        """Return what `to_xarray` does with the statistics of each number over seeds, along ``statistic``.

        They are the ``mean``, the sample standard ``deviation``, the ends ``low`` and ``high`` of an interval
        that holds the expectation with this confidence, by Student's t, and how many ``seeds`` there are.
        """
        return arrays_of(self.summaries, history, lambda dataset: statistics(dataset, confidence))

    def plot(self, kind: str, against: str | None = None, *, ax: Any = None, **look: Any) -> Any:
        """Return a figure of those that ``mu2mpi plot --help`` lists, such as ``"history"``.

        Its look is that of the options of ``mu2mpi plot``: `width`, `title`, `linear`, `labels`, which may be
        a mapping as ``{"rho=4": "strong"}``, and `style`. With `ax`, one or many, these are drawn into.
        """
        from mu2mpi.analysis.figures import draw, page_of

        figure = draw(kind, self.summaries, against, page_of(axes=ax, **look))
        return figure if ax is None else ax

    def table(
        self,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        values: Sequence[str] = (),
        format: Format = "text",
        *,
        labels: Labels = (),
        **dress: Any,
    ) -> str:
        """Return a table such as ``mu2mpi table`` prints: text, csv, markdown or latex.

        Rows and columns are settings, and values columns of `to_dataframe`; the others are the options of
        ``mu2mpi table``: `labels`, which may be a mapping such as ``{"rho=4": "strong"}``, `caption`,
        `label`, `siunitx` and `best`.
        """
        table = build_table(self.summaries, Layout(tuple(rows), tuple(columns), tuple(values)))
        return table.render(format, Dress(words=Words(read_labels(labels)), **dress))


class LiveFigure(Observer):
    """Draws loss and score against rounds as they are measured, below the cell of a notebook.

    Each run gets a figure of its own. The last one is `figure`, also where there is no notebook to show it.

    Examples
    --------
    >>> live = mu2mpi.LiveFigure()
    >>> result = mu2mpi.run({"machines": 10, "server": "trusted"}, observers=[live])
    >>> len(live.figure.axes)
    2
    """

    figure: "Figure"

    def __init__(self) -> None:
        needed("matplotlib")

    def on_start(self, start: Start) -> None:
        """Begin a figure."""
        from matplotlib.figure import Figure

        self._done: list[Evaluation] = []
        self._handle: Any = None
        self._next = monotonic()
        self.figure = Figure(figsize=(7, 2.8), layout="constrained")
        self.figure.suptitle(f"{start.name}: {start.experiment.data}, {start.experiment.server} server")
        for panel in self.figure.subplots(1, 2):
            panel.set(xscale="log", xlim=(0.9, 1.1 * start.constants.rounds), xlabel="round t")
            panel.plot([], [], marker=".")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Draw the figure again, unless that is too soon."""
        self._done.append(evaluation)
        if (began := monotonic()) >= self._next:
            self._draw()
            self._next = began + max(MIN_SECONDS, (monotonic() - began) / MAX_SHARE)

    def on_close(self) -> None:
        """Draw all points."""
        if self._done:
            self._draw()

    def _draw(self) -> None:
        done = self._done
        score, factor = ("accuracy (%)", 100.0) if done[-1].labels == "classes" else ("R²", 1.0)
        values = {"loss": [one.loss for one in done], score: [factor * one.score for one in done]}
        for panel, (label, measured) in zip(self.figure.axes, values.items(), strict=True):
            panel.lines[0].set_data([one.round for one in done], measured)
            panel.set_ylabel(f"test {label}")
            panel.relim()
            panel.autoscale_view(scalex=False)
        if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
            return
        shown, picture = needed("IPython.display"), io.BytesIO()
        self.figure.savefig(picture, format="png", dpi=150)
        image = shown.Image(picture.getvalue(), width=672)
        if self._handle is None:
            self._handle = shown.display(image, display_id=True)
        else:
            self._handle.update(image)
