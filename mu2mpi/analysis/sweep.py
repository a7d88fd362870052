"""Run a sweep and load its results, for notebooks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mu2mpi.analysis.runs import Runs
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.parallel import world
from mu2mpi.core.toml import read_toml
from mu2mpi.execution.signals import CHECKPOINT_SECONDS
from mu2mpi.execution.sweep import run_sweep
from mu2mpi.results.observer import Observer
from mu2mpi.results.reader import read_summary


def sweep(
    settings: Mapping[str, Any] | Path | str,
    *,
    output: Path | str,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    observers: Sequence[Observer] = (),
    progress: bool = True,
    checkpoint_every: float = CHECKPOINT_SECONDS,
) -> Runs:
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
        Hear of each run, one after the other: on rank 0 of those that take it, so that where runs go side by
        side, each lane has its own copies.
    progress : bool, optional
        Say on standard error how it goes, on a terminal or in a notebook with a bar for each run.

    Returns
    -------
    Runs
        In the order of the sweep: the last list varies fastest. The same on every rank.

    Raises
    ------
    InputError, OSError, Interrupted
        As `run` does; before anything is run, if an experiment does not fit its data, or a file in the folder
        holds another experiment.

    Examples
    --------
    >>> settings = {"machines": [1, 10], "epsilon": [1, 2], "seed": [1, 2]}
    >>> runs = mu2mpi.sweep(settings, output="runs/", progress=False)
    >>> runs
    <8 runs>
    >>> table = runs.table(rows=["epsilon"], columns=["machines"], values=["test_loss"])
    """
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
