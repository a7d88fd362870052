"""The main loop of a run: rounds, evaluations and checkpoints."""

import enum
import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from uuid import uuid4

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.parallel import Communicator, block_range
from mu2mpi.core.rank_report import write_progress
from mu2mpi.execution import environment
from mu2mpi.execution.evaluation import Evaluator, ExactEvaluator, compare_with_theory
from mu2mpi.execution.evaluation_schedule import plan_evaluations, run_cost_ns
from mu2mpi.execution.plan import Plan, RunKeys
from mu2mpi.execution.warmup import compile_kernels
from mu2mpi.federation.collectives import add_masks, gather_increment_stats, reduce_masked
from mu2mpi.federation.round_loop import make_round_loop
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.federation.timer import Timer
from mu2mpi.losses.model.linear import norm
from mu2mpi.results.callbacks import CallbackList, Evaluation, RunStart
from mu2mpi.results.records import SCORE_COLUMNS, Checkpoint, Diagnostics, History, HistoryRow
from mu2mpi.results.result import Result

DECISION_INTERVAL_SECONDS = 0.2  # Approximate interval at which ranks agree on whether to save or to stop
MAX_STRIDE_GROWTH = 4  # Largest growth of the rounds between decisions, as rounds may slow down
REPORT_INTERVAL_SECONDS = 2.0  # Least interval at which rank 0 reports its progress to `mu2mpi launch`
MAX_CALL_NS = 20e6  # Estimated time of the rounds of one call, in which Python handles no signal
FIRST_CHECKPOINT_SECONDS = 5.0  # Wait before the first checkpoint; doubles up to the regular interval


class CheckpointAction(enum.Enum):
    """Action of all ranks before the next round: continue, save a checkpoint, or save one and stop."""

    CONTINUE = enum.auto()
    SAVE = enum.auto()
    SAVE_AND_STOP = enum.auto()


@dataclass
class CheckpointPolicy:
    """Base class of checkpoint rules: whether to save or stop between rounds; by default never."""

    decision_round: int = 0  # `decide` need not be called before it

    def decide(self, t: int) -> CheckpointAction:
        """Return the action before round t, equal on every rank; collective."""
        return CheckpointAction.CONTINUE

    def save(self, action: CheckpointAction, checkpoint: Checkpoint | None) -> None:
        """Save a checkpoint (None except on rank 0); may raise on every rank to end the run."""


class PeriodicCheckpoints(CheckpointPolicy):
    """Checkpoint every `interval` seconds, more often at first, and stop when any rank requests it."""

    def __init__(
        self, communicator: Communicator, stop_requested: Callable[[], bool], interval: float
    ) -> None:
        self._communicator, self._stop_requested = communicator, stop_requested
        is_watched = communicator.rank == 0 and not communicator.is_external  # by `mu2mpi launch`
        self.write_progress: Callable[..., None] = write_progress if is_watched else lambda *_: None
        self._save_interval, self._max_save_interval = min(FIRST_CHECKPOINT_SECONDS, interval), interval
        self.decision_round, self._decision_stride = 0, 1  # next round with a decision, rounds between two
        self._last_decision_time = self._last_save_time = self._last_report_time = monotonic()
        self.start_round = 0  # first round of this start
        self.round_seconds = 0.0  # recent duration of a round
        self._reduce_buffer = np.zeros(3, dtype=np.int64)

    def decide(self, t: int) -> CheckpointAction:
        """Return the action before round t; ranks decide every `DECISION_INTERVAL_SECONDS`. Collective."""
        if t < self.decision_round:
            return CheckpointAction.CONTINUE
        now = monotonic()
        self.start_round = self.start_round or t
        self.round_seconds = max(1e-7, (now - self._last_decision_time) / self._decision_stride)
        if now - self._last_report_time >= REPORT_INTERVAL_SECONDS:
            self._last_report_time = now
            self.write_progress(t - 1, self.round_seconds)
        max_stride = MAX_STRIDE_GROWTH * self._decision_stride
        stride = max(1, min(int(DECISION_INTERVAL_SECONDS / self.round_seconds), max_stride))
        # Rank 0 alone chooses when to save and when to decide again, by its clock.
        is_due = now - self._last_save_time >= self._save_interval
        by_clock = [is_due, stride] if self._communicator.rank == 0 else [0, 0]
        votes = np.array([self._stop_requested(), *by_clock], dtype=np.int64)
        stop, save, self._decision_stride = self._communicator.allreduce(votes, self._reduce_buffer).tolist()
        self._last_decision_time, self.decision_round = now, t + self._decision_stride
        if save:
            self._last_save_time = now
            self._save_interval = min(2 * self._save_interval, self._max_save_interval)
        if stop:
            return CheckpointAction.SAVE_AND_STOP
        return CheckpointAction.SAVE if save else CheckpointAction.CONTINUE


class Simulation:
    """Run of a plan on all ranks; InputError if noise cannot be sampled accurately or samples are invalid."""

    def __init__(self, plan: Plan, communicator: Communicator, checkpoint: Checkpoint | None = None) -> None:
        self._created, self._core_seconds_before = perf_counter(), 0.0
        self.plan, self.communicator, problem = plan, communicator, plan.constants.problem
        self.experiment, self.source, self.constants = plan.experiment, plan.source, plan.constants
        experiment, source, constants = self.experiment, self.source, self.constants
        # 1. Derive the keys of partition, batches and noise.
        root = checkpoint.root_key if checkpoint else None
        self._run_id = checkpoint.run_id if checkpoint else str(uuid4())  # rank 0 has that of the run
        # Described at the start: the files of a clone may change during a long run.
        self._environment = environment.describe_environment(communicator)
        keys = self.run_keys = RunKeys.create(experiment, communicator, root, plan.noise_key_context)
        # Of gathered sums; a central server may see sums without masks, and a single rank gathers none.
        needs_masks = communicator.size > 1 and not problem.trust_mode.is_central
        self._sum_mask_key = keys.noise if needs_masks else None
        with communicator.collective_errors():
            # 2. State the guarantee, which checks that the sampler's error is small enough for it.
            self.privacy_statement = plan.privacy_statement
            # 3. Create the machines of this rank, the server and the evaluator.
            hosted_machines = block_range(problem.machines, communicator.size, communicator.rank)
            sampling = keys.partition, hosted_machines, plan.partition, keys.batching
            reader = make_sample_reader(source, constants, *sampling)
            self.machines, self.server = create_machines_and_server(
                constants, hosted_machines, reader, communicator, keys.noise
            )
            self.evaluations = plan_evaluations(plan)
            self.evaluator: Evaluator | ExactEvaluator
            if source.has_known_distribution:
                self.evaluator = ExactEvaluator(source, communicator, problem)
            else:
                self.evaluator = Evaluator(source, communicator, problem, self.evaluations.test_subset_size)
        # 4. Restore the state, read the first samples and compile the kernels.
        self.timer, self.rounds_done = Timer(constants.rounds), 0
        self._history_rows: list[HistoryRow] = []  # on rank 0
        self._elapsed_before = 0.0
        self._restore(checkpoint)
        with communicator.collective_errors():
            self.machines.read_samples(self.rounds_done + 1)
        compile_kernels(source.feature_dtype, constants, communicator)

    def run(
        self, callbacks: CallbackList | None = None, checkpoint_policy: CheckpointPolicy | None = None
    ) -> Result:
        """Run the remaining rounds; on other ranks than 0 the result has no values from private data."""
        communicator, constants, iterates = self.communicator, self.constants, self.server.iterates
        source, per_machine_plan = self.source, constants.problem.per_machine_plan
        local = callbacks if callbacks is not None and communicator.rank == 0 else CallbackList()
        try:
            local.on_start(RunStart("", self.experiment, constants, self.rounds_done, communicator.size))
            local.raise_failure(communicator)
            self._run_rounds(local, checkpoint_policy or CheckpointPolicy(constants.rounds))
        finally:
            local.on_close()
        statistics = gather_increment_stats(self.machines, communicator, self._sum_mask_key)
        increments = constants.sum_over_machines(constants.rounds, constants.batching.processed_samples_until)
        clipped_share = min(1.0, statistics.clipped_count / increments)
        last_loss = self._history_rows[-1]["test_loss"] if self._history_rows else math.nan
        loss = communicator.bcast_object(last_loss)
        theory = compare_with_theory(constants, self.evaluator, iterates.output, loss)
        metrics, confusion = self.evaluator.metrics(iterates.output)
        result = Result(
            experiment=self.experiment,
            x=iterates.output,
            w=iterates.w,
            history=History.from_rows(self._history_rows),
            privacy=self.privacy_statement,
            theory=theory,
            metrics=metrics,
            confusion=confusion,
            test_rows=source.test_rows,
            diagnostics=Diagnostics(math.sqrt(statistics.largest_squared_norm), clipped_share),
            class_names=source.class_names,
            label_range=source.label_range,
            feature_names=source.feature_names,
            schema_toml=source.schema_toml,
            feature_scale=source.feature_scale,
            public_facts=self.plan.public_facts,
            loss_unit=constants.problem.loss.unit,
            accounts=per_machine_plan.accounts(self.experiment.delta) if per_machine_plan else None,
            timing=self.timer.seconds_by_rank(communicator),
            environment={"run_id": self._run_id, **self._environment},
            cost=environment.job_cost(self._core_seconds(), communicator),
        )
        public = communicator.bcast_object(replace(result, diagnostics=None))
        return result if communicator.rank == 0 else public

    def _core_seconds(self) -> float:
        """Return the time since the run began, or those of all starts until a checkpoint, times its cores."""
        cores = self.communicator.size * environment.cores_per_rank()
        return self._core_seconds_before + cores * (perf_counter() - self._created)

    def _run_rounds(self, callbacks: CallbackList, checkpoint_policy: CheckpointPolicy) -> None:
        """Run the remaining rounds of the simulation; rank 0 records the evaluations."""
        server, machines, timer, rounds = self.server, self.machines, self.timer, self.constants.rounds
        evaluation_rounds = [*self.evaluations.rounds.tolist(), rounds]
        loop = make_round_loop(server, machines)
        max_rounds = 1 + int(MAX_CALL_NS * rounds / run_cost_ns(self.constants))
        self.communicator.barrier()
        started = perf_counter() - self._elapsed_before
        timer.restart()
        while (t := self.rounds_done + 1) <= rounds:
            # 1. All ranks agree on whether to save a checkpoint or to stop.
            action = checkpoint_policy.decide(t)
            if action is not CheckpointAction.CONTINUE:
                checkpoint_policy.save(action, self.gather_checkpoint(perf_counter() - started))
            # 2. Machines read the samples of the next rounds.
            if t not in machines.samples.rounds:
                timer.record("compute")
                loop = None  # It holds the samples that are released.
                machines.read_samples(t)
                loop = make_round_loop(server, machines)
                timer.record("data")
            # 3. A lone rank runs the rounds until the next decision, read or evaluation in one call.
            next_evaluation = evaluation_rounds[bisect_left(evaluation_rounds, t)]
            if loop is not None and t < next_evaluation:
                stop = min(t + max_rounds, next_evaluation, machines.samples.rounds.stop)
                group = range(t, min(stop, max(t + 1, checkpoint_policy.decision_round)))
                loop(group, timer)
                self.rounds_done = group[-1]
                for k in group:
                    callbacks.on_round(k)
                continue
            # 4. The query point x_t, and the model x to evaluate: x_t or the average of iterates.
            query_point, x = server.iterates.x, server.iterates.record_query_point(t)
            # 5. Machines send noised messages, and the server takes its step to x_{t+1}.
            server.run_round(t, machines, timer)
            timer.end_round(t)
            self.rounds_done = t
            callbacks.on_round(t)
            # 6. Evaluate on the test set.
            if t == next_evaluation:
                loss_and_score = self.evaluator.evaluate(x, on_full_test_set=t == rounds)
                error = self._gradient_estimate_error(t, query_point)
                timer.record("evaluation")
                if loss_and_score is not None:
                    seconds = perf_counter() - started
                    evaluation = self._record_evaluation(t, *loss_and_score, error, seconds)
                    callbacks.notify("on_evaluation", evaluation)
                callbacks.raise_failure(self.communicator)

    def _record_evaluation(
        self, t: int, loss: float, score: float, estimate_error: float, elapsed_seconds: float
    ) -> Evaluation:
        """Append a row to the history, and return its evaluation."""
        constants, batching = self.constants, self.constants.batching
        is_last, label_kind = t == constants.rounds, constants.problem.loss.label_kind
        test_samples = self.evaluations.test_samples if is_last else self.evaluations.test_subset_size
        processed = constants.sum_over_machines(t, batching.processed_samples_until)
        scores = dict.fromkeys(SCORE_COLUMNS.values(), math.nan) | {SCORE_COLUMNS[label_kind]: score}
        noised_sum = self.server.iterates.noised_sum
        message_norm = math.nan
        # The guarantee covers the norm of q~_t in both trust modes, except in the last round: its messages
        # change no iterate, and a trusted server adds no noise to them.
        if not is_last and noised_sum is not None:
            batch_size = batching.batch_size(t) or 1
            unit = constants.mechanism.grid_spacing / (constants.machine_weight_sum * batch_size)
            message_norm = norm(noised_sum.astype(np.float64)) * unit
        row = HistoryRow(
            round=t,
            test_loss=loss,
            **scores,
            test_samples=test_samples,
            samples=round(constants.sum_over_machines(t, batching.distinct_samples_until)),
            gradient_evaluations=round(constants.estimator.gradients_per_sample * processed),
            rho_spent=constants.rho_spent(t),
            elapsed_seconds=elapsed_seconds,
            message_norm=message_norm,
            estimate_error=estimate_error,
        )
        self._history_rows.append(row)
        return Evaluation(t, loss, score, label_kind, test_samples, row["rho_spent"], elapsed_seconds)

    def _gradient_estimate_error(self, t: int, query_point: FloatArray) -> float:
        """Return ||d_t - f'(x_t)||^2 before noise on rank 0, for synthetic populations only; else NaN."""
        constants = self.constants
        is_gradient = constants.message_shape == query_point.shape and constants.batching.batch_size(t) > 0
        if not (isinstance(self.evaluator, ExactEvaluator) and is_gradient):
            return math.nan
        grid_sum = reduce_masked(self.machines.message_sum, self.communicator, self._sum_mask_key)
        _, gradient = self.evaluator.gradient(query_point)
        if grid_sum is None:
            return math.nan
        weight = constants.estimator.gradient_weight(t) * constants.batching.batch_size(t)
        d = grid_sum * (constants.mechanism.grid_spacing / (constants.machine_weight_sum * weight))
        return float(np.sum((d - gradient) ** 2))

    def gather_checkpoint(self, elapsed_seconds: float = 0.0) -> Checkpoint | None:
        """Gather the state of all ranks as a checkpoint on rank 0; None on the other ranks. Collective."""
        communicator, iterates = self.communicator, self.server.iterates
        grid_sum = reduce_masked(self.machines.message_sum, communicator, self._sum_mask_key)
        statistics = gather_increment_stats(self.machines, communicator, self._sum_mask_key)
        numeric_platforms = environment.numeric_platforms(communicator)
        last_messages = communicator.gather(self.machines.last_messages)
        if grid_sum is None or last_messages is None:
            return None
        return Checkpoint(
            experiment=self.experiment,
            rounds_done=self.rounds_done,
            root_key=self.run_keys.root if self.experiment.seed is None else None,
            iterates=iterates.state_arrays(),
            q=grid_sum,
            last_messages=np.concatenate(last_messages),
            history=History.from_rows(self._history_rows),
            elapsed_seconds=elapsed_seconds,
            largest_squared_norm=statistics.largest_squared_norm,
            clipped=statistics.clipped_count,
            privacy=self.privacy_statement,
            numeric_platforms=numeric_platforms,
            data_digest=self.plan.digest,
            core_seconds=self._core_seconds(),
            run_id=self._run_id,
        )

    def _restore(self, checkpoint: Checkpoint | None) -> None:
        iterates, machines = self.server.iterates, self.machines
        self.rounds_done = self.communicator.bcast_object(checkpoint.rounds_done if checkpoint else 0)
        if checkpoint is not None:
            for name, array in iterates.state_arrays().items():
                np.copyto(array, checkpoint.iterates[name])
            np.copyto(machines.message_sum, checkpoint.q)
            machines.largest_squared_norm = checkpoint.largest_squared_norm
            machines.clipped_count = checkpoint.clipped
            self._history_rows = checkpoint.history.rows()
            self._elapsed_before = checkpoint.elapsed_seconds
            self._core_seconds_before = checkpoint.core_seconds
        if self.rounds_done > 0:
            is_central = self.constants.problem.trust_mode.is_central
            for array in (iterates.public_arrays() if is_central else iterates.state_arrays()).values():
                self.communicator.bcast(array)
            last_messages = self.communicator.bcast_object(checkpoint.last_messages if checkpoint else None)
            if len(last_messages):
                hosted = slice(machines.first_machine, machines.first_machine + machines.count)
                machines.last_messages[...] = last_messages[hosted]
            # The sum that rank 0 holds becomes a sum of masked shares, one per rank.
            add_masks(machines.flat_message_sum, self.communicator, self._sum_mask_key)
