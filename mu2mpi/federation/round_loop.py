"""Rounds of a lone rank in one kernel, without Python between them, which takes a quarter of a short round.

It calls the kernels of a round by their addresses. Linked into one, they would be compiled again.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from mu2mpi.core.kernels import call_kernel, inline, kernel, kernel_address
from mu2mpi.federation.iterates import take_step
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.server import Server
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise.noise_stream import IndependentNoiseSource, add_noise

_CLOCK = time.CLOCK_MONOTONIC
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))


@inline
def _nanoseconds(timespec):  # type: ignore[no-untyped-def]
    _clock_gettime(_CLOCK, timespec.ctypes.data)
    return timespec[0] * 1_000_000_000 + timespec[1]


@kernel
def run_rounds(  # type: ignore[no-untyped-def]
    t, addresses, is_cumulative, flat_message_sum, message_sum, flat_noised, noised, x, x_next, w,
    samples, clipping, noise, radius, bounds, parameters,
):  # fmt: skip
    """Run rounds from t, given the addresses of an increment kernel, `add_noise` and `take_step`.

    A row of `bounds` and `parameters` is for a round: its samples; noise std, step factor, averaging weight.
    Returned are the results of the increment kernel over all rounds, and nanoseconds of noise and steps.
    """
    timespec = np.empty(2, np.int64)
    largest, clipped_count, noise_time, step_time = 0.0, 0, 0, 0
    for k in range(len(bounds)):
        if not is_cumulative:
            flat_message_sum[:] = 0
        increments = message_sum, x, x_next, *samples, bounds[k, 0], bounds[k, 1], t + k, *clipping
        squared, clipped = call_kernel(addresses[0], (largest, clipped_count), increments)
        largest = max(largest, squared)
        clipped_count += clipped
        increments_end = _nanoseconds(timespec)
        call_kernel(addresses[1], None, (flat_noised, flat_message_sum, *noise, t + k, parameters[k, 0]))
        noise_end = _nanoseconds(timespec)
        call_kernel(addresses[2], None, (w, w, x, x_next, noised, parameters[k, 1], radius, parameters[k, 2]))
        noise_time += noise_end - increments_end
        step_time += _nanoseconds(timespec) - noise_end
        x, x_next = x_next, x
    return largest, clipped_count, noise_time, step_time


def make_round_loop(server: Server, machines: Machines) -> Callable[[range, Timer], None] | None:
    """Return a function that runs rounds, of those in memory and before the last; None if they are not plain.

    Plain rounds send nothing, and have equal machines, independent noise and a step without other arrays.
    """
    iterates, samples, clipping = server.iterates, machines.samples, (*machines.clipping, machines.block_size)
    noisy: Any = server if server.is_central else machines
    source, sums = noisy.noise_source, (machines.flat_message_sum, machines.message_sum)
    is_plain = server.has_plain_rounds and machines.per_machine_clip_norms is None and iterates.x_mean is None
    # A derived source may add other noise.
    if not (is_plain and iterates.constants.has_plain_step and type(source) is IndependentNoiseSource):
        return None
    data = samples.features, samples.labels, samples.feature_scales, samples.bias
    w, x, noise = iterates.w, iterates.x, (source.key, *source.streams)
    addresses = (
        kernel_address(machines.increment_kernel, (0.0, 0), sums[1], x, x, *data, 0, 0, 1, *clipping),
        kernel_address(add_noise, None, noisy.flat_noised, sums[0], *noise, 1, 1.0),
        kernel_address(take_step, None, w, w, x, x, noisy.noised, 1.0, 1.0, 1.0),
    )

    def run(rounds: range, timer: Timer) -> None:
        bounds = np.array([samples.round_bounds(t) for t in rounds])
        step_factor, averaging_weight = iterates.step_factor, iterates.averaging_weight
        parameters = [(source.std_units(t), step_factor(t), averaging_weight(t + 1)) for t in rounds]
        *statistics, noise_time, step_time = run_rounds(
            rounds.start, addresses, machines.is_cumulative, *sums, noisy.flat_noised, noisy.noised,
            iterates.x, iterates.x_previous, w, data, clipping, noise, iterates.radius, bounds,
            np.array(parameters),
        )  # fmt: skip
        machines.record_increments(*statistics)
        iterates.noised_sum = noisy.noised
        if len(rounds) % 2:
            iterates.swap_query_points()
        timer.record_rounds(1e-9 * noise_time, 1e-9 * step_time)

    return run
