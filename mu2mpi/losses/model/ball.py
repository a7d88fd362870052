"""The feasible set K, a ball of diameter D about 0, and minima of smooth convex functions over it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mu2mpi.core.kernels import inline, reduction
from mu2mpi.losses.loss import Array
from mu2mpi.losses.model.linear import inner, norm

# Squares that are summed up by themselves, so that rounding errors of d grow with BLOCK + d / BLOCK
BLOCK = 256
# Nats by which the value found may pass the minimum on a test set, unless the passes run out before
TOLERANCE = 1e-6
Objective = Callable[[Array], tuple[float, Array]]  # value and gradient of a function


@reduction
def squared_norm(v):  # type: ignore[no-untyped-def]
    """Return the squared Euclidean norm of a vector."""
    total = 0.0
    for j in range(v.size):
        total += v[j] * v[j]
    return total


@inline
def shrinkage(squared, radius):  # type: ignore[no-untyped-def]
    """Return the factor that projects a vector with this squared norm on a ball about 0, or clips it."""
    return 1.0 if squared <= radius * radius else radius / np.sqrt(squared)


class Minimum(NamedTuple):
    """A minimum over K is between ``value - gap`` and ``value``; `first_slope` is the norm at the start."""

    value: float
    gap: float
    passes: int
    first_slope: float


def minimise_over_ball(
    function: Objective, start: Array, radius: float, smoothness: float, most_passes: int, tolerance: float
) -> Minimum:
    """Minimise a convex function over a ball about 0 by projected accelerated gradient steps.

    `function` returns value and gradient, whose Lipschitz constant is at most `smoothness`; steps are 1 / l
    for an estimate l of it. By convexity f(u) >= f(y) - (<f'(y), y> + radius ||f'(y)||) for all u, y in K.
    Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm", 2009; O'Donoghue and Candes,
    "Adaptive restart", 2015.
    """
    x = y = start
    # Real data are far from the worst case.
    momentum, estimate = 1.0, smoothness * (1 / 64)
    value, gradient = function(y)
    first_slope = norm(gradient)
    highest_bound, lowest = -np.inf, np.inf
    for passes in range(1, most_passes + 1):
        lowest = min(lowest, value)
        gap = inner(gradient, y) + radius * norm(gradient)
        highest_bound = max(highest_bound, value - gap)
        if lowest - highest_bound <= tolerance or passes == most_passes:
            break
        x_next = _projected(y - gradient / estimate, radius)
        uphill = inner(y - x_next, x_next - x) > 0
        momentum_next = 1.0 if uphill else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        weight = 0.0 if uphill else (momentum - 1) / momentum_next
        y_next = _projected(x_next + weight * (x_next - x), radius)
        value_next, gradient_next = function(y_next)
        step = y_next - y
        # Unlike values, gradients still tell how much they differ when steps are tiny.
        contradicted = inner(gradient_next - gradient, step) > estimate * inner(step, step)
        estimate = min(2 * estimate, smoothness) if contradicted else 0.95 * estimate
        momentum = 1.0 if value_next > value else momentum_next
        x, y, value, gradient = x_next, y_next, value_next, gradient_next
    return Minimum(float(lowest), float(max(0.0, lowest - highest_bound)), passes, first_slope)


def _projected(y: Array, radius: float) -> Array:
    length = norm(y)
    return y if length <= radius else y * (radius / length)
