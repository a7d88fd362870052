"""The noise of messages on the dimensions of a real run: tail, size, low bits, and repetitions."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import FEATURE_TYPE, Numbered
from mu2mpi.audit.innovations import Innovations, rounding_faults
from mu2mpi.audit.residues import count_residues, residue_faults, zero_residue_counts
from mu2mpi.audit.structure import TAIL_BITS, Fault, Structure, collect_tail, lattice_evidence
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.machine import HostedSamples, Supply
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

SIGNED = 0, 1, 2, PAIRS, PAIRS + 1, PAIRS + 2
"""Coordinates of a chunk that tell its noise from any other, whose deviation has 12 bits or more."""

FACTORS = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
    ],
    np.uint64,
)
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
    Faultless noise may be complained of with probability `risk`, half of it for lattices. With a correlation,
    it is the noise of messages that are so correlated.
    """
    with communicator.together():
        experiments = [noise_experiment(server, rho, correlation) for rho in RHOS]
        data = Numbered(MACHINES * ROUNDS, CLASSES, PIXELS)
        schedules = [resolve(experiment, data, 1).schedule for experiment in experiments]
    first = schedules[0]
    runs = max(len(RHOS), -(-normals // (MESSAGES * first.d)))
    mine = block(runs, communicator.size, communicator.rank)
    ours = [_look(schedules[n % len(RHOS)], derive_key(root, "noise", f"structure, run {n}")) for n in mine]
    if (everyones := communicator.gather(ours)) is None:
        return None
    tails, squares, sums, repeated, residues, counts = zip(*chain.from_iterable(everyones), strict=True)
    telling = [tail for n, tail in enumerate(tails) if RHOS[n % len(RHOS)] == RHOS[0]]
    evidence, strongest = lattice_evidence(np.hstack(telling), noise_scale(first))
    pairs = sum(tail.shape[1] for tail in tails)
    faults = size_faults(sum(squares), np.concatenate(sums), sum(repeated), pairs, risk / 4)
    faults += rounding_faults(sum(counts), risk / 8)
    for n, rho in enumerate(RHOS):
        if rho not in RHOS[:n]:
            of_rho = sum(count for k, count in enumerate(residues) if RHOS[k % len(RHOS)] == rho)
            faults += residue_faults(of_rho, noise_scale(schedules[n]), risk / (8 * len(set(RHOS))))
    return Structure(runs * MESSAGES * first.d, pairs, evidence, 2 / risk, strongest, faults)


def noise_experiment(server: str, rho: float, correlation: Correlation | None, **own: Any) -> Experiment:
    """Return an experiment with real messages, and no more rounds than are looked at if all have to be.

    The server may have options of its `own`.
    """
    settings: dict[str, Any] = {"server": server, "machines": MACHINES, "rounds": ROUNDS, "rho": rho, **own}
    if correlation is not None:
        settings["method"] = "mu2-sgd" if correlation.lasts else "anytime-dp-mf"
        settings["rounds"] = MESSAGES // (1 if find("servers", server).is_central else MACHINES) + 1
        settings |= {"noise_correlation": correlation.power, "noise_buffers": correlation.buffers}
    return Experiment(**settings)


class NoiseStatistics:
    """Statistics of the noise of messages.

    Attributes
    ----------
    squares : ndarray of float64, shape (d,)
        Sum over messages of the square of each coordinate, in units of the variance.
    sums : list of float
        Sum over coordinates of these squares, for each message.
    residues : ndarray of int64
        Counts of low bytes, as of `count_residues`.
    """

    def __init__(self, d: int, scale: float, messages: int) -> None:
        self._scale, self._pairs = scale, 0
        self._tail = np.empty((2, messages * d >> TAIL_BITS - 6))
        self._signatures: list[NDArray[np.uint64]] = []
        self.squares, self.residues = np.zeros(d), zero_residue_counts()
        self.sums: list[float] = []

    def add(self, message: Integers, hidden: Integers, noise: Integers) -> None:
        """Add a message, given what it hides and the integers that were added to that."""
        self._pairs = collect_tail(message, hidden, self._scale, self._tail, self._pairs)
        self.sums.append(add_squares(self.squares, message, hidden, self._scale))
        self._signatures.append(signatures(message - hidden))
        count_residues(self.residues, noise)

    @property
    def tail(self) -> Array:
        """Pairs of normals far from the centre, shape (2, pairs)."""
        return self._tail[:, : self._pairs]

    @property
    def repeated(self) -> int:
        """Number of chunks whose noise occurred before."""
        found = np.concatenate(self._signatures)
        return len(found) - len(np.unique(found))


def _look(schedule: Schedule, key: bytes) -> tuple[Array, Array, list[float], int, Integers, Array]:
    """Return statistics of messages under one key, the last of them what `Innovations` count."""
    counts = np.zeros(4)
    found = NoiseStatistics(schedule.d, noise_scale(schedule), MESSAGES)
    for message, hidden, noise in _messages(schedule, key, counts):
        found.add(message, hidden, noise)
    return found.tail, found.squares, found.sums, found.repeated, found.residues, counts


def noise_scale(schedule: Schedule) -> float:
    """Return the standard deviation of what a machine, or the server, draws, in units of the grid."""
    variance = schedule.variances / (1 if schedule.trust.is_central else schedule.machines)
    return math.sqrt(variance) * schedule.mechanism.sigma / schedule.mechanism.resolution


def _messages(schedule: Schedule, key: bytes, counts: Array) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Return messages of rounds from all of the run, without masks, each with what it hides and its noise.

    If noise is correlated, of all rounds, and messages have the fresh draw alone; what is counted goes to
    `counts`.
    """
    hosts = range(1 if schedule.trust.is_central else schedule.machines)
    rng, count = np.random.default_rng(list(key)), MESSAGES // len(hosts)
    rounds = (np.sort(rng.choice(schedule.rounds - 1, count, replace=False)) + 1).tolist()
    for machine in hosts:
        yield from messages_of_machine(schedule, key, machine, rounds, counts)


def messages_of_machine(
    schedule: Schedule, key: bytes, machine: int, rounds: Iterable[int], counts: Array
) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Return the same of one machine, or of a central server."""
    hosted, supply = range(machine, machine + 1), blank_supply(schedule)
    machines, server = machines_and_server(schedule, hosted, supply, Communicator(), key_words(key))
    correlation = schedule.mechanism.correlation
    innovations = Innovations(correlation, schedule.d) if correlation is not None else None
    for t in rounds:
        server.round(t, machines, Stopwatch())
        message = server.iterates.direction if server.unmasked is None else server.unmasked
        if message is None:
            raise RuntimeError("the server took no step")
        hidden, noise = machines.q, message - machines.q
        if innovations is not None:
            message = hidden + innovations.take(t, noise.ravel()).reshape(hidden.shape)
        yield message, hidden, noise
    if innovations is not None:
        counts += innovations.counts


def blank_supply(schedule: Schedule) -> Supply:
    """Supply of the same sample for any round: what the noise hides is known to the adversary."""
    features, sizes = np.ones((1, schedule.features - 1), FEATURE_TYPE), np.ones((1, 1), np.int64)
    sample = features, np.zeros(1, np.int32), np.ones(1), sizes
    return partial(HostedSamples, *sample)


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


def size_faults(
    squares: Array,
    sums: Array,
    repeated: int,
    pairs: int,
    risk: float,
    message_name: Callable[[int], str] = "message {}".format,
) -> tuple[Fault, ...]:
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
    for name, of_each, n in (
        (None, np.array([math.fsum(sums)]), d * messages),
        ("coordinate {}".format, squares, messages),
        (message_name, sums, d),
    ):
        far = _deviations(of_each, n)
        for is_less, worst in ((True, int(far.argmin())), (False, int(far.argmax()))):
            if (-far[worst] if is_less else far[worst]) > limit:
                size, where = math.sqrt(of_each[worst] / n), f" in {name(worst)}" if name else ""
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
