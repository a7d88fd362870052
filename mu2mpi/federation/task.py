"""What a run is to do, before its method has chosen noise and steps; and how long it is."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mu2mpi.privacy.guarantee import Budget

if TYPE_CHECKING:
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
