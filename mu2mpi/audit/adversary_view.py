"""Runs of the audited algorithm, an adversary's observations of them, and inputs and findings of attacks."""

import importlib
import math
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.audit.canaries import Canaries
from mu2mpi.audit.recorded_ranks import RecordedRank, run_on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.noise_stream import derive_key, key_to_uint32


class Finding(NamedTuple):
    """Outcome of an attack: a line of the report, refuted privacy claims, and alarms about weak claims."""

    summary: str = ""
    refutations: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class AuditRuns:
    """Runs of one worst case, each with its own noise key, and the adversary's observations of them."""

    canaries: Canaries
    canary_variants: BoolArray  # of each canary in each run; shape (runs, canaries)
    run_keys: list[bytes]
    observations: list[FloatArray]  # of each rank, as of `observe_runs`; shape (runs, numbers)
    canary_effects: list[FloatArray]  # mean change of observations by a canary; shape (canaries, numbers)
    error_share: float = 1.0  # of the error probability of the worst case, for statements on these runs


@dataclass(frozen=True)
class AttackContext:
    """Input of an attack: experiment, run constants, root key, error probability, and audited runs."""

    experiment: Experiment
    constants: RunConstants  # of the audited runs
    root_key: bytes  # 32 bytes from which all keys are derived
    error_probability: float  # largest false-positive probability of one attack
    runs: tuple[AuditRuns, ...] = ()  # one for each worst case

    @property
    def budget(self) -> Budget:
        """Claimed privacy budget of machines without a budget of their own."""
        return Budget(self.experiment.rho, self.experiment.target_epsilon, self.experiment.delta)


def all_attacks() -> list[ModuleType]:
    """Attack modules in the package `mu2mpi.audit.attacks`, in the order of their names."""
    from mu2mpi.audit import attacks

    names = (module.name for module in pkgutil.iter_modules(attacks.__path__))
    return [importlib.import_module(f"{attacks.__name__}.{name}") for name in names]


def run_algorithm(
    constants: RunConstants,
    canaries: Canaries,
    hosted_machines: range,
    variants: BoolArray,
    communicator: Communicator,
    key: bytes,
    sums: list[IntArray] | None = None,
) -> FloatArray:
    """Run the algorithm as one rank, with all randomness from a 32-byte key; return the output, (d,)."""
    read = canaries.sample_reader(hosted_machines, variants, derive_key(key, "sampling"))
    words = key_to_uint32(key)
    machines, server = create_machines_and_server(constants, hosted_machines, read, communicator, words)
    for t in range(1, constants.rounds + 1):
        if canaries.case.chooses_query_points:
            server.iterates.x[...] = canaries.case.query_point(t, constants.problem.model_rows)
            server.iterates.x_previous[...] = canaries.case.query_point(t - 1, constants.problem.model_rows)
        server.run_round(t, machines, Timer())
        message = server.iterates.noised_sum if server.is_central else server.unmasked_message
        if sums is not None and message is not None:
            sums.append(message.copy())
    return server.iterates.output.ravel()


def reveals_only_noisy_sums(constants: RunConstants) -> bool:
    """Whether an adversary's observations determine the noisy sums of messages, and nothing else."""
    # Iterates of audited runs stay inside the ball.
    iterates_suffice = constants.iterates_reveal_messages and constants.problem.variance_factor == 1
    suffices = iterates_suffice or not constants.problem.trust_mode.is_central
    return constants.mechanism.reveals_messages and suffices


def hides_single_messages(constants: RunConstants) -> bool:
    """Whether masks or shuffling hide single messages, so that noise protects only their sum."""
    return constants.problem.trust_mode.protects_sum_only and not constants.problem.trust_mode.is_central


def noiseless_constants(constants: RunConstants) -> RunConstants:
    """Return run constants without noise, with the grid spacing of the noisy messages."""
    noiseless = replace(constants, mechanism=replace(constants.mechanism, sigma=0.0))
    if (plan := constants.problem.per_machine_plan) is not None:
        mechanisms = tuple(replace(mechanism, sigma=0.0) for mechanism in plan.mechanisms)
        noiseless = noiseless.with_problem(per_machine_plan=replace(plan, mechanisms=mechanisms))
    return noiseless


def observe_runs(
    constants: RunConstants, canaries: Canaries, variants: BoolArray, keys: Sequence[bytes]
) -> list[FloatArray]:
    """Run the algorithm once per key, each machine on its own rank, and record the transmitted arrays.

    Returns arrays of shape (runs, numbers), one per rank, whitened to unit noise: the messages that it sends;
    the sums that it receives from a central server, or those of steps that are no multiples of them; the sum
    that remains to colluders if messages are masked; or the output if messages are hidden.
    """
    has_other_steps = constants.mechanism.parameters != constants.problem.d
    reveals_messages = constants.mechanism.reveals_messages
    is_central, is_masked = constants.problem.trust_mode.is_central, hides_single_messages(constants)

    def record_runs(rank: RecordedRank) -> Any:
        rows, hosted_machines = list[Any](), range(rank.rank, rank.rank + 1)
        for run_variants, key in zip(variants, keys, strict=True):
            sums: list[IntArray] = []
            rank.clear_record()
            output = run_algorithm(constants, canaries, hosted_machines, run_variants, rank, key, sums)
            arrays: list[Any] = [output] if rank.rank == 0 else []
            if reveals_messages:
                arrays = [*(rank.received if is_central else rank.sent), *(sums if is_masked else [])]
                arrays = sums if is_central and has_other_steps else arrays
            rows.append(np.concatenate(list(map(np.ravel, arrays))) if arrays else np.empty(0))
        return np.array(rows)

    recorded: list[Any] = run_on_ranks(constants.problem.machines, record_runs)
    if not reveals_messages:
        return recorded
    if is_central and has_other_steps:  # All that rank 0 sends is a function of them.
        mechanism = canaries.constants.mechanism
        sums = recorded[0].reshape(len(keys), constants.rounds, -1)[:, :-1] * mechanism.grid_spacing
        return [recorded[1], *[_whiten(mechanism, sums).reshape(len(keys), -1)] * len(recorded[1:])]
    if is_central:
        sums = [_recovered_sums(constants, canaries, received) for received in recorded[1:]]
        return [np.empty((len(keys), 0)), *sums]
    if is_masked:
        colluders = constants.problem.machines - constants.problem.noise_shares
        recorded = _aggregates_without_colluders(np.array(recorded), colluders)
    grid_spacing = constants.mechanism.grid_spacing
    return [_whitened_messages(canaries, i, sent * grid_spacing) for i, sent in enumerate(recorded)]


def _aggregates_without_colluders(messages: IntArray, colluders: int) -> list[IntArray]:
    """Return, per machine, the sum of all messages without those of the next `colluders`, modulo 2^64."""
    sent, unmasked = np.split(messages, 2, axis=2)  # each of shape (machines, runs, numbers)
    machines, message_sum = len(sent), sent.sum(axis=0)
    colluding = [[(machine + k) % machines for k in range(1, colluders + 1)] for machine in range(machines)]
    return [message_sum - unmasked[known].sum(axis=0) for known in colluding]


def _whitened_messages(canaries: Canaries, machine: int, sent: FloatArray) -> FloatArray:
    """Return the messages of a machine, or their changes in rounds that it skips, scaled to unit noise."""
    mechanism, active = canaries.mechanism(machine), canaries.participation_rounds[machine] - 1
    messages = sent.reshape(len(sent), -1, mechanism.parameters)
    messages = messages / math.sqrt(canaries.constants.sums_per_round)
    carried = canaries.constants.estimator.is_cumulative * messages[:, :-1]
    white = np.concatenate([messages[:, :1], messages[:, 1:] - carried], axis=1) / mechanism.sigma
    white[:, active] = _whiten(mechanism, messages[:, active])
    return white.reshape(sent.shape)


def _whiten(mechanism: Mechanism, messages: FloatArray) -> FloatArray:
    """Return a machine's messages, shape (runs, rounds, d), scaled and decorrelated to white unit noise."""
    if (correlation := mechanism.correlation) is not None:
        return correlation.apply_strategy(messages / mechanism.sigma)
    sigmas = np.array([mechanism.round_sigma(t) for t in range(1, messages.shape[1] + 1)])
    return np.asarray(messages / sigmas[:, np.newaxis])


def _recovered_sums(constants: RunConstants, canaries: Canaries, iterates: FloatArray) -> FloatArray:
    """Return noisy sums recovered from a central server's x_2, ..., x_T, then other received numbers."""
    runs, d, steps = len(iterates), constants.problem.d, constants.rounds - 1
    query_points, rest = np.split(iterates, [steps * d], axis=1)
    w, x = np.zeros((runs, d)), np.zeros((runs, d))
    case, mechanism, sums = canaries.case, canaries.constants.mechanism, []
    for t, x_next in enumerate(np.split(query_points, steps, axis=1), 1):
        if case.chooses_query_points:
            x = np.broadcast_to(case.query_point(t, constants.problem.model_rows).ravel(), x.shape)
        weight = constants.query_point.averaging_weight(t + 1)
        w_next = (x_next - (1 - weight) * x) / weight
        step = constants.step_size(t) / (constants.machine_weight_sum * constants.batching.batch_size(t))
        sums.append((w - w_next) / step)
        w, x = w_next, x_next
    last = mechanism.grid_spacing / mechanism.round_sigma(constants.rounds)
    white = _whiten(mechanism, np.stack(sums, axis=1)).reshape(runs, -1)
    return np.hstack([white, rest * last])


def adversary_observations(constants: RunConstants, records: list[FloatArray], machine: int) -> FloatArray:
    """Return the observations of an adversary who attacks a machine; shape (runs, numbers).

    With a central server, these are the records of all ranks but rank 0 and the machine's own.
    """
    if hides_single_messages(constants):
        return records[machine]
    is_central = constants.problem.trust_mode.is_central and constants.mechanism.reveals_messages
    views = [view for rank, view in enumerate(records) if not (is_central and rank in (0, machine))]
    return np.hstack([a for k, a in enumerate(views) if not any(np.array_equal(a, b) for b in views[:k])])
