"""Iterates of the server: w_t, the query point x_t, and the projected steps between rounds."""

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import aligned_zeros, kernel, reduction_kernel
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.model.ball import COORDINATES_PER_NORM_BLOCK, projection_factor


@reduction_kernel
def _subtract_scaled(w, message_sum, step_factor):  # type: ignore[no-untyped-def]
    """Subtract ``step_factor * message_sum`` from the vector w, in place; return the squared norm of w."""
    squared = 0.0
    for j in range(w.size):
        w[j] -= step_factor * np.float64(message_sum[j])
        squared += w[j] * w[j]
    return squared


@kernel
def take_step(dual, w, x, x_next, message_sum, step_factor, radius, averaging_weight):  # type: ignore[no-untyped-def]
    """Subtract step_factor message_sum from `dual`; set w to proj(dual), and x_next to its average with x_t.

    `dual` is w itself, or in dual averaging the sum of all steps, which is not projected.
    """
    dual, w, x, x_next, message_sum = dual.ravel(), w.ravel(), x.ravel(), x_next.ravel(), message_sum.ravel()
    squared = 0.0
    for start in range(0, w.size, COORDINATES_PER_NORM_BLOCK):
        stop = start + COORDINATES_PER_NORM_BLOCK
        squared += _subtract_scaled(dual[start:stop], message_sum[start:stop], step_factor)
        if dual.ctypes.data != w.ctypes.data:  # A loop over arrays that may be the same is not vectorised.
            for j in range(start, min(stop, w.size)):
                w[j] = dual[j]
    factor = projection_factor(squared, radius)
    for j in range(w.size):
        w[j] *= factor
        x_next[j] = (1.0 - averaging_weight) * x[j] + averaging_weight * w[j]


class Iterates:
    """Iterates of a run, zero at first; arrays are float64 and have shape (rows, F) unless stated.

    Attributes
    ----------
    w, x, x_previous : ndarray
        Iterate w_t, and the query points x_t and x_{t-1}.
    x_mean : ndarray or None
        Mean of the recorded query points, if that is the output.
    optimizer_state : dict of ndarray
        Further arrays of the method's step, of a message's shape.
    noised_sum : ndarray of int64 or None
        Noised sum of messages of the last step, where known, until the next round.
    """

    def __init__(self, constants: RunConstants) -> None:
        self.constants, problem = constants, constants.problem
        shape, sum_shape = (problem.model_rows, problem.features), constants.message_shape
        self._step_size, self._grid_spacing = constants.step_size, constants.mechanism.grid_spacing
        self._total_weight, self._batch_size = constants.machine_weight_sum, constants.batching.batch_size
        self.averaging_weight, self.radius = constants.query_point.averaging_weight, problem.radius
        self.w, self.x, self.x_previous = (aligned_zeros(shape, np.float64) for _ in range(3))
        self.x_mean = aligned_zeros(shape, np.float64) if constants.first_averaged_round else None
        self.optimizer_state = {name: aligned_zeros(sum_shape, np.float64) for name in constants.state_names}
        self.noised_sum: IntArray | None = None

    def public_arrays(self) -> dict[str, FloatArray]:
        """Query points, and their mean if it is the output, by name: known to all ranks in any trust mode."""
        arrays = {"x": self.x, "x_previous": self.x_previous}
        return arrays if self.x_mean is None else {**arrays, "mean": self.x_mean}

    def state_arrays(self) -> dict[str, FloatArray]:
        """Arrays that determine the next step, by name, as stored in checkpoints."""
        return {"w": self.w, **self.public_arrays(), **self.optimizer_state}

    @property
    def output(self) -> FloatArray:
        """Output model after the last recorded query point: that point, or the mean of query points."""
        return self.x if self.x_mean is None else self.x_mean

    def record_query_point(self, t: int) -> FloatArray:
        """Add x_t to the mean of query points, if that mean is the output, and return the output model."""
        if self.x_mean is not None:
            self.x_mean += (self.x - self.x_mean) / max(1, t - (self.constants.first_averaged_round or 1) + 1)
        return self.output

    def step(self, t: int, noised_sum: IntArray) -> None:
        """Take the method's server step from round t to t + 1, given the noised sum in grid units."""
        self.noised_sum = noised_sum
        self.constants.take_server_step(self, t, noised_sum, self.step_factor(t))

    def step_factor(self, t: int) -> float:
        """Return the factor of the sum of messages, in grid units, in the step of round t."""
        return self._step_size(t) * self._grid_spacing / (self._total_weight * (self._batch_size(t) or 1))

    def apply_regulariser(self, t: int, w: FloatArray | None = None, step_factor: float = 1.0) -> None:
        """Subtract the regulariser's gradient l2 x_t, times the step size, from w or self.w, in place."""
        if l2 := self.constants.problem.l2:
            w = self.w if w is None else w
            estimator, step = self.constants.estimator, self._step_size(t)
            shrinkage = step_factor * step * estimator.gradient_weight(t) * l2
            if estimator.local_steps > 1:  # as many steps on the regulariser alone
                shrinkage = 1 - max(0.0, 1 - step * l2) ** estimator.local_steps
            w -= shrinkage * self.x

    def projected_step(
        self,
        t: int,
        message_sum: IntArray,
        step_factor: float,
        w: FloatArray | None = None,
        dual: FloatArray | None = None,
    ) -> None:
        """Set w, or self.w, to proj(dual - step_factor message_sum), dual = w; average it into x_{t+1}.

        For dual averaging, `dual` is another array, the sum of all steps, from which the step is subtracted.
        """
        w = self.w if w is None else w
        points, weight = (w, self.x, self.x_previous), self.averaging_weight(t + 1)
        take_step(w if dual is None else dual, *points, message_sum, step_factor, self.radius, weight)
        self.swap_query_points()

    def swap_query_points(self) -> None:
        """Swap x_t and x_{t-1}, after x_{t+1} was written into the buffer of x_{t-1}."""
        self.x, self.x_previous = self.x_previous, self.x
