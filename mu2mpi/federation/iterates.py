"""Where the server is: the iterate, the query point, and the steps of the methods from round to round."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import aligned_zeros, kernel, reduction
from mu2mpi.federation.schedule import Schedule
from mu2mpi.losses.model.ball import BLOCK, shrinkage


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
    """Do as `take_step` but for what is projected: w_{t+1} from the sum of steps, of the same shape."""
    sum_, w, x, x_next, total = sum_.ravel(), w.ravel(), x.ravel(), x_next.ravel(), total.ravel()
    squared = 0.0
    for first in range(0, w.size, BLOCK):
        squared += descend(sum_[first : first + BLOCK], total[first : first + BLOCK], step)
    factor = shrinkage(squared, radius)
    for j in range(w.size):
        w[j] = sum_[j] * factor
        x_next[j] = (1.0 - weight) * x[j] + weight * w[j]


BeforeMove = Callable[["Iterates", int, NDArray[np.int64], float], tuple[NDArray[np.int64], float]]


class Iterates:
    """w_t, the query point x_t and the one before it.

    They are `w`, `x` and `x_previous`, shape (rows, F), all 0 at first. `mean` is that of query points
    visited, where it is the output. `direction` is the noised sum of the last step, where known, until the
    next round. `before_move` takes these, t, the noised sum and what makes a step of it, and returns other
    two.
    """

    beyond: ClassVar[tuple[str, ...]] = ()
    """Names of arrays of a checkpoint that are no points of the ball."""

    def __init__(self, schedule: Schedule, before_move: BeforeMove | None = None) -> None:
        shape = (schedule.rows, schedule.features)
        self._before_move = before_move
        self.schedule = schedule
        # At hand, since every round asks for them.
        self._rate, self._resolution = schedule.rate, schedule.mechanism.resolution
        self._total, self._size = schedule.total, schedule.sampling.size
        self._l2, self._importance = schedule.l2, schedule.estimator.weight
        self._weight, self._radius = schedule.query.averaging_weight, schedule.radius
        self.w, self.x, self.x_previous = (aligned_zeros(shape, np.float64) for _ in range(3))
        self.mean = aligned_zeros(shape, np.float64) if schedule.mean_from else None
        self.direction: NDArray[np.int64] | None = None

    def public(self) -> dict[str, NDArray[np.float64]]:
        """Return by name what every rank holds, whatever the server: what gradients and the output need."""
        arrays = {"x": self.x, "x_previous": self.x_previous}
        return arrays if self.mean is None else {**arrays, "mean": self.mean}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return by name all that the next step depends on, which a checkpoint holds."""
        return {"w": self.w, **self.public()}

    @property
    def output(self) -> NDArray[np.float64]:
        """What the method puts out if the round that was visited last is its last."""
        return self.x if self.mean is None else self.mean

    def visit(self, t: int) -> NDArray[np.float64]:
        """Return the output, having counted the query point of round t in the mean where that is it."""
        if self.mean is not None:
            self.mean += (self.x - self.mean) / max(1, t - (self.schedule.mean_from or 1) + 1)
        return self.output

    def step_size(self, t: int) -> float:
        """Return by what the integers of the sum of round t are multiplied to make a step."""
        return self._rate(t) * self._resolution / (self._total * self._size(t))

    def step(self, t: int, total: NDArray[np.int64]) -> None:
        """Move from round t to round t + 1 with the noised sum of the machines' messages."""
        self.direction = total
        self.regularise(t)
        step = self.step_size(t)
        if self._before_move is not None:
            total, step = self._before_move(self, t, total, step)
        self.move(t, total, step)

    def regularise(self, t: int) -> None:
        """Take the part of the step from round t that is known: of the regulariser at x_t, l2 x_t."""
        if self._l2:
            self.w -= self._rate(t) * self._importance(t) * self._l2 * self.x

    def move(self, t: int, total: NDArray[np.int64], step: float) -> None:
        """Subtract ``step * total`` from w_t, project, and average."""
        take_step(self.w, self.x, self.x_previous, total, step, self._radius, self._weight(t + 1))
        self.advance()

    def advance(self) -> None:
        """Make the buffer that received x_{t+1} the query point, and x_t the one before it."""
        self.x, self.x_previous = self.x_previous, self.x


class HeavyBall(Iterates):
    """w_{t+1} = Proj(w_t + beta (w_t - w_{t-1}) - eta g_t), where `momentum` is beta: Polyak, 1964."""

    def __init__(self, schedule: Schedule, momentum: float) -> None:
        super().__init__(schedule)
        self.momentum = momentum
        self.w_previous = np.zeros_like(self.w)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return by name all that the next step depends on."""
        return {**super().arrays(), "w_previous": self.w_previous}

    def step(self, t: int, total: NDArray[np.int64]) -> None:
        """Go on in the direction of the last step, and take the next from there."""
        w = self.w.copy()
        self.w += self.momentum * (w - self.w_previous)
        np.copyto(self.w_previous, w)
        super().step(t, total)


class LazyIterates(Iterates):
    """Iterates that noise leaves again as it came, also where it had taken them out of the ball.

    Steps start from their sum, not its projection: Zinkevich, "Online convex programming", 2003, has
    both.
    """

    beyond = ("sum",)

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._sum: NDArray[np.float64] = aligned_zeros(self.w.shape, np.float64)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return what the next step depends on: the sum of all steps, too."""
        return {**super().arrays(), "sum": self._sum}

    def regularise(self, t: int) -> None:
        """Take the part of the step that is known in the sum."""
        if self._l2:
            self._sum -= self._rate(t) * self._importance(t) * self._l2 * self.x

    def move(self, t: int, total: NDArray[np.int64], step: float) -> None:
        """Subtract ``step * total`` from the sum, project it, and average."""
        points = self._sum, self.w, self.x, self.x_previous
        take_lazy_step(*points, total, step, self._radius, self._weight(t + 1))
        self.advance()


class OptimisticIterates(Iterates):
    """Optimistic mirror descent: x_{t+1} averages v_{t+1} = proj(w_{t+1} - eta h), with a hint h at q_{t+1}.

    The hint is (t + 1) / t q_t: Rakhlin and Sridharan, 2013; Joulani, Raj, György and Szepesvári, 2020.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._ahead = np.zeros_like(self.w)

    def move(self, t: int, total: NDArray[np.int64], step: float) -> None:
        """Subtract ``step * total`` from w_t and project; and average what the hint makes of that."""
        weight, again = self._weight(t + 1), (t + 1) / t
        take_step(self.w, self.x, self.x_previous, total, step, self._radius, weight)
        np.copyto(self._ahead, self.w)
        if self._l2:
            self._ahead -= again * self._rate(t) * self._importance(t) * self._l2 * self.x
        take_step(self._ahead, self.x, self.x_previous, total, again * step, self._radius, weight)
        self.advance()
