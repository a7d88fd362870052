"""Compile every kernel before the first round, so that no rank does it in the middle of one."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numba.core.registry import cpu_target

from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.loss import Problem
from mu2mpi.losses.model.linear import sum_losses
from mu2mpi.privacy.noise.masks import add_rank_masks
from mu2mpi.privacy.noise.noise_stream import MACHINE, add_draws, padded_zeros


def start_compiler() -> None:
    """Let numba set itself up, which touches no cache."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def start_compiler_without_scipy() -> None:
    """Set numba up without SciPy, which takes as long as all the rest and which no kernel here uses."""
    sys.modules.setdefault("scipy.linalg", None)  # type: ignore[arg-type]
    try:
        start_compiler()
    finally:
        if sys.modules["scipy.linalg"] is None:
            del sys.modules["scipy.linalg"]


def compile_kernels(plan: Plan, communicator: Communicator) -> None:
    """Compile the kernels of a run, each by one rank alone, or load them; all ranks must call this."""
    start_compiler()
    communicator.fill_cache(kernel_calls(plan.source.feature_type, plan.constants))


def kernel_calls(feature_type: np.dtype[np.generic], constants: RunConstants) -> list[Callable[[], object]]:
    """Return a call of every kernel of a run on features of this type, the slowest to compile first."""
    x, task, problem = np.zeros((2, 2)), constants.task, constants.task.problem
    (message, q), (noised, _) = padded_zeros((2, 2)), padded_zeros((2, 2))
    label_type: Any = np.int32 if problem.labels == "classes" else np.float64
    features, labels = np.zeros((1, 1), dtype=feature_type), np.zeros(1, dtype=label_type)
    key, scales, one = np.zeros(8, dtype=np.uint32), np.ones(1), np.ones(1, np.int64)
    add, losses = constants.estimator.kernel(problem, task.rows), problem.kernel(sum_losses)
    mechanism = replace(constants.mechanism, sigma=constants.mechanism.resolution)
    small = constants.with_task(rows=2, features=2)
    calls: list[Callable[[], object]] = [
        lambda: mechanism.noise_source(key, (MACHINE, 0, 1), 1.0, noised.size)(noised, message, 1),
        *([lambda: add_draws(noised, key, one, one, scales, scales, 1)] if task.per_machine else []),
        lambda: add(q, x, x, features, labels, scales, 1.0, 0, 1, 1, 1.0, 1.0, 1),
        lambda: losses(x, features, labels, scales, 1.0),
        lambda: problem.loss_and_gradient(x, x, np.zeros(2, label_type)),
        lambda: Iterates(small).step(1, np.zeros_like(q)),
        *([] if task.trust.is_central else [lambda: add_rank_masks(noised, key, bytes(16), 0, 2)]),
    ]
    return [partial(_call, call, problem) for call in calls]


def _call(kernel: Callable[[], object], problem: Problem) -> None:
    """Call a kernel; InputError if it cannot be compiled as a function of the problem cannot."""
    try:
        kernel()
    except Exception as error:
        # numba raises what it likes.
        if (fault := problem.fault()) is None:
            raise
        raise InputError(fault) from error
