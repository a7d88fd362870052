"""Lazy steps: w_t is the projection of a sum of all steps, which itself is not projected."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.iterates import Iterates, descend
from mu2mpi.federation.schedule import Schedule
from mu2mpi.kernels import aligned_zeros, kernel
from mu2mpi.problem.ball import BLOCK, shrinkage


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


class LazyIterates(Iterates):
    """Iterates that noise leaves again as it came, also where it had taken them out of the ball.

    If the next step started from the projection, noise that this took away would still be cancelled later:
    Zinkevich, "Online convex programming and generalized infinitesimal gradient ascent", 2003, has both.
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
