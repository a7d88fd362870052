"""Sample reader: reads the batches of the hosted machines some rounds at a time, in bounded memory."""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from mu2mpi.core.arrays import IntArray
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import DataSource, Samples
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.machine import HostedSamples, SampleReader
from mu2mpi.federation.participants import RunParticipation
from mu2mpi.federation.run_constants import RunConstants

# Callable(indices, machines): samples by their index within the machine, and the machine's local index
RowReader = Callable[[IntArray, IntArray], Samples]
# Batches to read: number of rounds; row, machine (from 0) and participation count (from 1) of each batch
RequestedBatches = tuple[int, IntArray, IntArray, IntArray]


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

    def next_batches(remaining_rounds: range) -> RequestedBatches:
        """Return the batches of the next rounds, of as many rounds as fit in memory."""
        if plan is not None:
            t = remaining_rounds.start
            return _participant_batches(plan.participation, batching, hosted_machines, t, max_samples)
        before = batching.processed_samples_until(remaining_rounds.start - 1)
        seen = lambda t: batching.processed_samples_until(t) - before  # noqa: E731
        count = max(1, bisect_right(remaining_rounds, max_samples, key=seen))
        row, column = np.divmod(np.arange(count * hosted), max(1, hosted))
        return count, row, column + hosted_machines.start, row + remaining_rounds.start

    def read_rounds(t: int) -> HostedSamples:
        same_rounds = 1 if plan is not None else batching.rounds_with_same_batches(t)
        requested_rounds = range(t, rounds + 1) if same_rounds == 1 else range(t, t + 1)
        count, row, machines, participation_counts = next_batches(requested_rounds)
        indices, batch_sizes = batching.batches(sampling_key, machines, participation_counts)
        columns = machines - hosted_machines.start
        samples = read_rows(indices, np.repeat(columns, batch_sizes))
        scales = scaling.scale_factors(samples.features, source.feature_scale)
        sizes = np.zeros((count, hosted), np.int64)
        sizes[row, columns] = batch_sizes
        if same_rounds > 1:
            sizes = np.broadcast_to(sizes, (same_rounds, hosted))
        return HostedSamples(samples.features, samples.labels, scales, sizes, t, scaling.bias_feature)

    return read_rounds


def _participant_batches(
    participation: RunParticipation,
    batching: Batching,
    hosted_machines: range,
    first_round: int,
    max_samples: float,
) -> RequestedBatches:
    """Return batches of unequal machines: a machine's k-th batch is for its k-th participation."""
    chunk = participation.chunk(first_round)
    start, stop = hosted_machines.start, hosted_machines.stop
    is_hosted = (chunk.machines >= start) & (chunk.machines < stop) & (chunk.t >= first_round)
    row, machines = chunk.t[is_hosted] - first_round, chunk.machines[is_hosted]
    participants = np.bincount(row, minlength=chunk.rounds.stop - first_round)
    expected = np.cumsum(participants) * batching.batch_size(1)
    n_rounds = max(1, int(np.searchsorted(expected, max_samples * len(hosted_machines), side="right")))
    is_read = row < n_rounds
    return n_rounds, row[is_read], machines[is_read], chunk.counts[is_hosted][is_read]


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
        present, starts = np.unique(machines[order], return_index=True)
        for machine, positions in zip(present.tolist(), np.split(order, starts[1:]), strict=False):
            numbers = hosted_machines[machine], constants.problem.machines
            generated = source.generate_samples(key, *numbers, indices[positions])
            features[positions], labels[positions] = generated.features, generated.labels
        return source.encode_labels(Samples(features, labels))

    return generate_rows
