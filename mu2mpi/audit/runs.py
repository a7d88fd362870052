"""Runs of the algorithm itself, and what an adversary sees of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries, WorstCase
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.machine import Machines, Supply
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.server import make_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.noise import derive_key, key_words

__all__ = ["play", "see", "tells_sums", "view"]


def play(
    schedule: Schedule,
    hosted: range,
    supply: Supply,
    communicator: Communicator,
    key: NDArray[np.uint32],
    case: WorstCase | None = None,
) -> NDArray[np.float64]:
    """Take part in one run, as one of its ranks.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    hosted : range
        The machines that this rank hosts.
    supply : callable
        What they get.
    communicator : Communicator
        The ranks.
    key : ndarray of uint32, shape (8,)
        Noise key.
    case : WorstCase, optional
        It may choose the query points.

    Returns
    -------
    ndarray of float64, shape (d,)
        The output.
    """
    is_trusted = schedule.server == "trusted"
    machines = Machines(schedule, hosted, supply, None if is_trusted else key)
    server = make_server(schedule, communicator, key if is_trusted and communicator.rank == 0 else None)
    clock = Stopwatch()
    for t in range(1, schedule.rounds + 1):
        if case is not None and case.chosen:
            server.iterates.x[...] = case.query_point(t)
            server.iterates.x_previous[...] = case.query_point(t - 1)
        server.round(t, machines, clock)
    return server.iterates.output.ravel()


def tells_sums(schedule: Schedule) -> bool:
    """Return whether what is seen gives away noised sums: with a trusted server, if its steps are plain."""
    if not schedule.mechanism.shows_messages:
        return False
    iterates = type(schedule.make_iterates(schedule))
    is_plain = iterates.step is Iterates.step and iterates.move is Iterates.move
    return schedule.server == "untrusted" or is_plain


def see(
    schedule: Schedule,
    canaries: Canaries,
    kinds: NDArray[np.bool_],
    keys: Sequence[bytes],
    units: NDArray[np.float64],
) -> list[NDArray[np.float64]]:
    """Run the algorithm once with each noise key, every machine on a rank of its own.

    Parameters
    ----------
    schedule : Schedule
        Constants of the runs.
    canaries : Canaries
        The samples.
    kinds : ndarray of bool, shape (runs, canaries)
        Which canaries are of the second kind in each run.
    keys : sequence of bytes
        32 bytes for each run.
    units : ndarray of float64, shape (rounds,)
        What the messages of each round are measured in, such as the standard deviation of their noise.

    Returns
    -------
    list of ndarray of float64, shape (runs, numbers)
        What each rank sends, or with a trusted server receives, where iterates are taken back to the sums
        that they were made of. Of a method that protects nothing else, the output alone.
    """
    case, hides = canaries.case, not schedule.mechanism.shows_messages

    def watch(rank: RecordedRank) -> NDArray[np.float64]:
        hosted, rows = range(rank.rank, rank.rank + 1), []
        for kind, key in zip(kinds, keys, strict=True):
            rank.sent.clear()
            rank.received.clear()
            supply = canaries.supply(hosted, kind, derive_key(key, "sampling"))
            output = play(schedule, hosted, supply, rank, key_words(key), case)
            if hides:
                rows.append(output if rank.rank == 0 else np.empty(0))
            else:
                arrays = rank.received if schedule.server == "trusted" else rank.sent
                rows.append(np.concatenate([np.empty(0), *(array.ravel() for array in arrays)]))
        return np.array(rows).reshape(len(keys), -1)

    seen = on_ranks(schedule.machines, watch)
    if hides:
        return seen
    if schedule.server == "trusted":
        return [
            np.empty((len(keys), 0)),
            *(_messages(schedule, case, of_rank, units) for of_rank in seen[1:]),
        ]
    return [of_rank * np.repeat(schedule.resolution / units, schedule.d) for of_rank in seen]


def _messages(
    schedule: Schedule, case: WorstCase, iterates: NDArray[np.float64], units: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the sums from which a trusted server made the iterates that it sent, followed by what else came.

    Parameters
    ----------
    iterates : ndarray of float64, shape (runs, numbers)
        x_2, x_3, ..., x_T.
    """
    runs, d, rounds = len(iterates), schedule.d, schedule.rounds
    stated, rest = iterates[:, : (rounds - 1) * d], iterates[:, (rounds - 1) * d :]
    w, x = np.zeros((runs, d)), np.zeros((runs, d))
    sums = []
    for t, x_next in enumerate(np.split(stated, rounds - 1, axis=1), 1):
        if case.chosen:
            x = np.broadcast_to(case.query_point(t).ravel(), x.shape)
        weight = schedule.query.averaging_weight(t + 1)
        w_next = (x_next - (1 - weight) * x) / weight
        step = schedule.rate(t) / (schedule.machines * schedule.sampling.size(t))
        sums.append((w - w_next) / (step * units[t - 1]))
        w, x = w_next, x_next
    return np.hstack([*sums, rest * (schedule.resolution / units[-1])])


def view(schedule: Schedule, seen: list[NDArray[np.float64]], machine: int) -> NDArray[np.float64]:
    """Return what the adversary of a machine's samples sees, shape (runs, numbers).

    Against an untrusted server and all machines, nothing that leaves a machine may tell of its samples. With
    a trusted one, the adversary is every other machine, and rank 0 is the server. What was seen on another
    rank already is left out.
    """
    is_trusted = schedule.server == "trusted" and schedule.mechanism.shows_messages
    views: list[NDArray[np.float64]] = []
    for rank, of_rank in enumerate(seen):
        known = any(np.array_equal(of_rank, other) for other in views)
        if not known and not (is_trusted and rank in (0, machine)):
            views.append(of_rank)
    return np.hstack(views)
