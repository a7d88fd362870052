"""The loop over rounds: machines, server, evaluation, and when its state is kept and what that holds."""

import enum
import math
from collections.abc import Callable
from dataclasses import replace
from time import monotonic, perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import simulated
from mu2mpi.core.parallel import Communicator, block
from mu2mpi.execution import environment
from mu2mpi.execution.evaluation import Evaluator, ExactEvaluator, assess
from mu2mpi.execution.evaluation_schedule import planned_measurements
from mu2mpi.execution.plan import Keys, Plan
from mu2mpi.execution.warmup import compile_kernels
from mu2mpi.federation.collectives import IncrementCounts, gather_counts, gather_sum, scatter_sum
from mu2mpi.federation.sample_reader import make_supply
from mu2mpi.federation.servers.server import machines_and_server
from mu2mpi.federation.timer import Stopwatch
from mu2mpi.losses.model.linear import norm
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.callbacks import Audience, Evaluation, Start
from mu2mpi.results.records import SCORES, Checkpoint, Diagnostics, History, HistoryRow
from mu2mpi.results.result import Result

LOOK_SECONDS = 0.2  # About how often the ranks ask each other whether to save or to stop
FASTER = 4  # Largest growth of the number of rounds between two looks, as rounds may become slower
# When the first checkpoint is due; the wait doubles up to `every`, so that what dies young is not lost
FIRST_SECONDS = 5.0


class Verdict(enum.Enum):
    """What all ranks do before the next round."""

    GO_ON = enum.auto()
    SAVE = enum.auto()
    STOP = enum.auto()


class Keeper:
    """Decides between rounds whether the state is to be kept; this one never wants it."""

    def look(self, t: int) -> Verdict:
        """Say, the same on every rank, what to do before round t."""
        return Verdict.GO_ON

    def keep(self, verdict: Verdict, state: Checkpoint | None) -> None:
        """Take the state, which rank 0 alone has; may raise to end the run on every rank."""


class Watch(Keeper):
    """Agreement of all ranks on when to save, about `every` so many seconds, and on whether to stop."""

    def __init__(self, communicator: Communicator, is_asked: Callable[[], bool], every: float) -> None:
        self._communicator, self._is_asked, self._every = communicator, is_asked, every
        self._wait = min(FIRST_SECONDS, every)
        self._next_round, self._stride = 0, 1
        self._looked = self._saved = monotonic()
        self._sums = np.zeros(3, dtype=np.int64)

    def look(self, t: int) -> Verdict:
        """Say what all ranks do before round t, as they agree now and then; every rank must call this."""
        if t < self._next_round:
            return Verdict.GO_ON
        now = monotonic()
        seconds_a_round = max(1e-7, (now - self._looked) / self._stride)
        stride = max(1, min(int(LOOK_SECONDS / seconds_a_round), FASTER * self._stride))
        # Rank 0 alone has a say in when to save and when to look again.
        by_clock = [now - self._saved >= self._wait, stride] if self._communicator.rank == 0 else [0, 0]
        mine = np.array([self._is_asked(), *by_clock], dtype=np.int64)
        stop, save, self._stride = self._communicator.allreduce(mine, self._sums).tolist()
        self._looked, self._next_round = now, t + self._stride
        if save:
            self._saved, self._wait = now, min(2 * self._wait, self._every)
        return Verdict.STOP if stop else Verdict.SAVE if save else Verdict.GO_ON


class Simulation:
    """A run on all ranks, ready for its next round; InputError if it cannot draw its noise or use samples."""

    def __init__(self, plan: Plan, communicator: Communicator, checkpoint: Checkpoint | None = None) -> None:
        self.plan, self.communicator, task = plan, communicator, plan.constants.task
        self.experiment, self.source, self.constants = plan.experiment, plan.source, plan.constants
        experiment, source, constants = self.experiment, self.source, self.constants
        root = checkpoint.key if checkpoint else None
        keys = self.keys = Keys.draw(experiment, communicator, root, plan.context)
        with communicator.together():
            claims: dict[str, Any] = {
                "delta": experiment.delta,
                "noise": simulated(experiment),
                "server": task.server,
                "S": constants.S,
                "noise_recomputable": experiment.seed is not None,
            }
            self.privacy = PrivacyStatement.of(constants.mechanism, **claims)
            for mechanism, epsilon in constants.promised(experiment.promised_epsilon):
                # Some accounts take a quarter of a second.
                known = self.privacy if mechanism is constants.mechanism else None
                (known or PrivacyStatement.of(mechanism, **claims)).check_sampler(epsilon)
            hosted = block(task.machines, communicator.size, communicator.rank)
            supply = make_supply(source, constants, keys.dealing, hosted, plan.partition, keys.sampling)
            of_run = machines_and_server(constants, hosted, supply, communicator, keys.noise)
            self.machines, self.server = of_run
            self.measurements = planned_measurements(plan)
            self.evaluator: Evaluator | ExactEvaluator
            if source.draws_fresh:
                self.evaluator = ExactEvaluator(source, communicator, task.problem, task.scaling)
            else:
                limits = task.G, self.measurements.share
                self.evaluator = Evaluator(source, communicator, task.problem, task.scaling, *limits)
        self.clock, self.rounds_done = Stopwatch(constants.rounds), 0
        self._rows: list[HistoryRow] = []
        self._elapsed_before, self._class_counts_before = 0.0, np.zeros((1, 1), dtype=np.int64)
        self._restore(checkpoint)
        with communicator.together():
            self.machines.read(self.rounds_done + 1)
        compile_kernels(plan, communicator)

    def run(self, audience: Audience | None = None, keeper: Keeper | None = None) -> Result:
        """Take all rounds that are left and return the result, on every rank as of `share_result`."""
        communicator, constants, iterates = self.communicator, self.constants, self.server.iterates
        source, per_machine = self.source, constants.task.per_machine
        heard = audience if audience is not None and communicator.rank == 0 else Audience()
        try:
            heard.start(Start("", self.experiment, constants, self.rounds_done, communicator.size))
            heard.check(communicator)
            self._take_rounds(heard, keeper or Keeper())
        finally:
            heard.close()
        counts = self._gather_counts()
        drawn = constants.sum_over_machines(constants.rounds, constants.sampling.drawn)
        loss = communicator.share(self._rows[-1].test_loss if self._rows else math.nan)
        theory = assess(constants, source, self.evaluator, iterates.output, loss, communicator)
        metrics, confusion = self.evaluator.metrics(iterates.output)
        result = Result(
            experiment=self.experiment,
            x=iterates.output,
            w=iterates.w,
            history=History.of(self._rows),
            privacy=self.privacy,
            theory=theory,
            metrics=metrics,
            confusion=confusion,
            test_rows=source.test_rows,
            diagnostics=Diagnostics(math.sqrt(counts.largest_squared_norm), min(1.0, counts.clipped / drawn)),
            class_counts=counts.classes if counts.classes.size else None,
            class_names=source.class_names,
            label_range=source.label_range,
            feature_names=source.feature_names,
            columns=source.columns,
            scale=source.scale,
            facts=self.plan.facts,
            unit=constants.task.problem.unit,
            accounts=per_machine.accounts(self.experiment.delta) if per_machine else None,
            timing=self.clock.by_rank(communicator),
            environment=environment.describe(communicator),
        )
        return share_result(result, communicator)

    def _take_rounds(self, audience: Audience, keeper: Keeper) -> None:
        """Take the rounds that are left; rank 0 notes what is measured on the way."""
        server, machines, clock, rounds = self.server, self.machines, self.clock, self.constants.rounds
        evaluate_at = frozenset(self.measurements.rounds.tolist())
        self.communicator.wait_for_all()
        started = perf_counter() - self._elapsed_before
        clock.restart()
        for t in range(self.rounds_done + 1, rounds + 1):
            verdict = keeper.look(t)
            if verdict is not Verdict.GO_ON:
                keeper.keep(verdict, self.state(perf_counter() - started))
            query, x = server.iterates.x, server.iterates.visit(t)
            if t not in machines.samples.rounds:
                clock.lap("compute")
                machines.read(t)
                clock.lap("data")
            server.round(t, machines, clock)
            clock.end_round(t)
            self.rounds_done = t
            audience.round(t)
            if t in evaluate_at:
                measured = self.evaluator.measure(x, whole=t == rounds)
                error = self._estimate_error(t, query)
                clock.lap("evaluation")
                if measured is not None:
                    tested = self.measurements.whole if t == rounds else self.measurements.share
                    labels, spent = self.constants.task.problem.labels, self.constants.rho_spent(t)
                    told = Evaluation(t, *measured, labels, tested, spent, perf_counter() - started)
                    self._rows.append(self._row(told, error))
                    audience.tell("on_evaluation", told)
                audience.check(self.communicator)

    def _row(self, told: Evaluation, error: float) -> HistoryRow:
        """Return a row of the history."""
        constants, sampling = self.constants, self.constants.sampling
        direction = self.server.iterates.direction
        t, message = told.round, math.nan
        samples = round(constants.sum_over_machines(t, sampling.used))
        gradients = round(constants.estimator.gradients * constants.sum_over_machines(t, sampling.drawn))
        # The guarantee covers the norm of q~_t with either server. But the messages of the last round move
        # nothing, and a trusted server does not even add noise to them.
        if t < constants.rounds and direction is not None:
            unit = constants.mechanism.resolution / (constants.total_weight * sampling.size(t))
            message = norm(direction.astype(np.float64)) * unit
        scores = {name: told.score if labels == told.labels else math.nan for labels, name in SCORES.items()}
        return HistoryRow(
            round=t,
            test_loss=told.loss,
            **scores,
            test_samples=told.test_samples,
            samples=samples,
            gradient_evaluations=gradients,
            rho_spent=told.rho_spent,
            elapsed_seconds=told.elapsed_seconds,
            message_norm=message,
            estimate_error=error,
        )

    def _estimate_error(self, t: int, query: NDArray[np.float64]) -> float:
        """Return ||d_t - f'(x_t)||^2 on rank 0, where f is known: the sum before noise is of made-up data."""
        constants = self.constants
        if not isinstance(self.evaluator, ExactEvaluator) or constants.sampling.size(t) == 0:
            return math.nan
        total = gather_sum(self.machines, self.communicator, self._transfer_key)
        _, gradient = self.evaluator.gradient(query)
        if total is None:
            return math.nan
        weight = constants.estimator.weight(t) * constants.sampling.size(t)
        d = total * (constants.mechanism.resolution / (constants.total_weight * weight))
        return float(np.sum((d - gradient) ** 2))

    def state(self, elapsed: float = 0.0) -> Checkpoint | None:
        """Gather what a checkpoint holds on rank 0, and return None elsewhere; all ranks must call this."""
        communicator, iterates = self.communicator, self.server.iterates
        total = gather_sum(self.machines, communicator, self._transfer_key)
        counts = self._gather_counts()
        builds = environment.builds(communicator)
        if total is None:
            return None
        return Checkpoint(
            experiment=self.experiment,
            rounds_done=self.rounds_done,
            key=self.keys.root if self.experiment.seed is None else None,
            iterates=iterates.arrays(),
            q=total,
            history=History.of(self._rows),
            elapsed_seconds=elapsed,
            largest_squared_norm=counts.largest_squared_norm,
            clipped=counts.clipped,
            class_counts=counts.classes,
            privacy=self.privacy,
            builds=builds,
            data=self.plan.digest,
        )

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        """Continue from the checkpoint that rank 0 has, if any."""
        iterates, machines = self.server.iterates, self.machines
        self.rounds_done = self.communicator.share(checkpoint.rounds_done if checkpoint else 0)
        if checkpoint is not None:
            for name, array in iterates.arrays().items():
                np.copyto(array, checkpoint.iterates[name])
            np.copyto(machines.q, checkpoint.q)
            machines.largest_squared_norm = checkpoint.largest_squared_norm
            machines.clipped = checkpoint.clipped
            self._rows = checkpoint.history.rows()
            self._elapsed_before = checkpoint.elapsed_seconds
            self._class_counts_before = checkpoint.class_counts
        if self.rounds_done > 0:
            is_central = self.constants.task.trust.is_central
            for array in (iterates.public() if is_central else iterates.arrays()).values():
                self.communicator.bcast(array)
            scatter_sum(machines, self.communicator, self._transfer_key)

    @property
    def _transfer_key(self) -> NDArray[np.uint32] | None:
        """Key of the masks under which a checkpoint is gathered; a central server sees sums in any case."""
        return None if self.constants.task.trust.is_central else self.keys.noise

    def _gather_counts(self) -> IncrementCounts:
        counts = gather_counts(self.machines, self.rounds_done, self.communicator, self._transfer_key)
        return counts._replace(classes=counts.classes + self._class_counts_before)


def share_result(result: Result | None, communicator: Communicator) -> Result:
    """Return the result of rank 0 on every rank, on others without what is computed from private data."""
    public = None if result is None else replace(result, diagnostics=None, class_counts=None)
    shared: Result = communicator.share(public)
    return shared if result is None or communicator.rank else result
