"""Client side of a round on one rank: accumulate clipped increments of the hosted machines, add noise."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray, UInt32Array
from mu2mpi.data.source import Labels
from mu2mpi.federation.participants import RoundParticipants
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.model.linear import SAMPLES_PER_BLOCK
from mu2mpi.privacy.mechanisms.mechanism import per_machine_noise_source
from mu2mpi.privacy.noise.noise_source import NoiseSource
from mu2mpi.privacy.noise.noise_stream import AGGREGATE_STREAM, MACHINE_STREAM, padded_zeros


@dataclass(frozen=True)
class HostedSamples:
    """Samples in the batches of one rank's machines in some rounds; batches that recur are stored once."""

    features: NDArray[np.generic]  # by round, then by machine, in the stored type: shape (samples, F - 1)
    labels: Labels  # shape (samples,)
    feature_scales: FloatArray  # factors from stored features to those of z, shape (samples,)
    batch_sizes: IntArray  # batch sizes, shape (rounds, machines)
    first_round: int = 1
    bias: float = 1.0  # the bias feature

    @cached_property
    def rounds(self) -> range:
        """Consecutive rounds whose batches are in memory."""
        return range(self.first_round, self.first_round + len(self.batch_sizes))

    @cached_property
    def _round_ends(self) -> list[int]:  # integers of Python are faster to look up than those of an array
        return [0, *np.cumsum(self.batch_sizes.sum(axis=1)).tolist()]

    def round_bounds(self, t: int) -> tuple[int, int]:
        """Return the bounds (start, stop) in `features` of the samples of round t."""
        if self._round_ends[-1] > len(self.labels):  # The same batches recur.
            return 0, len(self.labels)
        return self._round_ends[t - self.first_round], self._round_ends[t - self.first_round + 1]

    def batch_bounds(self, t: int) -> Iterator[tuple[int, int, int]]:
        """Yield local index and bounds (start, stop) in `features` of each non-empty batch of round t."""
        sizes = self.batch_sizes[t - self.first_round]
        machines = np.flatnonzero(sizes)
        stops = self.round_bounds(t)[0] + np.cumsum(sizes[machines])
        return zip(machines.tolist(), (stops - sizes[machines]).tolist(), stops.tolist(), strict=True)


SampleReader = Callable[[int], HostedSamples]  # reads the samples of a round, and of some rounds after it
_NO_SAMPLES = HostedSamples(np.empty((0, 0)), np.empty(0, np.int32), np.empty(0), np.empty((0, 0), np.int64))


class Machines:
    """Machines hosted by one rank, with one sum of their messages: integers add up exactly in any order."""

    def __init__(
        self, constants: RunConstants, hosted_machines: range, reader: SampleReader, key: UInt32Array | None
    ) -> None:
        problem, mechanism, plan = constants.problem, constants.mechanism, constants.problem.per_machine_plan
        self.constants = constants
        self.first_machine, self.count = hosted_machines.start, len(hosted_machines)
        self.samples, self._reader = _NO_SAMPLES, reader
        self.increment_kernel = constants.estimator.compile_kernel(problem.loss, problem.model_rows)
        self.is_cumulative = constants.estimator.is_cumulative
        self.clipping = constants.reduced_clip_norm, mechanism.grid_spacing  # unless machines differ:
        self.per_machine_clip_norms = constants.per_machine_clip_norms(hosted_machines)
        # With aggregate noise, the host of the first machine draws for all.
        is_noisy = (plan or mechanism).is_noisy and self.count > 0
        self._adds_noise = is_noisy and not (problem.uses_aggregate_noise and self.first_machine > 0)
        # For two machines, a block costs more by its empty rows than it saves.
        self.block_size = SAMPLES_PER_BLOCK if problem.machines > 2 else 1
        self.key = key
        # Sum over the machines of q_{t,i}, or of gradients, without noise, in grid units: with padding, and
        # as a view of shape (rows, F); and buffers for the noised sum.
        self.flat_message_sum, self.message_sum = padded_zeros(constants.message_shape)
        self.flat_noised, self.noised = padded_zeros(self.message_sum.shape)
        # Last messages of single machines, if they change the next ones; shape (machines, rows, F)
        self.last_messages = np.empty((0, *self.message_sum.shape), np.int64)
        # Of increments before clipping: the largest squared norm, and the number of those that are clipped
        self.largest_squared_norm, self.clipped_count = 0.0, 0
        self.noise_source: NoiseSource | None = None
        if not (self._adds_noise and key is not None):
            return
        size = self.flat_message_sum.size
        if plan is not None:
            index = plan.mechanism_index[hosted_machines.start : hosted_machines.stop]
            participants = RoundParticipants(plan.participation, hosted_machines)
            machines = self.first_machine, participants, self.is_cumulative
            self.noise_source = per_machine_noise_source(plan.mechanisms, index, key, *machines, size)
        elif problem.uses_aggregate_noise:
            self.noise_source = mechanism.noise_source(key, (AGGREGATE_STREAM, 0, 1), problem.machines, size)
        else:
            stream = (MACHINE_STREAM, self.first_machine, self.count)
            self.noise_source = mechanism.noise_source(key, stream, 1 / problem.noise_shares, size)

    def read_samples(self, t: int) -> HostedSamples:
        """Return the hosted samples of some rounds that include t, read from the source if not in memory."""
        if t not in self.samples.rounds:
            # Released before the next are read: memory never holds both.
            self.samples = _NO_SAMPLES
            self.samples = self._reader(t)
        return self.samples

    def accumulate_increments(self, t: int, x: FloatArray, x_previous: FloatArray) -> None:
        """Set the message sum to that of q_{t-1,i} + s_{t,i}, or of gradients, given x_t and x_{t-1}."""
        samples = self.read_samples(t)
        kernel_arrays = x, x_previous, samples.features, samples.labels, samples.feature_scales, samples.bias
        batches: Iterable[Any] = [(samples.round_bounds(t), *self.clipping)]
        if (clip_norms := self.per_machine_clip_norms) is not None:
            batches = ((bounds, *clip_norms[machine]) for machine, *bounds in samples.batch_bounds(t))
        if not self.is_cumulative:
            self.message_sum[...] = 0
        for (start, stop), *clipping in batches:
            if start < stop:
                position = start, stop, t, *clipping, self.block_size
                self.record_increments(*self.increment_kernel(self.message_sum, *kernel_arrays, *position))

    def record_increments(self, largest_squared_norm: float, clipped_count: int) -> None:
        """Add the results of an increment kernel to those of all rounds."""
        self.largest_squared_norm = max(self.largest_squared_norm, largest_squared_norm)
        self.clipped_count += clipped_count

    def noised_message(self, t: int) -> IntArray:
        """Return the sum of machines' noised messages q_{t,i} + Y_{t,i}, in a buffer that is reused."""
        if not self._adds_noise:
            return self.message_sum
        if self.noise_source is None:
            raise RuntimeError("these machines hold no noise key")
        self.noise_source(self.flat_noised, self.flat_message_sum, t)
        return self.noised
