"""What the server does in a round, and who may see what: the two trust modes of the paper.

Both servers see the sum over machines as integers on the grid. They differ in where the noise enters
and so in which collectives they may use; `round` of each class shows all that ever leaves a rank.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mu2mpi.federation.machine import Machines
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.kernels import aligned_zeros, kernel, reduction
from mu2mpi.methods.arithmetic import check_arithmetic
from mu2mpi.methods.schedule import Schedule
from mu2mpi.methods.steps import learning_rate
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.iteration import LANDING
from mu2mpi.privacy.noise import SERVER, add_noise, padded_zeros
from mu2mpi.problem.ball import BLOCK, shrinkage

__all__ = ["Iterates", "Server", "TrustedServer", "UntrustedServer", "make_server", "take_step"]


@reduction
def _descend(w, total, step):  # type: ignore[no-untyped-def]
    """Subtract ``step * total`` from w and return the squared norm of what results."""
    squared = 0.0
    for j in range(w.size):
        w[j] -= step * np.float64(total[j])
        squared += w[j] * w[j]
    return squared


@kernel
def take_step(w, x, x_next, total, step, radius, weight):  # type: ignore[no-untyped-def]
    """Project a gradient step on K and average: w_{t+1} and x_{t+1} from w_t, x_t and the sum of messages.

    Parameters
    ----------
    w : ndarray of float64, shape (K, F)
        w_t, made w_{t+1}.
    x, x_next : ndarray of float64, shape (K, F)
        x_t; and where to put x_{t+1}.
    total : ndarray of int64, shape (K, F)
        The noised sum over machines, in units of the grid.
    step : float
        The learning rate times the resolution over the number of samples: what takes the sum to the step.
    radius : float
        Radius of the ball K about 0.
    weight : float
        alpha_{t+1} / alpha_{1:t+1}; 1 makes x_{t+1} = w_{t+1}.
    """
    w, x, x_next, total = w.ravel(), x.ravel(), x_next.ravel(), total.ravel()
    squared = 0.0
    for first in range(0, w.size, BLOCK):
        squared += _descend(w[first : first + BLOCK], total[first : first + BLOCK], step)
    factor = shrinkage(squared, radius)
    for j in range(w.size):
        w[j] *= factor
        x_next[j] = (1.0 - weight) * x[j] + weight * w[j]


class Iterates:
    """w_t, the query point x_t and the one before it.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.

    Raises
    ------
    InputError
        If iterates are hidden, and floating-point numbers too coarse for what their account allows.

    Attributes
    ----------
    w, x, x_previous : ndarray of float64, shape (K, F)
        w_t, x_t and x_{t-1}; all 0 at first (w_1 = x_1 = x_0 = 0).
    mean : ndarray of float64, shape (K, F), or None
        Mean of the query points that were visited, where that is the output.
    direction : ndarray of int64, shape (K, F), or None
        The noised sum of the last step, in units of the grid, where it is known; valid until the next round.
    """

    def __init__(self, schedule: Schedule) -> None:
        shape = (schedule.classes, schedule.features)
        self.w, self.x, self.x_previous = (aligned_zeros(shape, np.float64) for _ in range(3))
        method = schedule.method
        self.mean = aligned_zeros(shape, np.float64) if method.takes_mean else None
        self._query = method.query
        self._learning_rate = learning_rate(method, schedule.eta, schedule.rounds)
        self._resolution, self._machines = schedule.resolution, schedule.machines
        self._sampling = schedule.sampling
        self._radius = schedule.radius
        # Only the last step of hidden iterates is seen.
        self._seen_step = schedule.rounds - 1 if method.hides_iterates and schedule.sigma > 0 else None
        if self._seen_step is not None:
            check_arithmetic(schedule)
        self.direction: NDArray[np.int64] | None = None

    @property
    def output(self) -> NDArray[np.float64]:
        """What the method puts out if the round that was visited last is its last."""
        return self.x if self.mean is None else self.mean

    def visit(self, t: int) -> NDArray[np.float64]:
        """Return the output, having counted the query point of round t in the mean where that is it."""
        if self.mean is not None:
            self.mean += (self.x - self.mean) / t
        return self.output

    def step(self, t: int, total: NDArray[np.int64]) -> None:
        """Move from round t to round t + 1 with the noised sum of the machines' messages."""
        step = self._learning_rate(t) * self._resolution / (self._machines * self._sampling.size(t))
        weight = self._query.averaging_weight(t + 1)
        self.direction = total
        if t == self._seen_step:
            # What is seen is a function of w_t - step * total alone, were w_t a multiple of the grid.
            step *= LANDING
            total = total // LANDING - np.rint(self.w / step).astype(np.int64)
            self.w.fill(0.0)
        take_step(self.w, self.x, self.x_previous, total, step, self._radius, weight)
        self.advance()

    def advance(self) -> None:
        """Make the buffer that received x_{t+1} the query point, and x_t the one before it."""
        self.x, self.x_previous = self.x_previous, self.x


class Server(Protocol):
    """What the loop over rounds needs of a server."""

    iterates: Iterates

    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t, from the query point x_t to x_{t+1}.

        No query point follows that of the last round, whose messages move nothing any more.
        """


class UntrustedServer:
    """Algorithm 1: nothing leaves a machine without noise, so everyone may see the sum.

    Every rank takes the same step on the same bits, which spares a broadcast.
    """

    def __init__(self, schedule: Schedule, communicator: Communicator) -> None:
        self.iterates = Iterates(schedule)
        self._rounds = schedule.rounds
        self._communicator = communicator
        self._total = aligned_zeros((schedule.classes, schedule.features), np.int64)

    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t: noise, Allreduce, the step on every rank."""
        iterates = self.iterates
        machines.observe(t, iterates.x, iterates.x_previous)
        clock.lap("compute")
        message = machines.noised(t)
        clock.lap("noise")
        total = self._communicator.allreduce(message, self._total)
        clock.lap("communication")
        if t < self._rounds:
            iterates.step(t, total)
            clock.lap("compute")


class TrustedServer:
    """Algorithm 2: rank 0 alone sees the sum, and adds noise before anything leaves it.

    An Allreduce would hand the un-noised sum to every machine. Only rank 0 holds the noise key and w_t;
    the others receive x_{t+1}.

    Parameters
    ----------
    key : ndarray of uint32, shape (8,), or None
        Noise key on rank 0; None elsewhere.
    """

    def __init__(
        self, schedule: Schedule, communicator: Communicator, key: NDArray[np.uint32] | None
    ) -> None:
        self.iterates = Iterates(schedule)
        self._schedule = schedule
        self._communicator = communicator
        self._key = key
        self._total: NDArray[np.int64] | None = None
        if communicator.rank == 0:
            shape = (schedule.classes, schedule.features)
            self._flat_total, self._total = padded_zeros(shape)
            self._flat_message, self._message = padded_zeros(shape)

    def round(self, t: int, machines: Machines, clock: Stopwatch) -> None:
        """Take round t: Reduce to rank 0, noise and the step there, Bcast of x_{t+1}."""
        iterates = self.iterates
        machines.observe(t, iterates.x, iterates.x_previous)
        clock.lap("compute")
        total = self._communicator.reduce(machines.q, self._total)
        clock.lap("communication")
        if t == self._schedule.rounds:
            return
        if total is not None:
            # A lone rank gets its own array back.
            flat = self._flat_total if total is self._total else machines.flat_q
            message = self._noised(t, flat) if self._schedule.sigma > 0 else total
            clock.lap("noise")
            iterates.step(t, message)
            clock.lap("compute")
            self._communicator.bcast(iterates.x)
        else:
            self._communicator.bcast(iterates.x_previous)
            iterates.advance()
        clock.lap("communication")

    def _noised(self, t: int, flat_total: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._key is None:
            raise RuntimeError("the server holds no noise key")
        scale = self._schedule.sigma_of(t) / self._schedule.resolution
        add_noise(self._flat_message, flat_total, self._key, SERVER, 0, 1, t, scale)
        return self._message


def make_server(schedule: Schedule, communicator: Communicator, key: NDArray[np.uint32] | None) -> Server:
    """Return the server of the schedule's trust mode; `key` is the noise key where it is the server's."""
    if schedule.server == "trusted":
        return TrustedServer(schedule, communicator, key)
    return UntrustedServer(schedule, communicator)
