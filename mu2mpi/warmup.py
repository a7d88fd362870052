"""Compile every kernel before the first round, so that no rank does it in the middle of one."""

import sys

import numpy as np
from numba.core.registry import cpu_target

from mu2mpi.algorithm.machine import add_increments
from mu2mpi.algorithm.server import take_step
from mu2mpi.privacy.noise import MACHINE, SERVER, add_noise
from mu2mpi.problem.logistic import sum_losses

__all__ = ["start_compiler", "start_compiler_without_scipy", "warm_up"]


def start_compiler() -> None:
    """Let numba set itself up, which takes longer than to load kernels, and touches no cache."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def start_compiler_without_scipy() -> None:
    """Do the same, but keep numba from importing SciPy, which it looks for when it sets itself up.

    No kernel here uses linear algebra, and SciPy takes as long to import as all the rest: on each of
    many ranks, from a file system that they share. Other code in the same process that wants numba's
    linear algebra will not find it, so this is for processes that are the package's own.
    """
    name = "scipy.linalg"
    if name in sys.modules:
        start_compiler()
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        start_compiler()
    finally:
        del sys.modules[name]


def warm_up(feature_type: np.dtype[np.generic]) -> None:
    """Call every kernel once on the smallest arrays with the types of a run."""
    x = np.zeros((2, 2))
    q, noised = np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2), dtype=np.int64)
    features, labels = np.zeros((1, 1), dtype=feature_type), np.zeros(1, dtype=np.int32)
    add_increments(q, x, x, features, labels, 1.0, 1, 1.0, 1.0)
    add_noise(noised.ravel(), q.ravel(), np.zeros(8, dtype=np.uint32), MACHINE, 0, 1, 1, 1.0)
    add_noise(noised.ravel(), q.ravel(), np.zeros(8, dtype=np.uint32), SERVER, 0, 1, 1, 1.0)
    take_step(np.zeros(4), np.zeros(4), np.zeros(4), q.ravel(), 1.0, 1.0, 0.5)
    sum_losses(x, features, labels, 1.0)
