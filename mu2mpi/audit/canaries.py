"""Data sets of which every sample is one of two by a coin, as far apart as increments can be."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.partition import machine_rows
from mu2mpi.data.source import Labels, Samples, Source, Which
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.machine import HostedSamples, Supply
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.sample_reader import make_supply
from mu2mpi.federation.servers.server import machines_and_server
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.noise_stream import MAX_NUMBER, key_words

FEATURE_TYPE = np.uint8
Integers = NDArray[np.int64]
Kinds = NDArray[np.bool_]  # whether each canary is of the second kind: shape (..., canaries)
FAR = 160.0  # entries of chosen query points: a model is as sure as it gets, and no square overflows
CLASSES, PIXELS = 10, 784  # those of MNIST
# Numbers of machines and rounds: if they are cut to k bits, or rounded to a mantissa of k, some coincide.
BOUNDARIES = sorted(
    {*range(12), *(2**bit + step for bit in range(16, 32) for step in (-1, 0, 1)), MAX_NUMBER - 1}
)


class Numbered(Source):
    """Samples that are the same but for their labels, the row numbers; as many classes are needed to read."""

    name, test_samples, scale = "canary", 1, 1.0

    def __init__(self, samples: int, classes: int, dimension: int = 1) -> None:
        self.training_samples, self.classes, self.dimension = samples, classes, dimension

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        """Return samples of ones, each labelled by its number."""
        return Samples(np.ones((len(rows), self.dimension), FEATURE_TYPE), rows.astype(np.int32))


def real_schedule(pixels: int = PIXELS, **settings: Any) -> RunConstants:
    """Constants of a run with messages of ten classes and so many features, by default of a long one."""
    experiment = Experiment.make({"machines": 10, "rounds": 60_000, "rho": 4.0, **settings})
    samples = (experiment.machines or 1) * (experiment.rounds or 1)
    return resolve(experiment, Numbered(samples, CLASSES, pixels), 1).constants


def one_machine(constants: RunConstants, i: int, communicator: Communicator, key: bytes) -> Any:
    """Machine i, with the same sample in any round, so that what the noise hides is known, and its server."""
    features, sizes = np.ones((1, constants.task.features - 1), FEATURE_TYPE), np.ones((1, 1), np.int64)
    supply = partial(HostedSamples, features, np.zeros(1, np.int32), np.ones(1), sizes)
    return machines_and_server(constants, range(i, i + 1), supply, communicator, key_words(key))


@dataclass(frozen=True)
class WorstCase:
    """Settings and samples with which increments are as long, and as far apart, as the guarantee allows."""

    words: str
    clip_norm: float | None
    diameter: float
    steps: float  # how large they are, relative to the largest that smoothness allows, where rho is 1 or more
    chosen: bool  # whether the audit chooses query points, and samples differ in their feature (or 1) as well

    def label(self, t: int) -> int:
        """Return the class of a sample of round t that is of the first kind; the second has the other."""
        return t % 2 if self.chosen else 0

    def query_point(self, t: int, rows: int) -> Array:
        """Return x_t of one or two rows where the audit chooses it: both kinds of samples change sides."""
        row = FAR * np.array([1.0, -0.5]) * (-1) ** t
        return np.array([-row, row])[-rows:]

    def reach(self, constants: RunConstants, t: int) -> float:
        """Return how far apart increments of both kinds lie in round t, in units of twice the norm."""
        C = unweighted_norm(constants)
        z = constants.task.scaling.samples(np.array([[1], [1 - self.chosen]], FEATURE_TYPE), Numbered.scale)
        x, x_previous = (self.query_point(k, constants.task.rows) * self.chosen for k in (t, t - 1))
        ends = []
        for kind, sample in enumerate(z):
            labels = labels_of(np.full(2, self.label(t) ^ kind, np.int32), constants)
            margins = np.array([x @ sample, x_previous @ sample])
            c, c_previous = constants.task.problem.losses_and_residuals(margins, labels)[1]
            if constants.estimator.lasts:
                c += (t - 1) * (c - c_previous)
            norm = np.linalg.norm(c) * np.linalg.norm(sample)
            ends.append(np.outer(c, sample) * min(1.0, C / norm))
        return float(np.linalg.norm(ends[0] - ends[1]) / (2 * C))


# Samples of both classes have opposite increments, far longer than the clipping norm, and no iterate comes
# near the surface of the ball
CLIPPED = WorstCase("with a clipping norm", 0.01, 100.0, 1.0, chosen=False)
# By the third round increments between far query points are longer than S = G + 2 L D
UNCLIPPED = WorstCase("with the default norm", None, 1.0, 1e-3, chosen=True)


def unweighted_norm(constants: RunConstants) -> float:
    """Return the norm to which increments are clipped before they get the weight of their machine."""
    # The largest weight is 1.
    members = constants.task.per_machine
    return constants.mechanism.clip_norm if members is None else float(members.clip_norms().max())


def labels_of(classes: NDArray[np.int32], constants: RunConstants) -> Labels:
    """Return labels of samples of two classes as the loss takes them: numbers are the ends of their range."""
    return classes if constants.task.problem.labels == "classes" else 2 * classes.astype(np.float64) - 1


class Canaries:
    """Samples that an audit attacks, and what machines get; 32 bytes of `dealing` decide who gets which.

    Each has a machine, from 0, the round that uses it first, from 1, and the rounds of all messages that
    depend on it. With random sampling there is one, and rounds mean nothing.
    """

    def __init__(self, constants: RunConstants, case: WorstCase, dealing: bytes) -> None:
        self.constants, self.case = constants, case
        count, sampling, members = constants.task.machines, constants.sampling, constants.task.per_machine
        samples = count * sampling.owned
        # These read the numbers of samples; every run reads the same unless they are drawn.
        self._reader = partial(make_supply, Numbered(samples, samples), constants, dealing, partition="iid")
        self._fixed_reader = cache(lambda hosted: cache(self._reader(hosted, sampling_key=bytes(32))))
        every, present = range(1, constants.rounds + 1), np.ones((constants.rounds, count), bool)
        if members is not None:
            present = members.participation.participates(every, range(count))
        self.there: list[NDArray[np.int64]] = [np.flatnonzero(of_one) + 1 for of_one in present.T]
        # Noise that is correlated tells of a sample also in rounds after its own.
        self.stays = constants.estimator.lasts or constants.mechanism.correlation is not None
        if sampling.chance:
            weights = np.ones(count) if members is None else members.weights
            telling = weights * np.sqrt([len(rounds) for rounds in self.there])
            of_all = [(1, count - 1 - int(telling[::-1].argmax()), 0, [1])]
        else:
            of_all = sorted(chain.from_iterable(map(self._of_machine, range(count))))
        self.rounds, self.machines, places = np.array([of_one[:3] for of_one in of_all]).T
        self.messages = [messages for *_, messages in of_all]
        dealt = machine_rows(samples, count, sampling.owned, dealing, range(count))
        self._rows = dealt[places, self.machines]
        self._places = np.empty(dealt.size, np.int64)
        self._places[dealt] = np.arange(len(dealt))[:, np.newaxis]
        self._labels = np.zeros(dealt.size, np.int32)
        times = np.searchsorted([sampling.used(t) for t in every], np.arange(sampling.owned), "right")
        for rows, there in zip(dealt.T, self.there, strict=True):
            # What is never used is of any class.
            rounds = np.append(there, np.zeros(len(every) + 1, np.int64))[times]
            self._labels[rows] = [case.label(t) for t in rounds.tolist()]

    def _of_machine(self, machine: int) -> Iterator[tuple[int, int, int, list[int]]]:
        """Return the round of each canary of a machine, whose it is, its number there, and its messages."""
        sampling, is_central = self.constants.sampling, self.constants.task.trust.is_central
        # What the machines of a central server send in the last round goes nowhere.
        last = self.constants.rounds - is_central
        there = [t for t in self.there[machine].tolist() if t <= last]
        taken = sampling.take(bytes(32), range(1), range(1, len(there) + 1))
        used_in = np.repeat(there, taken.sizes[:, 0])
        for k, t in enumerate(there):
            if sampling.used(k + 1) > (place := sampling.used(k)):
                messages: list[int] = used_in[taken.places == place].tolist()
                if self.stays:
                    messages = list(range(t, last + 1)) if is_central else there[k:]
                yield t, machine, place, messages

    def mechanism(self, machine: int) -> Mechanism:
        """Return what hides the messages of a machine, or if it sends none, those of another."""
        members = self.constants.task.per_machine
        own = None if members is None else members.mechanisms_of(range(machine, machine + 1))[0]
        return own or self.constants.mechanism

    def claims(self, budget: Budget) -> list[Budget]:
        """Return what is claimed of each canary: by default a budget, or what its machine states if less."""
        members, found = self.constants.task.per_machine, []
        for machine in self.machines.tolist():
            own = budget if members is None else members.unequal.budgets.get(machine, budget)
            mechanism, epsilon = self.mechanism(machine), own.epsilon
            rho = math.inf if (stated := mechanism.stated_rho) is None else stated
            if members is not None and (math.isinf(epsilon) or rho < own.rho * (1 - 1e-9)):
                epsilon = min(epsilon, mechanism.guarantee().epsilon(own.delta))
            found.append(Budget(min(rho, own.rho) if members else rho, epsilon, own.delta))
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def supply(self, hosted: range, kinds: Kinds, sampling: bytes = bytes(32)) -> Supply:
        """Return what some machines get; 32 bytes of `sampling` decide what they draw, where they do."""
        labels, features = self._labels.copy(), np.ones((len(self._labels), 1), FEATURE_TYPE)
        labels[self._rows] ^= kinds
        if self.case.chosen:
            features[self._rows, 0] = ~kinds
        is_drawn = self.constants.sampling.chance
        read = self._reader(hosted, sampling_key=sampling) if is_drawn else self._fixed_reader(hosted)

        def supply(t: int) -> HostedSamples:
            numbered = read(t)
            rows = numbered.labels
            return replace(numbered, labels=labels_of(labels[rows], self.constants), features=features[rows])

        return supply

    def draws(self, hosted: range, sampling: bytes) -> NDArray[np.int64]:
        """Return how often each sample of some machines is drawn: shape (rounds, machines, samples)."""
        read = self._reader(hosted, sampling_key=sampling)
        shape = self.constants.rounds, len(hosted), self.constants.sampling.owned
        counts, t = np.zeros(shape, np.int64), 1
        while t <= self.constants.rounds:
            samples = read(t)
            sizes = samples.sizes.ravel()
            cells = (t - 1) * len(hosted) + np.repeat(np.arange(sizes.size), sizes)
            np.add.at(counts.reshape(-1, shape[2]), (cells, self._places[samples.labels]), 1)
            t += len(samples.sizes)
        return counts
