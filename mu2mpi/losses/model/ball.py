"""Feasible set of models, a ball about 0: projection, and minimisation of smooth convex functions."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.kernels import inline, reduction_kernel
from mu2mpi.losses.model.linear import inner, norm

# Coordinates per partial sum of squares: rounding errors grow with this + d / this, not with d.
COORDINATES_PER_NORM_BLOCK = 256
DUALITY_GAP_TOLERANCE_NATS = 1e-6  # duality gap, in nats, at which minimisation of the test loss stops
Objective = Callable[[FloatArray], tuple[float, FloatArray]]  # returns value and gradient


@reduction_kernel
def squared_norm(v):  # type: ignore[no-untyped-def]
    """Return the squared Euclidean norm of a vector."""
    square_sum = 0.0
    for j in range(v.size):
        square_sum += v[j] * v[j]
    return square_sum


@inline
def projection_factor(norm_squared, radius):  # type: ignore[no-untyped-def]
    """Return the factor min(1, radius / norm) that projects a vector with norm^2 = norm_squared on a ball."""
    return 1.0 if norm_squared <= radius * radius else radius / np.sqrt(norm_squared)


class Minimum(NamedTuple):
    """Approximate minimum of a convex function over a ball, with its duality gap."""

    value: float  # smallest value found; the minimum is at least value - duality_gap
    duality_gap: float
    passes: int  # number of evaluations of the function
    initial_gradient_norm: float  # gradient norm at the starting point


def minimise_over_ball(
    function: Objective, x: FloatArray, radius: float, smoothness: float, max_passes: int, tolerance: float
) -> Minimum:
    """Minimise a convex function over a ball about 0 by projected accelerated gradient steps with restarts.

    The step size is the inverse of an estimate of the gradient's Lipschitz constant, at most `smoothness`.
    The gap follows from convexity: f(u) >= f(y) - (<f'(y), y> + radius ||f'(y)||) for u, y in the ball.
    Beck and Teboulle, "A fast iterative shrinkage-thresholding algorithm", 2009 (FISTA); O'Donoghue and
    Candes, "Adaptive restart for accelerated gradient schemes", 2015.
    """
    y = x
    # The local smoothness on real data is far below the worst case, so the estimate starts low.
    momentum, local_smoothness = 1.0, smoothness * (1 / 64)
    value, gradient = function(y)
    initial_gradient_norm = norm(gradient)
    lower_bound, lowest = -np.inf, np.inf
    for passes in range(1, max_passes + 1):
        lowest = min(lowest, value)
        gap = inner(gradient, y) + radius * norm(gradient)
        lower_bound = max(lower_bound, value - gap)
        if lowest - lower_bound <= tolerance or passes == max_passes:
            break
        x_next = _project(y - gradient / local_smoothness, radius)
        is_ascent = inner(y - x_next, x_next - x) > 0
        momentum_next = 1.0 if is_ascent else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        weight = 0.0 if is_ascent else (momentum - 1) / momentum_next
        y_next = _project(x_next + weight * (x_next - x), radius)
        value_next, gradient_next = function(y_next)
        step = y_next - y
        # For tiny steps, differences of gradients are still accurate where those of values have cancelled.
        is_too_low = inner(gradient_next - gradient, step) > local_smoothness * inner(step, step)
        local_smoothness = min(2 * local_smoothness, smoothness) if is_too_low else 0.95 * local_smoothness
        momentum = 1.0 if value_next > value else momentum_next
        x, y, value, gradient = x_next, y_next, value_next, gradient_next
    return Minimum(float(lowest), float(max(0.0, lowest - lower_bound)), passes, initial_gradient_norm)


def _project(y: FloatArray, radius: float) -> FloatArray:
    y_norm = norm(y)
    return y if y_norm <= radius else y * (radius / y_norm)
