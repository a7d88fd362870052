"""Canaries: samples with two random variants (the second may be zero), with increments far apart."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.partition import iid_rows
from mu2mpi.data.source import DataSource, Labels, Samples, SplitName
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.federation.machine import HostedSamples, SampleReader
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.noise_stream import MAX_STREAM_INDEX, key_to_uint32

FEATURE_DTYPE = np.uint8
QUERY_POINT_MAGNITUDE = 160.0  # entry of chosen query points: margins saturate, and squares do not overflow
MNIST_CLASSES = 10  # of MNIST
MNIST_PIXELS = 784  # of MNIST
# Machine and round numbers that would coincide if they were truncated or rounded to k bits
TRUNCATION_TEST_INDICES = [2**bit + step for bit in range(16, 32) for step in (-1, 0, 1)]
BOUNDARY_INDICES = sorted({*range(12), *TRUNCATION_TEST_INDICES, MAX_STREAM_INDEX - 1})


class CanarySource(DataSource):
    """Source of samples whose features are all ones and whose labels are their row numbers."""

    name, test_samples, feature_scale = "canary", 1, 1.0

    def __init__(self, samples: int, classes: int, dimension: int = 1) -> None:
        self.training_samples, self.classes, self.dimension = samples, classes, dimension

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        """Return samples whose features are ones and whose labels are the given row numbers."""
        return Samples(np.ones((len(rows), self.dimension), FEATURE_DTYPE), rows.astype(np.int32))


def mnist_sized_constants(pixels: int = MNIST_PIXELS, **settings: Any) -> RunConstants:
    """Run constants with MNIST-sized messages; by default of 60,000 rounds on 10 machines."""
    experiment = Experiment.from_settings({"machines": 10, "rounds": 60_000, "rho": 4.0, **settings})
    samples = (experiment.machines or 1) * (experiment.rounds or 1)
    return resolve_plan(experiment, CanarySource(samples, MNIST_CLASSES, pixels), 1).constants


def create_single_machine(constants: RunConstants, i: int, communicator: Communicator, key: bytes) -> Any:
    """Create machine i, with the same known sample in every round, and its server."""
    features, sizes = np.ones((1, constants.problem.features - 1), FEATURE_DTYPE), np.ones((1, 1), np.int64)
    reader = partial(HostedSamples, features, np.zeros(1, np.int32), np.ones(1), sizes)
    return create_machines_and_server(constants, range(i, i + 1), reader, communicator, key_to_uint32(key))


@dataclass(frozen=True)
class WorstCase:
    """Settings and samples with increments as long and as distant as the privacy guarantee permits."""

    name: str
    clip_norm: float | None  # None: the default S = G + 2LD
    diameter: float
    step_scale: float  # step size relative to 1/(4LT), for rho of at least 1
    chooses_query_points: bool  # whether the audit sets x_t, and the variants differ in the feature as well

    def class_label(self, t: int) -> int:
        """Class (0 or 1) of the first variant of a sample in round t; the second variant has the other."""
        return t % 2 if self.chooses_query_points else 0

    def query_point(self, t: int, rows: int) -> FloatArray:
        """Return the chosen query point x_t, of one or two rows, whose sign alternates between rounds."""
        row = QUERY_POINT_MAGNITUDE * np.array([1.0, -0.5]) * (-1) ** t
        return np.array([-row, row])[-rows:]

    def increment_separation(self, constants: RunConstants, t: int) -> float:
        """Return the distance between both variants' increments in round t, over the sensitivity."""
        # Before multiplication by the weight of the machine, of which the largest is 1
        plan = constants.problem.per_machine_plan
        mechanisms = (constants.mechanism,) if plan is None else plan.mechanisms
        C = max(mechanism.clip_norm for mechanism in mechanisms)
        features = np.array([[1], [1 - self.chooses_query_points]], FEATURE_DTYPE)
        z = constants.problem.feature_scaling.scaled_samples(features, CanarySource.feature_scale)
        points = np.array([self.query_point(k, constants.problem.model_rows) for k in (t, t - 1)])
        points *= self.chooses_query_points
        labels = encode_labels(self.class_label(t) ^ np.arange(2, dtype=np.int32), constants)
        increment = partial(constants.estimator.increment, constants.problem.loss, points)
        increments = [increment(*sample, t, C) for sample in zip(z, labels, strict=True)]
        if (neighbours := constants.problem.neighbours) == "zero-out":
            increments[1] = np.zeros_like(increments[0])
        sensitivity = constants.mechanism.unit_sensitivities[neighbours] * C
        return float(np.linalg.norm(increments[0] - increments[1]) / sensitivity)


# The variants have opposite increments, far longer than the clipping norm, and iterates stay inside the ball
CLIPPED_CASE = WorstCase("with a clipping norm", 0.01, 100.0, 1.0, chooses_query_points=False)
# For second moments: a clipping norm would leave gradients, in which the variants differ, little weight
MOMENTS_CASE = WorstCase("with moments of full weight", None, 100.0, 1e-3, chooses_query_points=False)
# From round 3 on, increments between distant query points are longer than S = G + 2 L D
UNCLIPPED_CASE = WorstCase("with the default norm", None, 1.0, 1e-3, chooses_query_points=True)


def encode_labels(classes: NDArray[np.int32], constants: RunConstants) -> Labels:
    """Return classes 0 and 1 as labels of the problem's loss: classes, or -1 and 1 for numeric labels."""
    return classes if constants.problem.loss.label_kind == "classes" else 2 * classes.astype(np.float64) - 1


class Canaries:
    """Canaries of an audit, and the samples of all machines.

    Each canary has a machine (from 0), the round of its first use (from 1), and the rounds of all messages
    that depend on it. With random subsampling there is a single canary, and its round is meaningless. The
    partition key of 32 bytes determines the partition of the samples among machines.
    """

    def __init__(self, constants: RunConstants, case: WorstCase, partition_key: bytes) -> None:
        self.constants, self.case = constants, case
        batching, plan = constants.batching, constants.problem.per_machine_plan
        count = constants.problem.machines
        samples = count * batching.samples_per_machine
        # The readers return row numbers, the same in every run unless batches are subsampled at random.
        source = CanarySource(samples, samples)
        self._create_reader = partial(make_sample_reader, source, constants, partition_key, partition="iid")
        self._cached_reader = cache(lambda hosted: cache(self._create_reader(hosted, sampling_key=bytes(32))))
        every_round, participates = range(1, constants.rounds + 1), np.ones((constants.rounds, count), bool)
        if plan is not None:
            participates = plan.participation.participation_matrix(every_round, range(count))
        self.participation_rounds: list[IntArray] = [np.flatnonzero(row) + 1 for row in participates.T]
        # Correlated noise reveals information on a sample in later rounds as well.
        is_correlated = constants.mechanism.correlation is not None
        self.affects_later_rounds = constants.estimator.is_cumulative or is_correlated
        if batching.subsampling:
            weights = np.ones(count) if plan is None else plan.weights
            exposure = weights * np.sqrt([len(rounds) for rounds in self.participation_rounds])
            table = [(1, count - 1 - int(exposure[::-1].argmax()), 0, [1])]
        else:
            table = sorted(chain.from_iterable(map(self._canaries_of_machine, range(count))))
        self.rounds, self.machines, indices = np.array([row[:3] for row in table]).T
        self.message_rounds = [rounds for *_, rounds in table]
        partition = iid_rows(samples, count, batching.samples_per_machine, partition_key, range(count))
        self._canary_rows = partition[indices, self.machines]
        self._index_in_machine = np.empty(partition.size, np.int64)
        self._index_in_machine[partition] = np.arange(len(partition))[:, np.newaxis]
        self._row_labels = np.zeros(partition.size, np.int32)
        ends = [batching.distinct_samples_until(t) for t in every_round]
        first_uses = np.searchsorted(ends, np.arange(batching.samples_per_machine), "right")
        for rows, active in zip(partition.T, self.participation_rounds, strict=True):
            # Unused samples get an arbitrary class.
            rounds = np.append(active, np.zeros(constants.rounds + 1, np.int64))[first_uses]
            self._row_labels[rows] = [case.class_label(t) for t in rounds.tolist()]

    def _canaries_of_machine(self, machine: int) -> Iterator[tuple[int, int, int, list[int]]]:
        """Yield round, machine, sample index in the machine, and rounds of dependent messages per canary."""
        batching, is_central = self.constants.batching, self.constants.problem.trust_mode.is_central
        # A central server does not use the messages of the last round.
        last = self.constants.rounds - is_central
        active = [t for t in self.participation_rounds[machine].tolist() if t <= last]
        numbers = np.arange(1, len(active) + 1)
        batches = batching.batches(bytes(32), np.zeros_like(numbers), numbers)
        rounds_used = np.repeat(active, batches.sizes)
        for k, t in enumerate(active):
            if batching.distinct_samples_until(k + 1) > (index := batching.distinct_samples_until(k)):
                messages: list[int] = rounds_used[batches.indices == index].tolist()
                if self.affects_later_rounds:
                    messages = list(range(t, last + 1)) if is_central else active[k:]
                yield t, machine, index, messages

    def mechanism(self, machine: int) -> Mechanism:
        """Privacy mechanism of a machine, or the main mechanism if the machine never participates."""
        plan = self.constants.problem.per_machine_plan
        index = -1 if plan is None else plan.mechanism_index[machine]
        return self.constants.mechanism if plan is None or index < 0 else plan.mechanisms[index]

    def claimed_budgets(self, budget: Budget) -> list[Budget]:
        """Return the privacy claim for each canary: a budget, or the stronger guarantee of its machine."""
        plan, claims = self.constants.problem.per_machine_plan, []
        for machine in self.machines.tolist():
            own = budget if plan is None else plan.unequal_machines.budgets.get(machine, budget)
            mechanism, epsilon = self.mechanism(machine), own.epsilon
            rho = math.inf if (stated := mechanism.stated_rho) is None else stated
            if plan is not None and (math.isinf(epsilon) or rho < own.rho * (1 - 1e-9)):
                epsilon = min(epsilon, mechanism.guarantee().epsilon(own.delta))
            claims.append(Budget(min(rho, own.rho) if plan else rho, epsilon, own.delta))
        return claims

    def __len__(self) -> int:
        return len(self._canary_rows)

    def sample_reader(
        self, hosted_machines: range, variants: BoolArray, batch_key: bytes = bytes(32)
    ) -> SampleReader:
        """Return a reader of the samples of hosted machines; a 32-byte key determines random batches."""
        labels, features = self._row_labels.copy(), np.ones((len(self._row_labels), 1), FEATURE_DTYPE)
        zeroed, is_zero_out = np.zeros(len(labels), bool), self.constants.problem.neighbours == "zero-out"
        zeroed[self._canary_rows] = variants & is_zero_out
        variants = variants & (not is_zero_out)
        labels[self._canary_rows] ^= variants
        if self.case.chooses_query_points:
            features[self._canary_rows, 0] = ~variants
        if self.constants.batching.subsampling:
            read = self._create_reader(hosted_machines, sampling_key=batch_key)
        else:
            read = self._cached_reader(hosted_machines)

        def read_samples(t: int) -> HostedSamples:
            samples = read(t)
            rows = samples.labels
            encoded = encode_labels(labels[rows], self.constants)
            # Samples that are not finite contribute zero.
            scales = np.where(zeroed[rows], np.nan, samples.feature_scales)
            return replace(samples, labels=encoded, features=features[rows], feature_scales=scales)

        return read_samples

    def inclusion_counts(self, hosted_machines: range, batch_key: bytes) -> IntArray:
        """Count the inclusions of each sample in batches; shape (rounds, machines, samples)."""
        read = self._create_reader(hosted_machines, sampling_key=batch_key)
        shape = self.constants.rounds, len(hosted_machines), self.constants.batching.samples_per_machine
        counts, t = np.zeros(shape, np.int64), 1
        while t <= self.constants.rounds:
            samples = read(t)
            sizes = samples.batch_sizes.ravel()
            cells = (t - 1) * len(hosted_machines) + np.repeat(np.arange(sizes.size), sizes)
            np.add.at(counts.reshape(-1, shape[2]), (cells, self._index_in_machine[samples.labels]), 1)
            t += len(samples.batch_sizes)
        return counts
