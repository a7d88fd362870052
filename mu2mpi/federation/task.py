"""What a run is to do, before its method has chosen noise and steps; and how long it is."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mu2mpi.federation.sampling import Sampling
    from mu2mpi.privacy.guarantee import Budget
    from mu2mpi.problem.base import Problem


@dataclass(frozen=True)
class Task:
    """What a run is to do, with nothing open but what its method chooses; names are as in `Schedule`.

    Each machine has so many `samples`, n, and can use the `most`, or None if more are made as needed. D is
    the `diameter`, and `budget` what may be spent. `mechanism` is the name of the noise's mechanism, that of
    the method's own if the user chose none. `clip_norm` and `eta_scale` are None or as the user set them, and
    `options` the method's own.
    """

    problem: "Problem"
    server: str
    machines: int
    samples: int
    most: int | None
    classes: int
    features: int
    diameter: float
    unit_norm: bool
    budget: "Budget"
    mechanism: str
    G: float
    L: float
    clip_norm: float | None = None
    eta_scale: float | None = None
    aggregate_noise: bool = False
    options: Any = None

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.classes * self.features

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
