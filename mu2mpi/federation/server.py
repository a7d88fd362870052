"""What the server does in a round, and who may see what: the two trust modes of the paper.

Both servers see the sum over machines as integers on the grid. They differ in where the noise enters
and so in which collectives they may use; `round` of each class shows all that ever leaves a rank.
"""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.machine import Machines, Supply
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.kernels import aligned_zeros
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.drawing import Draw, make_draw
from mu2mpi.privacy.noise import SERVER, padded_zeros

Key = NDArray[np.uint32] | None


class Server(ABC):
    """What the loop over rounds needs of a server."""

    def __init__(self, schedule: Schedule, communicator: Communicator) -> None:
        self.iterates = schedule.make_iterates(schedule)
        self._schedule, self._communicator = schedule, communicator

    @abstractmethod
    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t, from the query point x_t to x_{t+1}; the messages of the last round move nothing."""

    def _observe(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Have the machines use the samples of round t, which may have to be read first."""
        if t not in machines.samples.rounds:
            clock.lap("compute")
            machines.read(t)
            clock.lap("data")
        machines.observe(t, self.iterates.x, self.iterates.x_previous)
        clock.lap("compute")


class UntrustedServer(Server):
    """Algorithm 1: nothing leaves a machine without noise, so everyone may see the sum.

    Every rank takes the same step on the same bits, which spares a broadcast.
    """

    def __init__(self, schedule: Schedule, communicator: Communicator) -> None:
        super().__init__(schedule, communicator)
        self._total = aligned_zeros((schedule.rows, schedule.features), np.int64)

    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t: noise, Allreduce, the step on every rank."""
        iterates = self.iterates
        self._observe(t, machines, clock)
        message = machines.noised(t)
        clock.lap("noise")
        total = self._communicator.allreduce(message, self._total)
        clock.lap("moving")
        if t < self._schedule.rounds:
            iterates.step(t, total)
            clock.lap("step")


class TrustedServer(Server):
    """Algorithm 2: rank 0 alone sees the sum, and adds noise before anything leaves it.

    An Allreduce would hand the un-noised sum to every machine. Only rank 0 holds the noise key, words of
    uint32 of shape (8,), and w_t; the others have None for a key and receive x_{t+1}.
    """

    def __init__(self, schedule: Schedule, communicator: Communicator, key: Key) -> None:
        super().__init__(schedule, communicator)
        self._draw: Draw | None = None
        self._total: NDArray[np.int64] | None = None
        if communicator.rank == 0:
            shape = (schedule.rows, schedule.features)
            self._flat_total, self._total = padded_zeros(shape)
            self._flat_message, self._message = padded_zeros(shape)
            if key is not None and schedule.mechanism.is_noisy:
                who, size = (SERVER, 0, 1), self._flat_total.size
                self._draw = make_draw(schedule.mechanism, key, who, 1.0, size, schedule.finest)

    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t: Reduce to rank 0, noise and the step there, Bcast of x_{t+1}."""
        iterates = self.iterates
        self._observe(t, machines, clock)
        total = self._communicator.reduce(machines.q, self._total)
        clock.lap("moving")
        if t == self._schedule.rounds:
            return
        if total is not None:
            # A lone rank gets its own array back.
            flat = self._flat_total if total is self._total else machines.flat_q
            message = self._noised(t, flat) if self._schedule.mechanism.is_noisy else total
            clock.lap("noise")
            iterates.step(t, message)
            clock.lap("step")
            self._communicator.bcast(iterates.x)
        else:
            self._communicator.bcast(iterates.x_previous)
            iterates.advance()
        clock.lap("moving")

    def _noised(self, t: int, flat_total: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._draw is None:
            raise RuntimeError("the server holds no noise key")
        self._draw(self._flat_message, flat_total, t)
        return self._message


def machines_and_server(
    schedule: Schedule, hosted: range, supply: Supply, communicator: Communicator, key: Key
) -> tuple[Machines, Server]:
    """Return a rank's machines and server; the key goes to all machines, or to rank 0 if it is trusted."""
    if schedule.server == "trusted":
        server = TrustedServer(schedule, communicator, key if communicator.rank == 0 else None)
        return Machines(schedule, hosted, supply, None), server
    return Machines(schedule, hosted, supply, key), UntrustedServer(schedule, communicator)
