"""Machines that take several gradient steps on their own samples before they send a message."""

from typing import Any

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import aligned_zeros, call_kernel, inline, kernel, kernel_address, round_to_integer
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.model.ball import projection_factor
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, IndependentNoiseSource, add_noise, padded_zeros


@inline
def _local_step(y, total, noised, control, last_messages, i, steps, step_factor):  # type: ignore[no-untyped-def]
    """Take the step y -= step_factor (s + c - c_i) on a noised sum s; add s to the total."""
    for k in range(y.shape[0]):
        for j in range(y.shape[1]):
            total[k, j] += noised[k, j]
            correction = 0.0
            if len(last_messages) > 0:
                correction = control[k, j] - last_messages[i, k, j] / steps
            y[k, j] -= step_factor * (noised[k, j] + correction)


@inline
def _add_clipped_mean(message_sum, total, batch_size, max_norm):  # type: ignore[no-untyped-def]
    """Add total / batch_size, clipped and rounded, to a sum; return its squared norm and that factor."""
    squared = 0.0
    for k in range(total.shape[0]):
        for j in range(total.shape[1]):
            squared += (total[k, j] / batch_size) ** 2
    factor = projection_factor(squared, max_norm)
    for k in range(total.shape[0]):
        for j in range(total.shape[1]):
            message_sum[k, j] += round_to_integer(factor * (total[k, j] / batch_size))
    return squared, factor


@kernel
def run_local_steps(  # type: ignore[no-untyped-def]
    addresses, message_sum, sums, y, x, samples, batches, steps, batch_size, clipping, noise, t, step_factor,
    control, last_messages, max_message_norm,
):  # fmt: skip
    """Add the messages of machines after their local steps from x in round t to a sum, in grid units.

    A machine takes `steps` steps y -= step_factor (s + c - c_i) on noised sums s of clipped gradients of
    `batch_size` samples; its message is the sum of all s. If `max_message_norm` is not 0, the s have no
    noise, and the message is divided by `batch_size` and clipped to this norm.

    `addresses` are those of an increment kernel and of `add_noise`. A row of `batches` has the local index of
    a machine and the bounds of its samples, which are repeated if they are too few. `noise` is the key, the
    first machine and the std in each s; `control` is c, shape (rows, F), and `last_messages`, shape
    (machines, rows, F), are `steps` c_i, or of no machine for c = c_i = 0. Returned are the largest squared
    norm of gradients, or of messages, before clipping, and the number of those clipped.
    """
    (flat_sum, step_sum, flat_noised, noised), (key, first_machine, std) = sums, noise
    total, largest, clipped_count = np.empty(y.shape, np.int64), 0.0, 0
    for n in range(len(batches)):
        i, start, stop = batches[n]
        y[:] = x
        total[:] = 0
        for h in range(steps):
            first = start + h * batch_size % (stop - start)
            flat_sum[:] = 0
            increments = step_sum, y, y, *samples, first, first + batch_size, t, *clipping
            squared, clipped = call_kernel(addresses[0], (largest, clipped_count), increments)
            if max_message_norm == 0.0:
                largest = max(largest, squared)
                clipped_count += clipped
            if std > 0.0:
                draw = key, MACHINE_STREAM, first_machine + i, 1, (t - 1) * steps + h + 1, std
                call_kernel(addresses[1], None, (flat_noised, flat_sum, *draw))
            else:
                flat_noised[:] = flat_sum
            _local_step(y, total, noised, control, last_messages, i, steps, step_factor)
        if len(last_messages) > 0:
            last_messages[i] = total
        if max_message_norm == 0.0:
            message_sum += total
        else:
            squared, factor = _add_clipped_mean(message_sum, total, batch_size, max_message_norm)
            largest = max(largest, squared * clipping[1] ** 2)
            clipped_count += steps * batch_size * (factor < 1.0)
    return largest, clipped_count


class LocalMachines(Machines):
    """Machines that add noise in each local step; or clip their messages, if machines are sampled."""

    def __init__(self, constants: RunConstants, *arguments: Any, control: FloatArray | None = None) -> None:
        """Create the machines; `control` is the server's control variate, shape (rows, F), or None."""
        super().__init__(constants, *arguments)
        batching: Any = constants.batching
        # The noise is that of local steps, and messages are not clipped, unless machines are sampled.
        self._max_message_norm, spacing = 0.0, constants.mechanism.grid_spacing
        if batching.subsampling:
            self._max_message_norm = constants.reduced_clip_norm / spacing
            self.clipping = constants.problem.local_clip_norm(constants.mechanism.clip_norm), spacing
        self._steps, self._batch_size = batching.local_steps, batching.local_batch
        self._step_factor = constants.eta * spacing / self._batch_size
        shape = self.message_sum.shape
        self._sums = *padded_zeros(shape), *padded_zeros(shape)
        self._local_model = aligned_zeros(shape, np.float64)
        self._control = aligned_zeros(shape, np.float64) if control is None else control
        self.last_messages = np.zeros((0 if control is None else self.count, *shape), np.int64)

    def accumulate_increments(self, t: int, x: FloatArray, x_previous: FloatArray) -> None:
        """Set the message sum to that of the messages of local steps from x_t."""
        samples, clipping = self.read_samples(t), (*self.clipping, self.block_size)
        data = samples.features, samples.labels, samples.feature_scales, samples.bias
        key, std = np.zeros(8, np.uint32), 0.0
        if self._adds_noise and not self._max_message_norm:
            if not isinstance(self.noise_source, IndependentNoiseSource):
                raise RuntimeError("these machines hold no noise key")
            key, std = self.noise_source.key, self.noise_source.std_units(t)
        flat_sum, step_sum, flat_noised, _ = self._sums
        addresses = (
            kernel_address(self.increment_kernel, (0.0, 0), step_sum, x, x, *data, 0, 0, 1, *clipping),
            kernel_address(add_noise, None, flat_noised, flat_sum, key, MACHINE_STREAM, 0, 1, 1, 1.0),
        )
        batches = np.array([*samples.batch_bounds(t)], np.int64).reshape(-1, 3)
        self.message_sum[...] = 0
        statistics = run_local_steps(
            addresses, self.message_sum, self._sums, self._local_model, x, data, batches, self._steps,
            self._batch_size, clipping, (key, self.first_machine, std), t, self._step_factor,
            self._control, self.last_messages, self._max_message_norm,
        )  # fmt: skip
        self.record_increments(*statistics)

    def noised_message(self, t: int) -> IntArray:
        """Return the sum of the messages, which has the noise of local steps unless machines are sampled."""
        return super().noised_message(t) if self._max_message_norm else self.message_sum
