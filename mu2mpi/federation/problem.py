"""Optimisation problem of a run: the loss, the machines, the ball K and the privacy budget."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mu2mpi.core.registry import lookup
from mu2mpi.data.source import FEATURE_BOUND_RTOL
from mu2mpi.federation.trust_mode import TrustMode
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from mu2mpi.federation.unequal_machines import PerMachinePlan, UnequalMachines
    from mu2mpi.losses.loss import Loss, LossConstants
    from mu2mpi.losses.model.scaling import Scaling


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Optimisation problem of a run: loss, data sizes, trust mode, ball, budget, method options."""

    loss: "Loss"
    server: str  # name of the trust mode, such as "untrusted" (Algorithm 1) or "trusted" (Algorithm 2)
    server_options: Any = None  # options of the trust mode
    noise_shares: int = 1  # noise shares that add up to N(0, sigma^2 I) in a sum: M - c, or 1
    machines: int  # M
    classes: int  # number of classes
    model_rows: int  # rows of the model: one per class, or one
    features: int  # F, including the bias
    feature_scaling: "Scaling"  # scaling of each sample
    max_squared_norm: float  # bound on ||z||^2 for features within their bounds
    G: float  # bound on the norm of a sample's gradient
    L: float  # Lipschitz constant of the gradient
    l2: float = 0.0  # lambda of the regulariser lambda ||x||^2 / 2, which the server applies
    uses_aggregate_noise: bool = False  # whether one draw of noise stands for those of all machines
    samples: int  # n, samples per machine
    max_samples_per_machine: int | None  # largest number that a machine can use; None for a population
    diameter: float  # D, diameter of the ball K about 0
    budget: Budget
    neighbours: str = "replace"  # neighbouring relation of the budget
    mechanism: str  # name of the mechanism
    mechanism_options: Any = None
    clip_norm: float | None = None  # as set by the user
    eta_scale: float | None = None  # as set by the user
    method_options: Any = None  # options of the method
    unequal_machines: "UnequalMachines | None" = None  # if machines differ or participate partially
    per_machine_plan: "PerMachinePlan | None" = None  # weights and noise of unequal machines, once calibrated

    @property
    def d(self) -> int:
        """Number of model parameters d: rows times features."""
        return self.model_rows * self.features

    @property
    def radius(self) -> float:
        """Radius of the ball K: D / 2."""
        return self.diameter / 2

    @property
    def colluders(self) -> int:
        """Number of machines whose noise the adversary may know."""
        return self.machines - self.noise_shares

    @property
    def trust_mode(self) -> type[TrustMode]:
        """Trust mode as a class, such as `TrustedServer`."""
        trust_mode: type[TrustMode] = lookup("servers", self.server)
        return trust_mode

    @property
    def variance_factor(self) -> float:
        """Variance of the noise in a round's sum, in units of sigma^2."""
        return self.trust_mode.variance_factor(self.machines, self.noise_shares)

    @property
    def noise_reduction(self) -> float:
        """Ratio of sigma to the noise std of the averaged message: sqrt(M), M, or in between."""
        return self.trust_mode.noise_reduction(self.machines, self.noise_shares)

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the regularised loss's gradient: L + lambda."""
        return self.L + self.l2

    @property
    def loss_constants_with_tolerance(self) -> "LossConstants":
        """Lipschitz constants G and L for features that exceed their bound by `FEATURE_BOUND_RTOL`."""
        max_squared_norm = self.max_squared_norm * (1 + FEATURE_BOUND_RTOL) ** 2
        return self.loss.constants(max_squared_norm, self.radius, self.classes)

    @property
    def effective_machines(self) -> float:
        """Number of equal machines whose average gradient has the same variance."""
        return self.machines if self.per_machine_plan is None else self.per_machine_plan.effective_machines

    @property
    def mean_participation(self) -> float:
        """Average share of the machines that take part in a round."""
        run = None if self.per_machine_plan is None else self.per_machine_plan.participation
        return float(run.counts.mean()) / run.rounds if run else 1.0

    def local_clip_norm(self, message_norm: float) -> float:
        """Return the clipping norm of gradients in local steps whose message is clipped to `message_norm`."""
        return min(self.G, 1000 * message_norm)  # G may be infinite, but sums of gradients are integers.

    def noise_std_and_reduction(self, mechanism: Mechanism) -> tuple[float, float]:
        """Return the noise std of a message, and its ratio to the noise std of the averaged message."""
        if self.per_machine_plan is None:
            return mechanism.sigma, self.noise_reduction
        return self.per_machine_plan.noise_std, 1.0
