"""Iterates of which the average is taken one step ahead: as if the next message were much like the last."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.iterates import Iterates, take_step
from mu2mpi.federation.schedule import Schedule


class OptimisticIterates(Iterates):
    """Optimistic mirror descent: x_{t+1} averages v_{t+1} = proj(w_{t+1} - eta h), with a hint h at q_{t+1}.

    The hint is the message of round t, weighted as the next one will be: (t + 1) / t q_t estimates (t + 1)
    f'(x_t). See Rakhlin and Sridharan, "Online learning with predictable sequences", 2013, and Joulani, Raj,
    György and Szepesvári, "A simpler approach to accelerated optimization", 2020.
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
