"""Iterates of the server: w_t, the query point x_t, and the projected steps between rounds."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import aligned_zeros, kernel, reduction
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.model.ball import BLOCK, shrinkage

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@reduction
def descend(w, total, step):  # type: ignore[no-untyped-def]
    """Subtract ``step * total`` from w and return the squared norm of what results."""
    squared = 0.0
    for j in range(w.size):
        w[j] -= step * np.float64(total[j])
        squared += w[j] * w[j]
    return squared


@kernel
def take_step(w, x, x_next, total, step, radius, weight):  # type: ignore[no-untyped-def]
    """Take w_{t+1}, in place, and x_{t+1}, in x_next, from w_t, x_t and a sum: project, then average."""
    w, x, x_next, total = w.ravel(), x.ravel(), x_next.ravel(), total.ravel()
    squared = 0.0
    for first in range(0, w.size, BLOCK):
        squared += descend(w[first : first + BLOCK], total[first : first + BLOCK], step)
    factor = shrinkage(squared, radius)
    for j in range(w.size):
        w[j] *= factor
        x_next[j] = (1.0 - weight) * x[j] + weight * w[j]


@kernel
def take_lazy_step(sum_, w, x, x_next, total, step, radius, weight):  # type: ignore[no-untyped-def]
    """Do as `take_step`, but project the sum of all steps, of the same shape, to w_{t+1}."""
    sum_, w, x, x_next, total = sum_.ravel(), w.ravel(), x.ravel(), x_next.ravel(), total.ravel()
    squared = 0.0
    for first in range(0, w.size, BLOCK):
        squared += descend(sum_[first : first + BLOCK], total[first : first + BLOCK], step)
    factor = shrinkage(squared, radius)
    for j in range(w.size):
        w[j] = sum_[j] * factor
        x_next[j] = (1.0 - weight) * x[j] + weight * w[j]


class Iterates:
    """Iterates of a run: `w`, the query point `x` and the one before it, shape (rows, F), all 0 at first.

    Attributes
    ----------
    mean : ndarray or None
        Mean of the query points visited, where that is the output.
    state : dict of ndarray
        Further arrays of the method's step, of the same shape.
    direction : ndarray of int64 or None
        Noised sum of the last step, where known, until the next round.
    """

    def __init__(self, constants: RunConstants) -> None:
        task = constants.task
        shape = (task.rows, task.features)
        self.constants = constants
        # Every round needs them.
        self._step_size, self._resolution = constants.step_size, constants.mechanism.resolution
        self._total_weight, self._batch = constants.total_weight, constants.sampling.size
        self._weight, self._radius = constants.query.averaging_weight, task.radius
        self.l2 = task.l2
        self.w, self.x, self.x_previous = (aligned_zeros(shape, np.float64) for _ in range(3))
        self.mean = aligned_zeros(shape, np.float64) if constants.mean_from else None
        self.state = {name: aligned_zeros(shape, np.float64) for name in constants.state}
        self.direction: Integers | None = None

    def public(self) -> dict[str, Floats]:
        """Arrays that every rank holds, whatever the trust mode: what gradients and the output need."""
        arrays = {"x": self.x, "x_previous": self.x_previous}
        return arrays if self.mean is None else {**arrays, "mean": self.mean}

    def arrays(self) -> dict[str, Floats]:
        """All arrays that the next step depends on, which a checkpoint holds."""
        return {"w": self.w, **self.public(), **self.state}

    @property
    def output(self) -> Floats:
        """Output of the method if the round visited last is its last."""
        return self.x if self.mean is None else self.mean

    def visit(self, t: int) -> Floats:
        """Return the output, having counted the query point of round t in the mean where that is it."""
        if self.mean is not None:
            self.mean += (self.x - self.mean) / max(1, t - (self.constants.mean_from or 1) + 1)
        return self.output

    def step(self, t: int, total: Integers) -> None:
        """Step from round t to round t + 1 with the noised sum of the machines' messages."""
        self.direction = total
        scale = self._step_size(t) * self._resolution / (self._total_weight * self._batch(t))
        self.constants.step(self, t, total, scale)

    def regularise(self, t: int, w: Floats | None = None, factor: float = 1.0) -> None:
        """Subtract the regulariser's part of the step, l2 x_t, from w_t or another array, in place."""
        w = self.w if w is None else w
        w -= factor * self._step_size(t) * self.constants.estimator.weight(t) * self.l2 * self.x

    def descend(self, t: int, total: Integers, scale: float, w: Floats | None = None) -> None:
        """Project w_t - scale total, in place, and average it with x_t into x_{t+1}; of w_t or another w."""
        w, x, x_next = self.w if w is None else w, self.x, self.x_previous
        take_step(w, x, x_next, total, scale, self._radius, self._weight(t + 1))
        self.x, self.x_previous = x_next, x

    def descend_lazily(self, start: Floats, t: int, total: Integers, scale: float) -> None:
        """Subtract scale total from `start`, in place; project that to w_{t+1}, and average."""
        x, x_next = self.x, self.x_previous
        take_lazy_step(start, self.w, x, x_next, total, scale, self._radius, self._weight(t + 1))
        self.x, self.x_previous = x_next, x

    def advance(self) -> None:
        """Make the buffer that received x_{t+1} the query point, and x_t the one before it."""
        self.x, self.x_previous = self.x_previous, self.x
