"""Iterates with momentum: a share of each step goes on into the next."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.schedule import Schedule


class HeavyBall(Iterates):
    """w_{t+1} = Proj(w_t + beta (w_t - w_{t-1}) - eta g_t), where `momentum` is beta.

    Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    """

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
