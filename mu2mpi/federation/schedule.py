"""What a run is to do, before its method has chosen noise and steps; and its constants once it has."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.servers.base import Server, trust_mode
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.privacy.noise.grid import clipping_bound

if TYPE_CHECKING:
    from mu2mpi.federation.cohort import Cohort, Members
    from mu2mpi.federation.iterates import Iterates
    from mu2mpi.federation.sampling import Sampling
    from mu2mpi.losses.base import Problem
    from mu2mpi.losses.model.scaling import Scaling


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is the same whatever a method chooses."""

    problem: "Problem"
    server: str  # the trust mode, such as "untrusted" (Algorithm 1) or "trusted" (Algorithm 2)
    server_options: Any = None  # those of the trust mode
    parts: int = 1  # draws of as many machines hide a sum together
    machines: int  # M
    classes: int  # K
    rows: int  # of the model: K, or one where that is enough
    features: int  # F, with the bias
    scaling: "Scaling"  # what is done to each sample by itself
    square: float  # no ||z||^2 passes it where features keep to their bound
    G: float  # no gradient's norm passes it
    L: float  # Lipschitz constant of the gradient
    l2: float = 0.0  # lambda of the regulariser lambda ||x||^2 / 2, whose gradient the server adds
    aggregate_noise: bool = False  # whether that of all machines is drawn as one

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.rows * self.features

    @property
    def trust(self) -> type[Server]:
        """The trust mode."""
        return trust_mode(self.server)

    @property
    def variances(self) -> float:
        """The variance of the noise in the sum of a round, in units of sigma^2."""
        return self.trust.variances(self.machines, self.parts)

    @property
    def shared(self) -> float:
        """By what the average over machines has less noise than sigma: sqrt(M) or M, or in between."""
        return self.trust.shared(self.machines, self.parts)

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient with that of the regulariser."""
        return self.L + self.l2


@dataclass(frozen=True, kw_only=True)
class Task(Setting):
    """What a run is to do, with nothing open but what its method chooses."""

    samples: int  # n, of each machine
    most: int | None  # how many each can use; None if more are made as needed
    diameter: float  # D
    budget: Budget  # what may be spent
    mechanism: str  # its name, that of the method's own if the user chose none
    clip_norm: float | None = None  # as the user set it
    eta_scale: float | None = None  # as the user set it
    options: Any = None  # the method's own
    mechanism_options: Any = None  # those of the mechanism
    cohort: "Cohort | None" = None  # where machines differ, or some are away
    members: "Members | None" = None  # what hides their messages, once that is known

    @property
    def effective(self) -> float:
        """Over how many machines samples are averaged."""
        return self.machines if self.members is None else self.members.effective

    @property
    def there(self) -> float:
        """Which share of the machines takes part in a round, on average."""
        attendance = None if self.members is None else self.members.attendance
        return float(attendance.counts.mean()) / attendance.rounds if attendance else 1.0

    def noise_of(self, mechanism: Mechanism) -> tuple[float, float]:
        """Return the standard deviation of a draw, and by what the average over machines has less of it."""
        return (mechanism.sigma, self.shared) if self.members is None else (self.members.noise, 1.0)


@dataclass(frozen=True)
class Sizes:
    """How long a run is and which samples it uses, with values of the options that were left open."""

    rounds: int
    sampling: "Sampling"
    options: dict[str, Any] = field(default_factory=dict)
    most: int | None = None  # how many samples the largest machine may use, where they use what each has


@dataclass(frozen=True, kw_only=True)
class Schedule(Setting):
    """All that machines and server need to take a round: the setting, and what the method made of it."""

    estimator: Estimator  # what machines send
    query: Query  # where they take gradients
    sampling: "Sampling"  # which of its samples each uses in which round
    mechanism: Mechanism  # the noise, and the grid of messages
    rounds: int  # T
    radius: float  # D / 2, of the ball K about 0
    S: float  # bounds what a sample adds to a message: G + 2 L D for increments (Lemma 4.2)
    eta: float  # the learning rate
    rate: Callable[[int], float]  # by what a step multiplies the message of round t, averaged over samples
    mean_from: int | None  # the output is the mean of the query points from this round on, or the last
    make_iterates: "Callable[[Schedule], Iterates]"  # returns where the server begins, and how it moves
    members: "Members | None" = None  # what each machine does, where they differ
    loss_bound: float  # on the expected excess loss of the output by theory, in nats; NaN if there is none

    @property
    def total(self) -> float:
        """What the weights of the machines of a round are expected to add up to: M if all are there."""
        return self.machines if self.members is None else self.members.total

    @property
    def finest(self) -> float:
        """Beyond how many units of the grid a server's draws are spread, so that all accounts hold."""
        kinds = (self.mechanism,) if self.members is None else self.members.kinds
        return min(kind.finest for kind in kinds)

    def summed(self, t: int, count: Callable[[int], float]) -> float:
        """Return the sum over machines of a function of how many of the first t rounds each was in."""
        return self.machines * count(t) if self.members is None else self.members.summed(t, count)

    def rho_spent(self, t: int) -> float:
        """Return the rho of the first rounds, for the sample of which they tell most; NaN without one."""
        return (self.mechanism if self.members is None else self.members).rho_spent(t)

    def promised(self, epsilon: float) -> Iterable[tuple[Mechanism, float]]:
        """Return each of what hides messages with the epsilon it must keep to: this, or its machines' own."""
        return [(self.mechanism, epsilon)] if self.members is None else self.members.promised(epsilon)

    @cached_property
    def bound(self) -> float:
        """Norm to which increments are clipped before they are rounded to the grid."""
        return clipping_bound(self.mechanism.clip_norm, self.mechanism.resolution, self.d)

    def clipping(self, hosted: range) -> list[tuple[int, float, float]] | None:
        """Return number, norm and grid, before weights, of hosted machines; None if they are the same."""
        resolution = self.mechanism.resolution
        if self.members is None or self.members.weights.min() == 1:
            return None
        weights, norms = self.members.weights, self.members.clipping()
        return [
            (k, clipping_bound(float(norms[i]), resolution, self.d) / weights[i], resolution / weights[i])
            for k, i in enumerate(hosted)
            if norms[i] > 0
        ]
