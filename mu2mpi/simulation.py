"""One run, from an experiment to its result: deal the samples, take T rounds, measure on the way."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi import environment
from mu2mpi.algorithm.machine import HostedSamples, Machines
from mu2mpi.algorithm.schedule import Schedule, make_schedule
from mu2mpi.algorithm.server import make_server
from mu2mpi.data import open_source
from mu2mpi.data.partition import check_rounds, machine_rows
from mu2mpi.data.source import Source
from mu2mpi.evaluation import Evaluator, affordable_evaluations, evaluation_rounds
from mu2mpi.experiment import Experiment
from mu2mpi.parallel import Communicator, block, world
from mu2mpi.privacy.accountant import PrivacyStatement, epsilon_exact, epsilon_paper, rho_spent
from mu2mpi.privacy.noise import derive_key, key_words, root_key
from mu2mpi.progress import Progress
from mu2mpi.results.schema import Diagnostics, History, Result
from mu2mpi.timing import PHASES, Stopwatch
from mu2mpi.warmup import start_compiler, warm_up

__all__ = ["Simulation", "complete", "plan", "run"]


def run(
    experiment: Experiment,
    *,
    output: Path | str | None = None,
    data_dir: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment on all ranks of the job.

    Parameters
    ----------
    experiment : Experiment
        What to run. Every rank must give the same.
    output : path, optional
        Where to write the result; nothing is written without it.
    data_dir : path, optional
        Folder that holds a folder for each data set; by default ``MU2MPI_DATA_DIR`` or the user's cache.
    overwrite : bool, optional
        Replace an output that exists.
    progress : Progress, optional
        Told on rank 0 how the run goes.

    Returns
    -------
    Result
        The same on every rank.

    Raises
    ------
    InputError
        On every rank, if the experiment, the data or the output cannot be used; nothing is written then.

    Examples
    --------
    >>> from mu2mpi import Experiment, run
    >>> result = run(Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1))
    >>> result.x.shape
    (10, 65)
    """
    communicator = world()
    # Rank 0 alone writes, so it alone imports HDF5.
    path = Path(output) if output is not None and communicator.rank == 0 else None
    with communicator.together():
        if path is not None:
            from mu2mpi.results.writer import check_output

            check_output(path, overwrite)
    source = shared_source(experiment, None if data_dir is None else Path(data_dir), communicator)
    result = Simulation(experiment, source, communicator).run(progress or Progress())
    with communicator.together():
        if path is not None:
            from mu2mpi.results.writer import write_result

            write_result(result, path, overwrite)
    return result


def shared_source(experiment: Experiment, data_dir: Path | None, communicator: Communicator) -> Source:
    """Open the experiment's data on every rank; rank 0 goes first and checks the content."""
    with communicator.together():
        if communicator.rank == 0:
            source = open_source(experiment, data_dir)
    with communicator.together():
        if communicator.rank != 0:
            source = open_source(experiment, data_dir, verify=False)
    return source


def complete(experiment: Experiment, source: Source, ranks: int) -> Experiment:
    """Return the experiment with M and T filled in."""
    machines, rounds = _size(experiment, source, ranks)
    return experiment.model_copy(update={"machines": machines, "rounds": rounds})


def _size(experiment: Experiment, source: Source, ranks: int) -> tuple[int, int]:
    """Return M and T: by default one machine a rank, and a round for each sample of a machine."""
    machines = experiment.machines or ranks
    return machines, experiment.rounds or max(1, source.training_samples // machines)


def plan(experiment: Experiment, source: Source, ranks: int) -> Schedule:
    """Return the constants of an experiment on a source of data.

    Raises
    ------
    InputError
        If there are too few samples, or no grid of messages can hold the sum of all of them.
    """
    machines, rounds = _size(experiment, source, ranks)
    check_rounds(source.training_samples, machines, rounds)
    return make_schedule(
        server=experiment.server,
        machines=machines,
        rounds=rounds,
        classes=source.classes,
        features=source.dimension + 1,
        diameter=experiment.diameter,
        rho=experiment.rho,
        clip_norm=experiment.clip_norm,
    )


@dataclass(frozen=True)
class Keys:
    """What of a run's randomness this rank holds.

    Attributes
    ----------
    dealing : bytes
        Decides which machine gets which samples; known to all ranks.
    noise : ndarray of uint32, shape (8,), or None
        Known to every rank if the machines draw the noise, and to rank 0 alone if the server does.
    """

    dealing: bytes
    noise: NDArray[np.uint32] | None

    @classmethod
    def draw(cls, experiment: Experiment, communicator: Communicator) -> "Keys":
        """Make the keys from the seed, or on rank 0 from the operating system's secure generator."""
        root = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
        dealing = communicator.share(derive_key(root, "dealing"))
        if experiment.server == "untrusted":
            return cls(dealing, key_words(communicator.share(derive_key(root, "noise"))))
        return cls(dealing, key_words(derive_key(root, "noise")) if communicator.rank == 0 else None)


class Simulation:
    """A run on the ranks of a communicator, ready for its first round.

    Parameters
    ----------
    experiment : Experiment
        What to run.
    source : Source
        Its data.
    communicator : Communicator
        The ranks to run on.

    Raises
    ------
    InputError
        On every rank, if the experiment does not fit the data.
    """

    def __init__(self, experiment: Experiment, source: Source, communicator: Communicator) -> None:
        self.communicator = communicator
        self.experiment = complete(experiment, source, communicator.size)
        keys = Keys.draw(experiment, communicator)
        is_trusted = experiment.server == "trusted"
        with communicator.together():
            self.schedule = plan(experiment, source, communicator.size)
            self.machines = self._host_machines(source, keys.dealing, None if is_trusted else keys.noise)
            self.evaluator = Evaluator(source, communicator)
        self.server = make_server(self.schedule, communicator, keys.noise if is_trusted else None)
        count = experiment.evaluations or affordable_evaluations(self.schedule, source.test_samples)
        self.evaluation_rounds = evaluation_rounds(self.schedule.rounds, count)
        self.clock = Stopwatch()
        feature_type = self.machines.samples.features.dtype
        start_compiler()
        communicator.one_rank_first(lambda: warm_up(feature_type))

    def _host_machines(self, source: Source, dealing: bytes, noise: NDArray[np.uint32] | None) -> Machines:
        """Read the samples of this rank's block of machines, in the order of their use."""
        schedule = self.schedule
        hosted = block(schedule.machines, self.communicator.size, self.communicator.rank)
        rows = machine_rows(source.training_samples, schedule.machines, schedule.rounds, dealing, hosted)
        samples = source.training(rows.ravel())
        features = samples.features.reshape(*rows.shape, source.dimension)
        mine = HostedSamples(features, samples.labels.reshape(rows.shape), source.scale)
        return Machines(schedule, hosted.start, mine, noise)

    def run(self, progress: Progress) -> Result:
        """Take all rounds and return the result, the same on every rank."""
        if self.communicator.rank != 0:
            progress = Progress()
        progress.start(self.experiment, self.schedule)
        history = self._take_rounds(progress)
        progress.finish()
        diagnostics, timing = self._diagnostics(), self._timing()
        facts = environment.describe(self.communicator)
        result = None
        if self.communicator.rank == 0:
            x, w = self.server.iterates.x, self.server.iterates.w
            result = Result(self.experiment, x, w, history, self._privacy(), diagnostics, timing, facts)
        shared: Result = self.communicator.share(result)
        return shared

    def _take_rounds(self, progress: Progress) -> History:
        """Take the rounds; the history has rows on rank 0 alone."""
        server, machines, clock = self.server, self.machines, self.clock
        evaluate_at = frozenset(self.evaluation_rounds.tolist())
        rows: list[tuple[float, ...]] = []
        self.communicator.wait_for_all()
        started = perf_counter()
        clock.restart()
        for t in range(1, self.schedule.rounds + 1):
            x = server.iterates.x
            server.round(t, machines, clock)
            if t in evaluate_at:
                measured = self.evaluator.measure(x)
                clock.lap("evaluation")
                if measured is not None:
                    rows.append(self._row(t, *measured, perf_counter() - started))
                    progress.measured(t, *measured, rows[-1][5])
            progress.advance()
        return _history(rows)

    def _row(self, t: int, loss: float, accuracy: float, elapsed: float) -> tuple[float, ...]:
        """Return a row of the history: each machine has spent t samples and 2t gradients by round t."""
        samples = self.schedule.machines * t
        spent = rho_spent(self.schedule.rho, t, self.schedule.rounds)
        return t, loss, accuracy, samples, 2 * samples, spent, elapsed

    def _privacy(self) -> PrivacyStatement:
        schedule, delta = self.schedule, self.experiment.delta
        return PrivacyStatement(
            server=schedule.server,
            rho=schedule.rho,
            delta=delta,
            epsilon=epsilon_paper(schedule.rho, delta),
            epsilon_exact=epsilon_exact(schedule.rho, delta),
            S=schedule.S,
            clip_norm=schedule.clip_norm,
            sigma=schedule.sigma,
            resolution=schedule.resolution,
            noise_recomputable=self.experiment.seed is not None,
        )

    def _diagnostics(self) -> Diagnostics:
        """Combine what the ranks saw of their increments; the answer is whole on rank 0 alone."""
        mine = (self.machines.largest_squared_norm, self.machines.clipped)
        largest, clipped = zip(*(self.communicator.gather(mine) or [mine]), strict=True)
        share = sum(clipped) / (self.schedule.machines * self.schedule.rounds)
        return Diagnostics(math.sqrt(max(largest)), share)

    def _timing(self) -> dict[str, NDArray[np.float64]]:
        seconds = self.communicator.allgather(self.clock.seconds)
        return {phase: np.array([of_rank[phase] for of_rank in seconds]) for phase in PHASES}


def _history(rows: list[tuple[float, ...]]) -> History:
    """Turn rows in the order of the history's columns into columns."""
    names = History.columns()
    counts = ("round", "samples", "gradient_evaluations")
    columns: dict[str, Any] = {
        name: np.array([row[k] for row in rows], dtype=np.int64 if name in counts else np.float64)
        for k, name in enumerate(names)
    }
    return History(**columns)
