"""Runs of the algorithm itself, what an adversary sees of them, and that layouts on ranks change no bit."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.federation.iterates import Iterates, LazyIterates
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import Server, machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.parallel import Communicator, block
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.privacy.noise import derive_key, key_words
from mu2mpi.problem.base import Array

Integers = NDArray[np.int64]


def play(
    schedule: Schedule,
    canaries: Canaries,
    hosted: range,
    kinds: Kinds,
    communicator: Communicator,
    key: bytes,
    unmasked: list[Integers] | None = None,
) -> Array:
    """Take part in one run, as the rank that hosts these machines, and return the output, shape (d,).

    All that is drawn follows from the 32 bytes of the key. Where masks hide what leaves the rank, what that
    is without them is added to a list of `unmasked` messages.
    """
    supply = canaries.supply(hosted, kinds, derive_key(key, "sampling"))
    machines, server = machines_and_server(schedule, hosted, supply, communicator, key_words(key))
    for t in range(1, schedule.rounds + 1):
        round_of(t, canaries, machines, server)
        if unmasked is not None and server.unmasked is not None:
            unmasked.append(server.unmasked.copy())
    return server.iterates.output.ravel()


def round_of(t: int, canaries: Canaries, machines: Machines, server: Server) -> None:
    """Take round t, at query points of the audit where it chooses them."""
    if (case := canaries.case).chosen:
        server.iterates.x[...] = case.query_point(t, canaries.schedule.rows)
        server.iterates.x_previous[...] = case.query_point(t - 1, canaries.schedule.rows)
    server.round(t, machines, Stopwatch())


def tells_sums(schedule: Schedule) -> bool:
    """Return whether what is seen gives away sums with as much noise as hides them, and no more.

    Where it is query points, their steps have to be plain. What some machines know of the noise is left in
    where they draw it one by one.
    """
    iterates = type(schedule.make_iterates(schedule))
    # In the ball, where runs of an audit stay, lazy steps are plain ones.
    is_plain = iterates.step is Iterates.step and iterates.move in (Iterates.move, LazyIterates.move)
    of_server = is_plain and schedule.variances == 1
    return schedule.mechanism.shows_messages and (of_server or not schedule.trust.is_central)


def hides_parts(schedule: Schedule) -> bool:
    """Return whether single messages are hidden, by masks or else, so that their noise need not."""
    return schedule.trust.hides_sums and not schedule.trust.is_central


def see(schedule: Schedule, canaries: Canaries, kinds: Kinds, keys: Sequence[bytes]) -> list[Array]:
    """Run the algorithm once with each noise key, every machine on a rank of its own.

    Of each rank an array of shape (runs, numbers) is returned: what it sends, or if the server is central
    receives, where iterates are taken back to the sums that they were made of. Of masked messages it is what
    those make of all of them who work together against the machine. Messages are measured in standard
    deviations of the noise that canaries have to hide in, of their round, and what correlates the noise of
    rounds is undone. Of a method that protects nothing else, it is the output alone.
    """
    hides, is_central = not schedule.mechanism.shows_messages, schedule.trust.is_central
    unit = schedule.mechanism.resolution
    if hides_parts(schedule):
        all_sent, colluders = messages(schedule, canaries, kinds, keys), schedule.machines - schedule.parts
        of_others = enumerate(_sums_of_others(*all_sent, colluders))
        return [_of_machine(canaries, machine, of_one * unit) for machine, of_one in of_others]

    def watch(rank: RecordedRank) -> Array:
        hosted, rows = range(rank.rank, rank.rank + 1), []
        for of_run, key in zip(kinds, keys, strict=True):
            rank.sent.clear()
            rank.received.clear()
            output = play(schedule, canaries, hosted, of_run, rank, key)
            if hides:
                arrays = [output] if rank.rank == 0 else []
            else:
                arrays = rank.received if is_central else rank.sent
            rows.append(np.concatenate([np.empty(0), *map(np.ravel, arrays)]))
        return np.array(rows)

    seen = on_ranks(schedule.machines, watch)
    if hides:
        return seen
    if is_central:
        sums = [_sums(schedule, canaries, of_rank) for of_rank in seen[1:]]
        return [np.empty((len(keys), 0)), *sums]
    return [_of_machine(canaries, machine, of_rank * unit) for machine, of_rank in enumerate(seen)]


def noiseless(schedule: Schedule) -> Schedule:
    """Return the same constants without noise, but on the grid of messages with noise."""
    quiet = replace(schedule, mechanism=replace(schedule.mechanism, sigma=0.0))
    if (members := schedule.members) is not None:
        kinds = tuple(replace(kind, sigma=0.0) for kind in members.kinds)
        quiet = replace(quiet, members=replace(members, kinds=kinds))
    return quiet


def messages(
    schedule: Schedule, canaries: Canaries, kinds: Kinds, keys: Sequence[bytes]
) -> tuple[Integers, Integers]:
    """Return what machines send that mask it, and what that is unmasked, of runs as of `see`.

    Both are integers modulo 2^64, of shape (machines, runs, rounds, d).
    """

    def watch(rank: RecordedRank) -> Integers:
        hosted, rows = range(rank.rank, rank.rank + 1), []
        for of_run, key in zip(kinds, keys, strict=True):
            unmasked: list[Integers] = []
            rank.sent.clear()
            rank.received.clear()
            play(schedule, canaries, hosted, of_run, rank, key, unmasked)
            rows.append([np.array(rank.sent).view(np.int64), np.array(unmasked)])
        return np.array(rows)

    shape = schedule.machines, len(keys), 2, schedule.rounds, schedule.d
    both = np.array(on_ranks(schedule.machines, watch)).reshape(shape)
    return both[:, :, 0], both[:, :, 1]


def _sums_of_others(sent: Integers, unmasked: Integers, colluders: int) -> list[Array]:
    """Return, for each machine, the sum of all but those that follow it, shape (runs, numbers).

    These are the ones that work together against it: they know what they themselves hid, and masks cancel in
    the sum of all that was sent.
    """
    count, everything = len(sent), sent.sum(axis=0)
    known = [[(machine + k) % count for k in range(1, colluders + 1)] for machine in range(count)]
    of_others = (everything - unmasked[of_one].sum(axis=0) for of_one in known)
    return [of_one.reshape(len(of_one), -1).astype(np.float64) for of_one in of_others]


def _of_machine(canaries: Canaries, machine: int, sent: Array) -> Array:
    """Return what a machine sends, in deviations of its own noise; while it is away, what is new in that."""
    mechanism, there = canaries.mechanism(machine), canaries.there[machine] - 1
    by_round = sent.reshape(len(sent), -1, canaries.schedule.d)
    lasting = canaries.schedule.estimator.lasts * by_round[:, :-1]
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


def _sums(schedule: Schedule, canaries: Canaries, iterates: Array) -> Array:
    """Return the sums from which a central server made x_2, x_3, ..., x_T, followed by what else came."""
    runs, d, steps = len(iterates), schedule.d, schedule.rounds - 1
    stated, rest = np.split(iterates, [steps * d], axis=1)
    w, x = np.zeros((runs, d)), np.zeros((runs, d))
    case, mechanism, sums = canaries.case, canaries.schedule.mechanism, []
    for t, x_next in enumerate(np.split(stated, steps, axis=1), 1):
        if case.chosen:
            x = np.broadcast_to(case.query_point(t, schedule.rows).ravel(), x.shape)
        weight = schedule.query.averaging_weight(t + 1)
        w_next = (x_next - (1 - weight) * x) / weight
        step = schedule.rate(t) / (schedule.total * schedule.sampling.size(t))
        sums.append((w - w_next) / step)
        w, x = w_next, x_next
    last = mechanism.resolution / mechanism.sigma_of(schedule.rounds)
    white = _in_deviations(mechanism, np.stack(sums, axis=1)).reshape(runs, -1)
    return np.hstack([white, rest * last])


def view(schedule: Schedule, seen: list[Array], machine: int) -> Array:
    """Return what the adversary of a machine's samples sees, shape (runs, numbers).

    Against an untrusted server and all machines, nothing that leaves a machine may tell of its samples. With
    a central one, the adversary is every other machine, and rank 0 is the server. What was seen on another
    rank already is left out. Of masked messages there is what was made of them for each machine.
    """
    if hides_parts(schedule):
        return seen[machine]
    is_central = schedule.trust.is_central and schedule.mechanism.shows_messages
    views = [of_rank for rank, of_rank in enumerate(seen) if not (is_central and rank in (0, machine))]
    return np.hstack([a for k, a in enumerate(views) if not any(np.array_equal(a, b) for b in views[:k])])


def check_layouts(canaries: Canaries, kinds: Kinds, keys: Sequence[bytes]) -> str | None:
    """Compare runs of which ranks host several machines with those of one machine a rank, as of `see`.

    Unless the server is central, what leaves a rank has to be the sum of what leaves the ranks of its
    machines, to the bit; and what a rank without machines receives has to be the same. Then it is a function
    of what was attacked, and gives no more away. Returned is what differs, in words.
    """
    count, is_central = canaries.schedule.machines, canaries.schedule.trust.is_central
    for of_run, key in zip(kinds, keys, strict=True):
        base = _ranks_of(canaries, of_run, key, count)
        for parts in {1, min(2, count)}:
            ranks = _ranks_of(canaries, of_run, key, parts)
            if not equal(ranks[-1].received, base[-1].received):
                return f"with {count} machines on {parts} ranks others are sent than with one on each"
            for rank in () if is_central else ranks[:-1]:
                hosted = block(count, parts, rank.rank)
                together = zip(*(base[i].sent for i in hosted), strict=True)
                if not equal(rank.sent, [np.sum(arrays, axis=0) for arrays in together]):
                    return f"what leaves a rank with {len(hosted)} machines is not the sum of what they send"
    return None


def _ranks_of(canaries: Canaries, kinds: Kinds, key: bytes, parts: int) -> list[RecordedRank]:
    """Return the ranks of a run that share all machines, and one more that hosts none, after the run."""
    schedule, count = canaries.schedule, canaries.schedule.machines

    def act(rank: RecordedRank) -> RecordedRank:
        hosted = block(count, parts, rank.rank) if rank.rank < parts else range(count, count)
        play(schedule, canaries, hosted, kinds, rank, key)
        return rank

    return on_ranks(parts + 1, act)


def equal(ones: list[NDArray[np.generic]], others: list[NDArray[np.generic]]) -> bool:
    """Return whether two lists hold the same arrays."""
    return len(ones) == len(others) and all(map(np.array_equal, ones, others))
