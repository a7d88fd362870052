"""The noise of messages on the dimensions of a real run: its tail, its size, and whether any comes twice."""

import math
from collections.abc import Iterator
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import FEATURE_TYPE, Numbered
from mu2mpi.audit.innovations import Innovations, rounding_faults
from mu2mpi.audit.structure import TAIL_BITS, Fault, Structure, collect_tail, lattice_evidence
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.machine import HostedSamples
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.kernels import kernel
from mu2mpi.parallel import Communicator, block
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.privacy.noise import CHUNK, PAIRS, derive_key, key_words
from mu2mpi.problem.base import Array
from mu2mpi.registry import find

Integers = NDArray[np.int64]

CLASSES, PIXELS, MACHINES, ROUNDS = 10, 784, 10, 60_000
"""Ten machines, each with as many samples as MNIST."""

RHOS = 4.0, 4.0, 4.0, 0.25
"""Of runs in turn. With the last, the grid is so fine that draws are spread, and messages show no lattice."""

MESSAGES = 1000
"""How many are taken with each noise key: of all machines in some rounds, or of the server in more."""

SIGNED = 0, 1, PAIRS
"""Coordinates of a chunk that tell its noise from any other."""

FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
"""Odd numbers of 64 random-looking bits."""


def attack_structure(
    server: str,
    root: bytes,
    normals: int,
    risk: float,
    communicator: Communicator,
    correlation: Correlation | None = None,
) -> Structure | None:
    """Look for a lattice in the noise that a server's messages carry, and for noise of another size.

    At least so many normals are looked at, and no fewer than one run with each of `RHOS` has. The ranks
    divide the runs, whose noise keys follow from the root; rank 0 returns what was found, the others None.
    Faultless noise may be complained of with probability `risk`, half of it for each of the two. With a
    correlation, it is the noise of messages that are so correlated.
    """
    with communicator.together():
        experiments = [_experiment(server, rho, correlation) for rho in RHOS]
        data = Numbered(MACHINES * ROUNDS, CLASSES, PIXELS)
        schedules = [resolve(experiment, data, 1).schedule for experiment in experiments]
    first = schedules[0]
    runs = max(len(RHOS), -(-normals // (MESSAGES * first.d)))
    mine = block(runs, communicator.size, communicator.rank)
    ours = [_look(schedules[n % len(RHOS)], derive_key(root, "noise", f"structure, run {n}")) for n in mine]
    if (everyones := communicator.gather(ours)) is None:
        return None
    tails, squares, sums, repeated, counts = zip(*chain.from_iterable(everyones), strict=True)
    telling = [tail for n, tail in enumerate(tails) if RHOS[n % len(RHOS)] == RHOS[0]]
    evidence, strongest = lattice_evidence(np.hstack(telling), _scale(first))
    pairs = sum(tail.shape[1] for tail in tails)
    faults = size_faults(sum(squares), np.concatenate(sums), sum(repeated), pairs, risk / 4)
    faults += rounding_faults(sum(counts), risk / 4)
    return Structure(runs * MESSAGES * first.d, pairs, evidence, 2 / risk, strongest, faults)


def _experiment(server: str, rho: float, correlation: Correlation | None) -> Experiment:
    """Return an experiment with real messages, and no more rounds than are looked at if all have to be."""
    settings: dict[str, Any] = {"server": server, "machines": MACHINES, "rounds": ROUNDS, "rho": rho}
    if correlation is not None:
        settings["method"] = "mu2-sgd" if correlation.lasts else "anytime-dp-mf"
        settings["rounds"] = MESSAGES // (1 if find("servers", server).is_central else MACHINES) + 1
        settings |= {"noise_correlation": correlation.power, "noise_buffers": correlation.buffers}
    return Experiment(**settings)


def _look(schedule: Schedule, key: bytes) -> tuple[Array, Array, list[float], int, Array]:
    """Return the tail and the squares of messages under one key, how many chunks are repeated, and more.

    That is what `Innovations` count, if noise is correlated.
    """
    scale, count = _scale(schedule), 0
    tail = np.empty((2, MESSAGES * schedule.d >> TAIL_BITS - 6))
    squares, sums, found, counts = np.zeros(schedule.d), [], [], np.zeros(4)
    for message, hidden in _messages(schedule, key, counts):
        count = collect_tail(message, hidden, scale, tail, count)
        sums.append(add_squares(squares, message, hidden, scale))
        found.append(signatures(message - hidden))
    distinct = np.unique(np.concatenate(found))
    return tail[:, :count], squares, sums, sum(map(len, found)) - len(distinct), counts


def _scale(schedule: Schedule) -> float:
    """Return the standard deviation of what a machine, or the server, draws, in units of the grid."""
    variance = schedule.variances / (1 if schedule.trust.is_central else schedule.machines)
    return math.sqrt(variance) * schedule.mechanism.sigma / schedule.mechanism.resolution


def _messages(schedule: Schedule, key: bytes, counts: Array) -> Iterator[tuple[Integers, Integers]]:
    """Return messages of rounds from all of the run, without masks, each with what it hides.

    If noise is correlated, of all rounds, with the fresh draw as the noise; what is counted goes to `counts`.
    """
    hosts = range(1 if schedule.trust.is_central else schedule.machines)
    rng, count = np.random.default_rng(list(key)), MESSAGES // len(hosts)
    rounds = (np.sort(rng.choice(schedule.rounds - 1, count, replace=False)) + 1).tolist()
    correlation = schedule.mechanism.correlation
    for machine in hosts:
        hosted = range(machine, machine + 1)
        machines, server = machines_and_server(schedule, hosted, _blank, Communicator(), key_words(key))
        innovations = Innovations(correlation, schedule.d) if correlation is not None else None
        for t in rounds:
            server.round(t, machines, Stopwatch())
            message = server.iterates.direction if server.unmasked is None else server.unmasked
            if message is None:
                raise RuntimeError("the server took no step")
            hidden = machines.q
            if innovations is not None:
                fresh = innovations.take(t, (message - hidden).ravel())
                message = hidden + fresh.reshape(hidden.shape)
            yield message, hidden
        if innovations is not None:
            counts += innovations.counts


def _blank(t: int) -> HostedSamples:
    """Return the same sample for any round: what the noise hides is known to the adversary."""
    features, sizes = np.ones((1, PIXELS), FEATURE_TYPE), np.ones((1, 1), np.int64)
    return HostedSamples(features, np.zeros(1, np.int32), np.ones(1), sizes, t)


@kernel
def add_squares(squares, message, hidden, scale):  # type: ignore[no-untyped-def]
    """Add the squares of a message's noise to those of each coordinate, and return their sum.

    What is sent and what it hides are of shape (K, F), in units of the grid, as is the standard deviation
    `scale` of the noise; `squares`, of shape (K F,), are in units of its variance.
    """
    sent, known = message.ravel(), hidden.ravel()
    total = 0.0
    for i in range(sent.size):
        noise = np.float64(sent[i] - known[i]) / scale
        squares[i] += noise * noise
        total += noise * noise
    return total


def signatures(noise: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each whole chunk of a message's noise; equal ones come from the same noise."""
    chunks = noise.ravel()[: noise.size // CHUNK * CHUNK].reshape(-1, CHUNK)
    with np.errstate(over="ignore"):
        found: NDArray[np.uint64] = (chunks[:, SIGNED].astype(np.uint64) * FACTORS).sum(axis=1)
    return found


def size_faults(squares: Array, sums: Array, repeated: int, pairs: int, risk: float) -> tuple[Fault, ...]:
    """Say what is wrong with the size of the noise, or with how often some of it was used.

    The sums of squares of each coordinate and of each message are in units of the variance; so many chunks of
    noise are `repeated`, and so many pairs lie in the tail. Faultless noise errs with probability `risk`.
    Sums of n squares of normals are chi-square, whose cube root is nearly normal (Wilson and Hilferty, "The
    distribution of chi-square", 1931). A Poisson count is at most k as often as a chi-square variable of
    2 k + 2 squares exceeds twice its mean.
    """
    d, messages = len(squares), len(sums)
    limit = NormalDist().inv_cdf(1 - risk / (2 * (d + messages + 2)))
    found: list[Fault] = []
    for what, of_each, n in (
        ("", np.array([math.fsum(sums)]), d * messages),
        (" in coordinate", squares, messages),
        (" in message", sums, d),
    ):
        far = _deviations(of_each, n)
        for is_less, worst in ((True, int(far.argmin())), (False, int(far.argmax()))):
            if (-far[worst] if is_less else far[worst]) > limit:
                size, where = math.sqrt(of_each[worst] / n), f"{what} {worst}" if what else ""
                found.append((is_less, f"noise of real messages has {size:.4g} of its deviation{where}"))
    expected = messages * (d // CHUNK * PAIRS + max(0, d % CHUNK - PAIRS)) * 2.0**-TAIL_BITS
    words = f"the noise has {pairs:,} pairs in its tail where {expected:.4g} are expected"
    mean = np.array([2 * expected])
    if _deviations(mean, 2 * pairs + 2)[0] > limit:
        found.append((True, words))
    if pairs and _deviations(mean, 2 * pairs)[0] < -limit:
        found.append((False, words))
    if repeated:
        found.append((True, f"{repeated:,} chunks of the noise of real messages were used before"))
    return tuple(found)


def _deviations(sums: Array, n: int) -> Array:
    """Return how many standard deviations sums of n squares of normals are above what is expected."""
    variance = 2 / (9 * n)
    deviations: Array = (np.cbrt(sums / n) - (1 - variance)) / math.sqrt(variance)
    return deviations
