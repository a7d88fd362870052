"""What a run minimises, on which machines, in which ball, and with which budget."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mu2mpi.core.registry import find
from mu2mpi.federation.trust_mode import TrustMode
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.unequal_machines import PerMachinePlan, UnequalMachines
    from mu2mpi.losses.loss import Problem
    from mu2mpi.losses.model.scaling import Scaling


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a run is to do, with nothing open but what its method chooses."""

    problem: "Problem"
    server: str  # the trust mode, such as "untrusted" (Algorithm 1) or "trusted" (Algorithm 2)
    server_options: Any = None
    parts: int = 1  # draws of as many machines hide a sum together
    machines: int  # M
    classes: int  # K
    rows: int  # of the model: K, or one where that is enough
    features: int  # F, with the bias
    scaling: "Scaling"  # of each sample by itself
    square: float  # bound on ||z||^2 where features keep to their bound
    G: float  # bound on the norm of a gradient
    L: float  # Lipschitz constant of the gradient
    l2: float = 0.0  # lambda of the regulariser lambda ||x||^2 / 2, whose gradient the server adds
    aggregate_noise: bool = False  # whether the noise of all machines is drawn as one
    samples: int  # n, of each machine
    most: int | None  # largest number that each can use; None if more are made as needed
    diameter: float  # D, of the ball K about 0
    budget: Budget
    mechanism: str  # name of the mechanism
    mechanism_options: Any = None
    clip_norm: float | None = None  # as the user set it
    eta_scale: float | None = None  # as the user set it
    options: Any = None  # of the method
    unequal: "UnequalMachines | None" = None  # where machines differ, or some are away
    per_machine: "PerMachinePlan | None" = None  # their weights and noise, once calibrated

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.rows * self.features

    @property
    def radius(self) -> float:
        """Radius of the ball K: D / 2."""
        return self.diameter / 2

    @property
    def colluders(self) -> int:
        """Number of machines whose noise may be known."""
        return self.machines - self.parts

    @property
    def trust(self) -> type[TrustMode]:
        """The trust mode."""
        trust: type[TrustMode] = find("servers", self.server)
        return trust

    @property
    def variances(self) -> float:
        """Variance of the noise in the sum of a round, in units of sigma^2."""
        return self.trust.variances(self.machines, self.parts)

    @property
    def shared(self) -> float:
        """Ratio of sigma to the noise std of the average over machines: sqrt(M), M, or in between."""
        return self.trust.shared(self.machines, self.parts)

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient with that of the regulariser."""
        return self.L + self.l2

    @property
    def effective_machines(self) -> float:
        """Number of equal machines that would average samples as well."""
        return self.machines if self.per_machine is None else self.per_machine.effective_machines

    @property
    def mean_share(self) -> float:
        """Average share of the machines that take part in a round."""
        run = None if self.per_machine is None else self.per_machine.participation
        return float(run.counts.mean()) / run.rounds if run else 1.0

    def noise_of(self, mechanism: Mechanism) -> tuple[float, float]:
        """Return the noise std, and its ratio to that of the average over machines."""
        if self.per_machine is None:
            return mechanism.sigma, self.shared
        return self.per_machine.noise_std, 1.0
