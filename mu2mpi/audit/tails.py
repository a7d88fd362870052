"""The noise of messages on the dimensions of a real run: its tail, its size, and whether any comes twice."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import FEATURE_TYPE, Numbered
from mu2mpi.audit.sizes import add_squares, signatures, size_faults
from mu2mpi.audit.structure import TAIL_BITS, Structure, collect_tail, lattice_evidence
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.machine import HostedSamples, Machines
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.server import Stopwatch, make_server
from mu2mpi.parallel import Communicator, block
from mu2mpi.privacy.noise import derive_key, key_words

CLASSES, PIXELS, MACHINES, ROUNDS = 10, 784, 10, 60_000
"""Ten machines, each with as many samples as MNIST."""

RHOS = 4.0, 4.0, 4.0, 0.25
"""Of runs in turn. With the last, the grid is so fine that draws are spread, and messages show no lattice."""

MESSAGES = 1000
"""How many are taken with each noise key: of all machines in some rounds, or of the server in more."""


class _Seen(NamedTuple):
    """What `collect_tail`, `add_squares` and `signatures` saw of the messages of one noise key."""

    tail: NDArray[np.float64]
    squares: NDArray[np.float64]
    sums: NDArray[np.float64]
    repeated: int


def attack_structure(
    server: str, root: bytes, normals: int, risk: float, communicator: Communicator
) -> Structure | None:
    """Look for a lattice in the noise that a server's messages carry, and for noise of another size.

    At least so many normals are looked at, and no fewer than one run with each of `RHOS` has. The ranks
    divide the runs, whose noise keys follow from the root; rank 0 returns what was found, the others None.
    Faultless noise may be complained of with probability `risk`, half of it for each of the two.
    """
    with communicator.together():
        experiments = [Experiment(server=server, machines=MACHINES, rounds=ROUNDS, rho=rho) for rho in RHOS]
        data = Numbered(MACHINES * ROUNDS, CLASSES, PIXELS)
        schedules = [resolve(experiment, data, 1).schedule for experiment in experiments]
    first, mechanism = schedules[0], schedules[0].mechanism
    runs = max(len(RHOS), -(-normals // (MESSAGES * first.d)))
    mine = block(runs, communicator.size, communicator.rank)
    everyones = communicator.gather(
        [_look(schedules[n % len(RHOS)], derive_key(root, "noise", f"structure, run {n}")) for n in mine]
    )
    if everyones is None:
        return None
    seen = [of_run for of_rank in everyones for of_run in of_rank]
    telling = [of_run.tail for n, of_run in enumerate(seen) if RHOS[n % len(RHOS)] == RHOS[0]]
    evidence, strongest = lattice_evidence(np.hstack(telling), mechanism.sigma / mechanism.resolution)
    pairs, repeated = sum(of_run.tail.shape[1] for of_run in seen), sum(of_run.repeated for of_run in seen)
    squares, sums = sum(of_run.squares for of_run in seen), np.concatenate([of_run.sums for of_run in seen])
    faults = size_faults(squares, sums, repeated, pairs, risk / 2)
    return Structure(runs * MESSAGES * first.d, pairs, evidence, 2 / risk, strongest, faults)


def _look(schedule: Schedule, key: bytes) -> _Seen:
    """Return what is seen of the noise of some messages under one key."""
    scale, count = schedule.mechanism.sigma / schedule.mechanism.resolution, 0
    tail = np.empty((2, MESSAGES * schedule.d >> TAIL_BITS - 6))
    squares, sums, found = np.zeros(schedule.d), [], []
    for message, hidden in _messages(schedule, key):
        count = collect_tail(message, hidden, scale, tail, count)
        sums.append(add_squares(squares, message, hidden, scale))
        found.append(signatures(message - hidden))
    distinct = np.unique(np.concatenate(found))
    return _Seen(tail[:, :count], squares, np.array(sums), sum(map(len, found)) - len(distinct))


def _messages(schedule: Schedule, key: bytes) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return messages of rounds from all of the run, each with what it hides."""
    is_trusted, words = schedule.server == "trusted", key_words(key)
    hosts = range(1) if is_trusted else range(schedule.machines)
    rng, count = np.random.default_rng(list(key)), MESSAGES // len(hosts)
    rounds = (np.sort(rng.choice(schedule.rounds - 1, count, replace=False)) + 1).tolist()
    for machine in hosts:
        machines = Machines(schedule, range(machine, machine + 1), _blank, None if is_trusted else words)
        server = make_server(schedule, Communicator(), words if is_trusted else None)
        for t in rounds:
            server.round(t, machines, Stopwatch())
            if server.iterates.direction is None:
                raise RuntimeError("the server took no step")
            yield server.iterates.direction, machines.q


def _blank(t: int) -> HostedSamples:
    """Return the same sample for any round: what the noise hides is known to the adversary."""
    features, sizes = np.ones((1, PIXELS), FEATURE_TYPE), np.ones((1, 1), np.int64)
    return HostedSamples(features, np.zeros(1, np.int32), np.ones(1), sizes, t)
