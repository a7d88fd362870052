"""The constants of a run: what the paper writes as functions of T, M, d, D and rho."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.sampling import Sampling
from mu2mpi.federation.task import Setting
from mu2mpi.privacy.grid import clipping_bound
from mu2mpi.privacy.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Iterates


@dataclass(frozen=True, kw_only=True)
class Schedule(Setting):
    """All that machines and server need to know to take a round: the setting, and what the method made of it.

    Attributes
    ----------
    estimator, query, sampling : Estimator, Query, Sampling
        What machines send, where they take gradients, and which of its samples each uses in which round.
    mechanism : Mechanism
        The noise, and the grid of messages.
    rounds, radius : int, float
        T; and D / 2, the feasible set being the ball of this radius about 0.
    S : float
        Bound on what a sample adds to a message: G + 2 L D for increments (Lemma 4.2).
    eta, rate : float, callable
        The learning rate; and what a round t multiplies its message by in the step, averaged over samples.
    takes_mean : bool
        Whether the output is the mean of all query points, not the last.
    make_iterates : callable
        Takes the schedule and returns where the server begins, and how it moves.
    loss_bound : float
        What theory says that the expected excess loss of the output is at most, in nats; NaN if nothing.
    """

    estimator: Estimator
    query: Query
    sampling: Sampling
    mechanism: Mechanism
    rounds: int
    radius: float
    S: float
    eta: float
    rate: Callable[[int], float]
    takes_mean: bool
    make_iterates: "Callable[[Schedule], Iterates]"
    loss_bound: float

    @cached_property
    def bound(self) -> float:
        """Norm to which increments are clipped before they are rounded to the grid."""
        return clipping_bound(self.mechanism.clip_norm, self.mechanism.resolution, self.d)
