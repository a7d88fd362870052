"""Python interface to results: data frames, tables and figures of runs."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from mu2mpi.analysis.aggregation import TableLayout
from mu2mpi.analysis.setting_labels import Labels, format_value, select_runs
from mu2mpi.analysis.tables import TableFormat, TableStyle, build_table
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.options import CHECKPOINT_INTERVAL_SECONDS
from mu2mpi.core.parallel import CallerComm, duplicate_or_world
from mu2mpi.core.toml import read_toml
from mu2mpi.data.memory import MemoryData
from mu2mpi.results.callbacks import Callback, check_callbacks
from mu2mpi.results.reader import RunSummary, read_result, read_summary
from mu2mpi.results.records import SCORE_COLUMNS, History
from mu2mpi.results.result import Result
from mu2mpi.results.result_files import load_summaries, require_results

if TYPE_CHECKING:
    import pandas


def load(paths: Path | str | Iterable[Path | str], *, strict: bool = False) -> "Runs":
    """Load runs from result files and folders, in the order of file names.

    Parameters
    ----------
    paths : path, or iterable of paths
        Result files, and folders that are searched for ``*.h5``, including subfolders.
    strict : bool, optional
        Raise InputError for an unusable file, instead of skipping it with a warning.

    Examples
    --------
    >>> runs = mu2mpi.load("runs/")
    >>> losses = runs.to_dataframe().groupby(["machines", "epsilon"]).test_loss.mean()
    >>> losses.shape
    (4,)
    """
    searched = [paths] if isinstance(paths, Path | str) else list(paths)
    if "" in searched:
        raise InputError("a path is empty. Use . for the working directory.")
    summaries, problems = load_summaries([Path(path) for path in searched], strict)
    for problem in problems:
        warnings.warn(f"skipped: {problem}", stacklevel=2)
    require_results(summaries, searched)
    return Runs(summaries)


def sweep(
    settings: Mapping[str, Any] | Path | str,
    *,
    data: Any = None,
    target: str | None = None,
    schema: Mapping[str, Any] | Path | str | None = None,
    test: Any = None,
    output: Path | str,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    checkpoint_every: float = CHECKPOINT_INTERVAL_SECONDS,
    comm: CallerComm = None,
) -> "Runs":
    """Run all combinations of settings that are not finished yet, and load the results.

    Parameters
    ----------
    settings : dict or path
        Settings by name, any of which may be a list; or a TOML file with them.
    output : path
        Folder of the results. The same call resumes an interrupted sweep.
    data, target, schema, test, data_dir, checkpoint_every, comm
        As for `run`. Finished runs are recognised by settings: each data set in memory needs its own folder.
    overwrite : bool, optional
        Repeat finished runs.
    callbacks : sequence of Callback, optional
        Called during each run, on rank 0 of its ranks.
    progress : bool, optional
        Print progress on standard error, as a bar per run on a terminal or in a notebook.

    Returns
    -------
    Runs
        In the order of the sweep (last list fastest), equal on all ranks. A warning names runs that are
        refused or left out. Raises InputError as `run` does, before the first run, if all are refused or the
        files in `output` are of other experiments.

    Examples
    --------
    >>> settings = {"machines": [1, 10], "epsilon": [1, 2], "seed": [1, 2]}
    >>> runs = mu2mpi.sweep(settings, output="runs/", progress=False)
    >>> runs
    <8 runs>
    >>> table = runs.table(rows=["epsilon"], columns=["machines"], values=["test_loss"])
    """
    from mu2mpi.execution.sweep_runner import run_sweep

    with duplicate_or_world(comm) as communicator:
        memory = MemoryData.share(communicator, data, target, schema, test)
        with communicator.collective_errors():
            check_callbacks(callbacks)
            if isinstance(settings, Path | str):
                plan = Sweep(read_toml(Path(settings)), str(settings), memory.settings)
            else:
                plan = Sweep(settings, overrides=memory.settings)
        paths, refusals = run_sweep(
            plan,
            plan.select_runs(None),
            Path(output),
            communicator,
            data_dir=memory.location(data_dir),
            overwrite=overwrite,
            checkpoint_every=checkpoint_every,
            callbacks=callbacks,
            progress=progress,
        )
        if communicator.rank == 0 and (lines := [*plan.exclusions, *refusals]):
            warnings.warn("\n".join(lines), stacklevel=2)
        with communicator.collective_errors():
            summaries = [read_summary(path) for path in paths] if communicator.rank == 0 else []
        return Runs(communicator.bcast_object(summaries))


class Runs(Sequence[Result]):
    """Sequence of runs, as returned by `load` and `sweep`; slices and sums are `Runs`, too.

    Summaries for tables and figures are in memory. ``runs[0]`` reads the whole result from its file.

    Examples
    --------
    >>> runs = mu2mpi.load("runs/")
    >>> runs[:2] + runs[4:]
    <6 runs>
    >>> runs[0].experiment.machines
    10
    """

    def __init__(self, summaries: Iterable[RunSummary]) -> None:
        self.summaries = list(summaries)

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    def _repr_markdown_(self) -> str:
        tables = [self.table(format="markdown")] if self.summaries else []
        return "\n\n".join([f"{len(self)} runs", *tables])

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
        """Select runs by values of settings (None: unset; a list: any of them); InputError if none."""
        runs = self.summaries
        for name, value in settings.items():
            values = value if value and isinstance(value, list | tuple) else [value]
            kept = {id(run) for v in values for run in select_runs(runs, [f"{name}={format_value(v)}"])}
            runs = [run for run in runs if id(run) in kept]
        return Runs(runs)

    def to_dataframe(self, history: bool = False) -> "pandas.DataFrame":
        """Return one data frame row per run: settings, measurements and file, without diagnostics.

        With `history`, return one row per evaluation of a run, whose columns ``round``, ``samples_used``,
        ``test_loss`` and others of the history are those of that evaluation.
        """
        pandas = import_extra("pandas")
        columns = [*option_fields(), "test_loss", *SCORE_COLUMNS.values(), "created", "file"]
        rows = [run.table_row for run in self.summaries]
        frame = pandas.DataFrame(rows, columns=None if rows else columns)
        # Nullable integers; but `features` may be a name.
        sizes = ("machines", "rounds", "evaluations", "samples", "features", "classes", "ranks")
        present = [n for n in ("seed", "data_seed", *sizes) if n in frame]
        integers = {n: "Int64" for n in present if not frame[n].map(type).eq(str).any()}
        frame = frame.astype({**integers, "clip_norm": float, "eta_scale": float, "epsilon": float})
        frame["created"] = pandas.to_datetime(frame["created"], utc=True)
        if history:
            histories = [run.history for run in self.summaries]
            names = History.column_names()
            values = {n: [v for h in histories for v in getattr(h, n).tolist()] for n in names}
            # `samples` is a setting of the data.
            values["samples_used"] = values.pop("samples")
            rows_per_run = frame.index.repeat([len(h) for h in histories])
            frame = frame.loc[rows_per_run].assign(**values).reset_index(drop=True)
        return frame

    def plot(self, kind: str, x_axis: str | None = None, *, ax: Any = None, **options: Any) -> Any:
        """Return a figure by its name in ``mu2mpi plot --help``, such as ``"history"``.

        `x_axis` and `options` are those of ``mu2mpi plot``: `values`, `width`, `title`, `linear` and `style`;
        and `labels`, such as ``{"rho=4": "strong"}``. With `ax`, draw into these axes and return them.
        """
        from mu2mpi.analysis.figures import FigureOptions, draw_figure

        figure = draw_figure(kind, self.summaries, x_axis, FigureOptions(user_axes=ax, **options))
        return figure if ax is None else ax

    def table(
        self,
        rows: Sequence[str] = (),
        columns: Sequence[str] = (),
        values: Sequence[str] = (),
        format: TableFormat = "text",
        *,
        labels: Mapping[str, str] | None = None,
        **style: Any,
    ) -> str:
        """Return the table of ``mu2mpi table`` in the format text, csv, markdown or latex.

        Rows and columns are settings, values columns of `to_dataframe`. `labels` replace those of settings
        and values, such as ``{"rho=4": "strong"}``; `style` options are `caption`, `label` and `best`.
        """
        table = build_table(self.summaries, TableLayout(tuple(rows), tuple(columns), tuple(values)))
        return table.render(format, TableStyle(labels=Labels(labels or {}), **style))
