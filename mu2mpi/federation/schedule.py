"""What a run is to do, before its method has chosen noise and steps; and its constants once it has."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.privacy.grid import clipping_bound
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.privacy.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.iterates import Iterates
    from mu2mpi.federation.sampling import Sampling
    from mu2mpi.problem.base import Problem


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is the same whatever a method chooses.

    Attributes
    ----------
    problem, server : Problem, str
        The loss; and ``"untrusted"`` (Algorithm 1) or ``"trusted"`` (Algorithm 2).
    machines, classes, features : int
        M, K and F (with the bias), so that d = K F.
    unit_norm, aggregate_noise : bool
        Whether samples are scaled to norm 1; whether the noise of all machines is drawn as one, which
        simulates an untrusted server.
    G, L : float
        Bounds on gradients, and on their change.
    """

    problem: "Problem"
    server: str
    machines: int
    classes: int
    features: int
    unit_norm: bool
    G: float
    L: float
    aggregate_noise: bool = False

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.classes * self.features


@dataclass(frozen=True, kw_only=True)
class Task(Setting):
    """What a run is to do, with nothing open but what its method chooses.

    Each machine has so many `samples`, n, and can use the `most`, or None if more are made as needed. D is
    the `diameter`, and `budget` what may be spent. `mechanism` is the name of the noise's mechanism, that of
    the method's own if the user chose none. `clip_norm` and `eta_scale` are None or as the user set them, and
    `options` the method's own.
    """

    samples: int
    most: int | None
    diameter: float
    budget: Budget
    mechanism: str
    clip_norm: float | None = None
    eta_scale: float | None = None
    options: Any = None

    @property
    def shared(self) -> float:
        """By what the average over machines has less noise than one draw: sqrt(M) or M."""
        return self.machines if self.server == "trusted" else math.sqrt(self.machines)


@dataclass(frozen=True)
class Sizes:
    """How long a run is and which samples it uses, with values of the options that were left open."""

    rounds: int
    sampling: "Sampling"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Schedule(Setting):
    """All that machines and server need to know to take a round: the setting, and what the method made of it.

    Attributes
    ----------
    estimator, query, sampling : Estimator, Query, Sampling
        What machines send, where they take gradients, and which of its samples each uses in which round.
    mechanism : Mechanism
        The noise, and the grid of messages.
    rounds, radius, S : int, float, float
        T; D / 2, the feasible set being the ball of this radius about 0; and a bound on what a sample adds to
        a message, G + 2 L D for increments (Lemma 4.2).
    eta, rate : float, callable
        The learning rate; and what a round t multiplies its message by in the step, averaged over samples.
    takes_mean, make_iterates : bool, callable
        Whether the output is the mean of all query points, not the last; and what takes the schedule and
        returns where the server begins, and how it moves.
    loss_bound : float
        What theory says that the expected excess loss of the output is at most, in nats; NaN if nothing.
    """

    estimator: Estimator
    query: Query
    sampling: "Sampling"
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
