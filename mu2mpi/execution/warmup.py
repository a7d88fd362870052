"""Compile all kernels of a run before its first round."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.machine import HostedSamples
from mu2mpi.federation.round_loop import run_rounds
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.losses.loss import Loss
from mu2mpi.losses.model.linear import sum_losses
from mu2mpi.privacy.noise.masks import add_rank_masks
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, add_signed_noise, padded_zeros


def compile_kernels(
    feature_dtype: np.dtype[np.generic], constants: RunConstants, communicator: Communicator
) -> None:
    """Compile the kernels of a run, each on one rank, or load them from the cache; collective."""
    communicator.fill_kernel_cache(kernel_compilers(feature_dtype, constants, communicator.size))


def kernel_compilers(
    feature_dtype: np.dtype[np.generic], constants: RunConstants, ranks: int = 2
) -> list[Callable[[], object]]:
    """Return functions that call each kernel of a run on tiny arrays, the slowest to compile first."""
    has_masks = ranks > 1 and not constants.problem.trust_mode.is_central
    x, problem, loss_function = np.zeros((2, 2)), constants.problem, constants.problem.loss
    (message, q), (noised, _) = padded_zeros((2, 2)), padded_zeros((2, 2))
    label_type: Any = np.int32 if loss_function.label_kind == "classes" else np.float64
    features, labels = np.zeros((1, 1), dtype=feature_dtype), np.zeros(1, dtype=label_type)
    key, scales, counts = np.zeros(8, dtype=np.uint32), np.ones(1), np.ones(1, np.int64)
    add_samples = constants.estimator.compile_kernel(loss_function, problem.model_rows)
    losses = loss_function.compile_kernel(sum_losses)
    signed_noise = partial(add_signed_noise, noised, key, counts, counts, scales, scales, 1)
    mechanism = replace(constants.mechanism, sigma=constants.mechanism.grid_spacing)
    small_constants = constants.with_problem(model_rows=2, features=2)
    data, noise, no_rounds = (features, labels, scales, 1.0), (key, 0, 0, 1), np.empty((0, 3))
    sums, no_bounds = (message, q, noised, q), np.empty((0, 2), np.int64)
    loop = 1, (0, 0, 0), True, *sums, x, x, x, data, (1.0, 1.0, 1), noise, 1.0, no_bounds, no_rounds

    def local_steps() -> None:
        no_batches = HostedSamples(features, labels, scales, np.zeros((1, 1), np.int64))
        rank = range(1), lambda t: no_batches, Communicator(), key
        machines, _ = create_machines_and_server(small_constants, *rank)
        machines.accumulate_increments(1, x, x)

    calls: list[Callable[[], object]] = [
        lambda: mechanism.noise_source(key, (MACHINE_STREAM, 0, 1), 1.0, noised.size)(noised, message, 1),
        lambda: add_samples(q, x, x, *data, 0, 1, 1, 1.0, 1.0, 1),
        lambda: losses(x, *data),
        lambda: loss_function.loss_and_gradient(x, x, np.zeros(2, label_type)),
        *([signed_noise] if problem.per_machine_plan else []),
        lambda: Iterates(small_constants).step(1, np.zeros(small_constants.message_shape, np.int64)),
        *([lambda: add_rank_masks(noised, key, bytes(16), 0, 2)] if has_masks else []),
        *([partial(run_rounds, *loop)] if constants.has_plain_step else []),
        *([local_steps] if constants.estimator.local_steps else []),
    ]
    return [partial(_warm_up, call, loss_function) for call in calls]


def _warm_up(kernel: Callable[[], object], loss_function: Loss) -> None:
    """Call a kernel; raise InputError if functions of the loss cannot be compiled."""
    try:
        kernel()
    except Exception as error:
        # numba raises many types of exceptions.
        if (fault := loss_function.compilation_error()) is None:
            raise
        raise InputError(fault) from error
