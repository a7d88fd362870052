"""What a run is to do, before its method has chosen noise and steps; and how long it is."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mu2mpi.federation.sampling import Sampling
    from mu2mpi.privacy.guarantee import Budget
    from mu2mpi.problem.base import Problem

__all__ = ["Sizes", "Task"]


@dataclass(frozen=True)
class Task:
    """What a run is to do, with nothing open but what its method chooses.

    Attributes
    ----------
    problem : Problem
        The loss.
    server : str
        ``"untrusted"`` or ``"trusted"``.
    machines : int
        M.
    samples : int
        How many training samples each machine has, n.
    most : int or None
        How many it can use; None if more are made as they are needed.
    classes, features : int
        K and F (with the bias).
    diameter : float
        D.
    unit_norm : bool
        Whether samples are scaled to norm 1.
    budget : Budget
        What may be spent.
    mechanism : str
        The name of the noise's mechanism; that of the method's own if the user chose none.
    G, L : float
        Norm that no gradient passes, and smoothness.
    clip_norm, eta_scale : float or None
        As the user set them.
    aggregate_noise : bool
        Whether the noise of all machines is drawn as one.
    options : Options
        The method's own.
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
    """How long a run is, and which samples it uses.

    Attributes
    ----------
    rounds : int
        T.
    sampling : Sampling
        Which of its samples each machine uses in which round.
    options : dict
        Those of the method that were left open, with their values.
    """

    rounds: int
    sampling: "Sampling"
    options: dict[str, Any] = field(default_factory=dict)
