"""Runs of the algorithm itself, what an adversary sees of them, and what attacks are given and find."""

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.audit.canaries import Canaries, Integers, Kinds
from mu2mpi.audit.recorded_ranks import RecordedRank, on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.servers.server import machines_and_server
from mu2mpi.federation.timer import Stopwatch
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.noise_stream import derive_key, key_words


class Finding(NamedTuple):
    """Line of the report, what refutes the claim, and what cannot be if the code does what it says."""

    summary: str = ""
    refutations: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runs:
    """Runs of one worst case, each with its own key, and what an adversary sees of them."""

    canaries: Canaries
    kinds: Kinds  # shape (runs, canaries)
    keys: list[bytes]
    seen: list[Array]  # what crosses each rank's wire, as of `see`, shape (runs, numbers)
    differences: list[Array]  # by what each canary moves that, shape (canaries, numbers)


@dataclass(frozen=True)
class View:
    """What attacks may use."""

    experiment: Experiment
    constants: RunConstants  # constants of the audited runs
    root: bytes  # secret of 32 bytes from which all keys follow
    risk: float  # largest probability with which one attack complains about faultless code
    runs: tuple[Runs, ...] = ()  # of each worst case

    @property
    def budget(self) -> Budget:
        """Claim for machines without a budget of their own."""
        return Budget(self.experiment.rho, self.experiment.target_epsilon, self.experiment.delta)


def all_attacks() -> list[ModuleType]:
    """Modules of `mu2mpi.audit.attacks`, by name."""
    from mu2mpi.audit import attacks

    names = (found.name for found in pkgutil.iter_modules(attacks.__path__))
    return [importlib.import_module(f"{attacks.__name__}.{name}") for name in names]


def play(
    constants: RunConstants,
    canaries: Canaries,
    hosted: range,
    kinds: Kinds,
    communicator: Communicator,
    key: bytes,
    unmasked: list[Integers] | None = None,
) -> Array:
    """Take part in a run as the rank of some machines, drawing all from 32 bytes; return the output, (d,)."""
    supply = canaries.supply(hosted, kinds, derive_key(key, "sampling"))
    machines, server = machines_and_server(constants, hosted, supply, communicator, key_words(key))
    for t in range(1, constants.rounds + 1):
        if canaries.case.chosen:
            server.iterates.x[...] = canaries.case.query_point(t, constants.task.rows)
            server.iterates.x_previous[...] = canaries.case.query_point(t - 1, constants.task.rows)
        server.round(t, machines, Stopwatch())
        if unmasked is not None and server.unmasked is not None:
            unmasked.append(server.unmasked.copy())
    return server.iterates.output.ravel()


def tells_sums(constants: RunConstants) -> bool:
    """Whether what is seen gives away sums with the noise that hides them, and no more."""
    # Runs of an audit stay in the ball.
    of_server = constants.has_plain_step and constants.task.variances == 1
    return constants.mechanism.shows_messages and (of_server or not constants.task.trust.is_central)


def hides_parts(constants: RunConstants) -> bool:
    """Whether single messages are hidden, by masks or else, so that their noise need not."""
    return constants.task.trust.hides_sums and not constants.task.trust.is_central


def noiseless(constants: RunConstants) -> RunConstants:
    """Return the same constants without noise, but on the grid of messages with noise."""
    quiet = replace(constants, mechanism=replace(constants.mechanism, sigma=0.0))
    if (members := constants.task.per_machine) is not None:
        mechanisms = tuple(replace(mechanism, sigma=0.0) for mechanism in members.mechanisms)
        quiet = quiet.with_task(per_machine=replace(members, mechanisms=mechanisms))
    return quiet


def see(constants: RunConstants, canaries: Canaries, kinds: Kinds, keys: Sequence[bytes]) -> list[Array]:
    """Run the algorithm once with each noise key, every machine on a rank of its own.

    Returns an array of each rank, shape (runs, numbers), in standard deviations of white noise: what it
    sends, or if the server is central receives, as sums; if masked, what all colluders make of that. If
    messages are hidden it is the output.
    """
    hides, is_central = not constants.mechanism.shows_messages, constants.task.trust.is_central
    with_masks = hides_parts(constants)

    def watch(rank: RecordedRank) -> Any:
        rows = list[Any]()
        for of_run, key in zip(kinds, keys, strict=True):
            unmasked: list[Integers] = []
            rank.forget()
            output = play(constants, canaries, range(rank.rank, rank.rank + 1), of_run, rank, key, unmasked)
            arrays: list[Any] = [output] if rank.rank == 0 else []
            if not hides:
                arrays = [*(rank.received if is_central else rank.sent), *(unmasked if with_masks else [])]
            rows.append(np.concatenate(list(map(np.ravel, arrays))) if arrays else np.empty(0))
        return np.array(rows)

    seen: list[Any] = on_ranks(constants.task.machines, watch)
    if hides:
        return seen
    if is_central:
        return [np.empty((len(keys), 0)), *(_sums(constants, canaries, of_rank) for of_rank in seen[1:])]
    if with_masks:
        seen = _sums_of_others(np.array(seen), constants.task.machines - constants.task.parts)
    unit = constants.mechanism.resolution
    return [_of_machine(canaries, machine, of_rank * unit) for machine, of_rank in enumerate(seen)]


def _sums_of_others(both: Integers, colluders: int) -> list[Integers]:
    """Return, for each machine, the sum of all but the colluders that follow it, modulo 2^64.

    `both` is what is sent and the same without masks, shape (machines, runs, 2 numbers).
    """
    sent, unmasked = np.split(both, 2, axis=2)
    count, everything = len(sent), sent.sum(axis=0)
    known = [[(machine + k) % count for k in range(1, colluders + 1)] for machine in range(count)]
    return [everything - unmasked[of_one].sum(axis=0) for of_one in known]


def _of_machine(canaries: Canaries, machine: int, sent: Array) -> Array:
    """Return what a machine sends, in deviations of its own noise; while it is away, what is new in that."""
    mechanism, there = canaries.mechanism(machine), canaries.there[machine] - 1
    by_round = sent.reshape(len(sent), -1, canaries.constants.task.d)
    lasting = canaries.constants.estimator.lasts * by_round[:, :-1]
    new = np.concatenate([by_round[:, :1], by_round[:, 1:] - lasting], axis=1) / mechanism.sigma
    new[:, there] = _in_deviations(mechanism, by_round[:, there])
    return new.reshape(sent.shape)


def _in_deviations(mechanism: Mechanism, by_round: Array) -> Array:
    """Return consecutive messages, shape (runs, rounds, d), in units of noise that should be white."""
    if (correlation := mechanism.correlation) is not None:
        return correlation.whiten(by_round / mechanism.sigma)
    units = np.array([mechanism.sigma_of(t) for t in range(1, by_round.shape[1] + 1)])
    white: Array = by_round / units[:, np.newaxis]
    return white


def _sums(constants: RunConstants, canaries: Canaries, iterates: Array) -> Array:
    """Return the sums from which a central server made x_2, x_3, ..., x_T, followed by what else came."""
    runs, d, steps = len(iterates), constants.task.d, constants.rounds - 1
    stated, rest = np.split(iterates, [steps * d], axis=1)
    w, x = np.zeros((runs, d)), np.zeros((runs, d))
    case, mechanism, sums = canaries.case, canaries.constants.mechanism, []
    for t, x_next in enumerate(np.split(stated, steps, axis=1), 1):
        if case.chosen:
            x = np.broadcast_to(case.query_point(t, constants.task.rows).ravel(), x.shape)
        weight = constants.query.averaging_weight(t + 1)
        w_next = (x_next - (1 - weight) * x) / weight
        step = constants.step_size(t) / (constants.total_weight * constants.sampling.size(t))
        sums.append((w - w_next) / step)
        w, x = w_next, x_next
    last = mechanism.resolution / mechanism.sigma_of(constants.rounds)
    white = _in_deviations(mechanism, np.stack(sums, axis=1)).reshape(runs, -1)
    return np.hstack([white, rest * last])


def view(constants: RunConstants, seen: list[Array], machine: int) -> Array:
    """Return what others than a machine receive of a central server, or what all send: (runs, numbers)."""
    if hides_parts(constants):
        return seen[machine]
    is_central = constants.task.trust.is_central and constants.mechanism.shows_messages
    views = [of_rank for rank, of_rank in enumerate(seen) if not (is_central and rank in (0, machine))]
    return np.hstack([a for k, a in enumerate(views) if not any(np.array_equal(a, b) for b in views[:k])])
