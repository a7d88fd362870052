"""Sample reader: reads the batches of the hosted machines some rounds at a time, in bounded memory."""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from mu2mpi.core.arrays import IntArray
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import DataSource, Samples
from mu2mpi.federation.batching import BatchIndices, Batching
from mu2mpi.federation.machine import HostedSamples, SampleReader
from mu2mpi.federation.participants import RunParticipation, rounds_per_chunk
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.subsampling import repeat_machine_indices

# Callable(indices, machines): samples by their index within the machine, and the machine's local index
RowReader = Callable[[IntArray, IntArray], Samples]


def make_sample_reader(
    source: DataSource,
    constants: RunConstants,
    partition_key: bytes,
    hosted_machines: range,
    partition: str,
    sampling_key: bytes,
) -> SampleReader:
    """Return a reader of the hosted machines' batches; InputError if they have too few samples.

    Batches do not depend on how many rounds are read at once. Both keys have 32 bytes: `partition_key`
    determines the partition, or the samples drawn from a population, and `sampling_key` random batches.
    """
    batching, rounds, scaling = constants.batching, constants.rounds, constants.problem.feature_scaling
    plan = constants.problem.per_machine_plan
    read_rows = _row_reader(source, constants, partition_key, hosted_machines, partition)
    max_samples, hosted = math.inf, len(hosted_machines)  # per machine and read
    if hosted:
        max_samples = source.chunk_size(round(hosted * batching.processed_samples_until(rounds))) / hosted
    is_full_batch = batching.is_full_batch and plan is None

    def next_batches(remaining_rounds: range) -> BatchIndices:
        """Return the batches of the next rounds, of as many rounds as fit in memory."""
        if plan is not None:
            return _participant_batches(
                plan.participation, batching, sampling_key, hosted_machines, remaining_rounds, max_samples
            )
        before = batching.processed_samples_until(remaining_rounds.start - 1)
        seen = lambda t: batching.processed_samples_until(t) - before  # noqa: E731
        count = 1 if is_full_batch else max(1, bisect_right(remaining_rounds, max_samples, key=seen))
        return batching.batches(sampling_key, hosted_machines, remaining_rounds[:count])

    def read_rounds(t: int) -> HostedSamples:
        remaining_rounds = range(t, rounds + 1)
        indices, sizes = next_batches(remaining_rounds)
        samples = read_rows(indices, repeat_machine_indices(sizes))
        scales = scaling.scale_factors(samples.features, source.feature_scale)
        if is_full_batch:
            sizes = np.broadcast_to(sizes, (len(remaining_rounds), hosted))
        return HostedSamples(samples.features, samples.labels, scales, sizes, t, scaling.bias_feature)

    return read_rounds


def _participant_batches(
    participation: RunParticipation,
    batching: Batching,
    key: bytes,
    hosted_machines: range,
    remaining_rounds: range,
    max_samples: float,
) -> BatchIndices:
    """Return batches of unequal machines: a machine's k-th batch is for its k-th participation."""
    chunk = remaining_rounds[: rounds_per_chunk(participation.machines)]
    matrix = participation.participation_matrix(chunk, hosted_machines)
    expected = np.cumsum(matrix.sum(axis=1)) * batching.batch_size(1)
    matrix = matrix[: max(1, np.searchsorted(expected, max_samples * len(hosted_machines), side="right"))]
    counts_before = participation.counts_until(remaining_rounds.start - 1)
    sizes, indices, rounds = np.zeros(matrix.shape, np.int64), [], []
    for column, machine in enumerate(hosted_machines):
        rows, first = np.flatnonzero(matrix[:, column]), int(counts_before[machine]) + 1
        batches = batching.batches(key, range(machine, machine + 1), range(first, first + len(rows)))
        sizes[rows, column] = batches.sizes[:, 0]
        indices.append(batches.indices)
        rounds.append(np.repeat(rows, batches.sizes[:, 0]))
    if not indices:
        return BatchIndices(np.empty(0, np.int64), sizes)
    order = np.argsort(np.concatenate(rounds), kind="stable")
    return BatchIndices(np.concatenate(indices)[order], sizes)


def _row_reader(
    source: DataSource, constants: RunConstants, key: bytes, hosted_machines: range, partition: str
) -> RowReader:
    """Return a function that reads samples of a training set, or generates those of a population."""
    if not source.has_known_distribution:
        counts = constants.problem.machines, constants.batching.samples_per_machine
        rows = parse_partition(partition).rows(source, *counts, key, hosted_machines)
        return lambda indices, machines: source.read_training(rows[indices, machines])

    def generate_rows(indices: IntArray, machines: IntArray) -> Samples:
        features = np.empty((len(indices), source.dimension), source.support.dtype)
        labels = np.empty(len(indices), np.int32)
        order = np.argsort(machines, kind="stable")
        ends = np.cumsum(np.bincount(machines, minlength=len(hosted_machines)))
        # The last part, behind the last machine, is empty.
        for machine, positions in zip(hosted_machines, np.split(order, ends), strict=False):
            generated = source.generate_samples(key, machine, constants.problem.machines, indices[positions])
            features[positions], labels[positions] = generated.features, generated.labels
        return source.encode_labels(Samples(features, labels))

    return generate_rows
