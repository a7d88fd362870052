"""The constants of a run: what the paper writes as functions of T, M, d, D and rho."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.sampling import Sampling
from mu2mpi.privacy.grid import clipping_bound
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.problem.base import Problem

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Iterates


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """All that machines and server need to know to take a round.

    Attributes
    ----------
    problem, mechanism : Problem, Mechanism
        The loss; the noise, and the grid of messages.
    estimator, query, sampling : Estimator, Query, Sampling
        What machines send, where they take gradients, and which of its samples each uses in which round.
    server : str
        ``"untrusted"`` (Algorithm 1) or ``"trusted"`` (Algorithm 2).
    machines, rounds, classes, features : int
        M, T, K and F (with the bias), so that d = K F.
    radius, unit_norm : float, bool
        D / 2, the feasible set being the ball of this radius about 0; whether samples are scaled to norm 1.
    G, L, S : float
        Bounds on gradients, on their change, and on what a sample adds to a message: S = G + 2 L D for
        increments (Lemma 4.2).
    eta, rate : float, callable
        The learning rate; and what a round t multiplies its message by in the step, averaged over samples.
    takes_mean, aggregate_noise : bool
        Whether the output is the mean of all query points, not the last; whether the noise of all machines is
        drawn as one, which simulates an untrusted server.
    make_iterates : callable
        Takes the schedule and returns where the server begins, and how it moves.
    loss_bound : float
        What theory says that the expected excess loss of the output is at most, in nats; NaN if nothing.
    """

    problem: Problem
    estimator: Estimator
    query: Query
    sampling: Sampling
    mechanism: Mechanism
    server: str
    machines: int
    rounds: int
    classes: int
    features: int
    radius: float
    unit_norm: bool
    G: float
    L: float
    S: float
    eta: float
    rate: Callable[[int], float]
    takes_mean: bool
    make_iterates: "Callable[[Schedule], Iterates]"
    loss_bound: float
    aggregate_noise: bool = False

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.classes * self.features

    @property
    def clip_norm(self) -> float:
        """Norm that nothing passes that a sample adds to a message."""
        return self.mechanism.clip_norm

    @property
    def sigma(self) -> float:
        """Standard deviation of a draw of noise, as the mechanism states it."""
        return self.mechanism.sigma

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise at all."""
        return self.mechanism.is_noisy

    @property
    def resolution(self) -> float:
        """Spacing of the grid of messages."""
        return self.mechanism.resolution

    @cached_property
    def bound(self) -> float:
        """Norm to which increments are clipped before they are rounded to the grid."""
        return clipping_bound(self.clip_norm, self.resolution, self.d)

    def sigma_of(self, t: int) -> float:
        """Return the standard deviation of each draw of noise of round t."""
        return self.mechanism.sigma_of(t)
