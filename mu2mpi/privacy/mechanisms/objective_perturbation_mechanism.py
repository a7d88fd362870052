"""Objective perturbation: the minimiser of the sum of losses, a regulariser and one random linear term.

Chaudhuri, Monteleoni, Sarwate, "Differentially private empirical risk minimization", 2011; Kifer, Smith,
Thakurta, "Private convex empirical risk minimization", 2012; Redberg, Koskela, Wang, "Improving the privacy
and practicality of objective perturbation", 2023. docs/background/methods.md derives the account, also for
models of several rows and for minimisers that are not exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting import guarantee as guarantees
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact, gaussian_delta, rho_exact
from mu2mpi.privacy.mechanisms.mechanism import MAX_FLOAT, MIN_POSITIVE, Mechanism
from mu2mpi.privacy.noise.grid import choose_grid_spacing, reduce_clip_norm
from mu2mpi.privacy.noise.sampler_error import SAMPLER_BUDGET_SHARE
from mu2mpi.privacy.released_sums import ReleasedSums

MIN_ROUNDS = 4  # rounds without a step: the first, and the last three
UNCLIPPED_NORM_OVER_G = 1 + 2.0**-10  # ratio of clipping norm to G at which no rounded gradient is clipped
_OUTPUT_MU_SHARE = 2.0**-4  # GDP parameter of the output noise in units of C / sigma
_MIN_OUTPUT_NOISE = 2.0**-20  # output noise in units of the largest model, which then fits into 62 bits
_NORM_TAIL = 37.5  # the linear term's norm exceeds sigma (1.01 sqrt(d) + this) with probability e^-703
_UNIT_ROUNDOFF = 1.01 * 2.0**-53  # bound on an operation's relative error; 1.01 covers products of errors


def union_delta(mu: float, output_mu: float, vertices: int, neighbours: str, epsilon: float) -> float:
    """Bound on delta at epsilon >= 0 for C / sigma = `mu`, if samples do not change the determinant."""
    counts = {1: vertices} if neighbours == "zero-out" else {2: vertices**2, 1: 2 * vertices}
    deltas = [n * gaussian_delta(epsilon, math.hypot(k * mu, output_mu)) for k, n in counts.items()]
    return math.fsum([*deltas, gaussian_delta(epsilon, output_mu)])


def union_epsilon(mu: float, output_mu: float, vertices: int, neighbours: str, delta: float) -> float:
    """Smallest epsilon >= 0 at which `union_delta` is at most `delta`, rounded up."""
    upper = epsilon_exact(math.hypot(2 * mu, output_mu), delta / (vertices + 1) ** 2)
    return _bisect(partial(union_delta, mu, output_mu, vertices, neighbours), delta, upper)


@lru_cache(maxsize=32)
def noise_multiplier(epsilon: float, delta: float, vertices: int, neighbours: str) -> float:
    """Smallest sigma / C at which `union_delta` is at most `delta`, in 8 digits."""
    upper = 2 * math.hypot(1, _OUTPUT_MU_SHARE) / rho_exact(epsilon, delta / (vertices + 1) ** 2)
    delta_at = lambda m: union_delta(1 / m, _OUTPUT_MU_SHARE / m, vertices, neighbours, epsilon)  # noqa: E731
    return 1 / guarantees.round_down_digits(1 / _bisect(delta_at, delta, upper))


def condition_number(n: int, L: float, regularization: float) -> float:
    """Condition number of the regularised sum of n losses of smoothness L, rounded up to more than 1."""
    return 1.001 + n * L / regularization


def _bisect(delta_at: Callable[[float], float], delta: float, upper: float) -> float:
    """Smallest number in (0, upper] at which a decreasing function is at most `delta`, rounded up."""
    lower = 0.0
    for _ in range(64):
        middle = (lower + upper) / 2
        lower, upper = (lower, middle) if delta_at(middle) <= delta else (middle, upper)
    return upper


@register
@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbationMechanism(Mechanism):
    """A linear term b x with b ~ N(0, sigma^2 I) in the objective, and noise added to its minimiser."""

    name, budget_parameter = "objective-perturbation", "epsilon"
    protected_outputs, reveals_messages = "last iterate", False
    noise_description = ", once in the objective"
    accounting_note = "by the density of the minimiser. All iterates before it have to stay secret."
    field_ranges = Mechanism.field_ranges | {
        **dict.fromkeys(("regularization", "G", "L", "curvature"), (MIN_POSITIVE, MAX_FLOAT)),
        **dict.fromkeys(("output_sigma", "loss_at_zero", "gradient_roundoffs"), (0, MAX_FLOAT)),
        **{"residual_vertices": (1, 2**32), "rounds": (MIN_ROUNDS, 2**32 - 1)},
    }

    output_sigma: float  # std per coordinate of the noise added to the minimiser
    regularization: float  # lambda of the regulariser lambda ||x||^2 / 2 of the sum of losses
    G: float  # as the following, of `mu2mpi.losses.loss.LossConstants`
    L: float
    gradient_roundoffs: float
    curvature: float
    residual_vertices: int
    loss_at_zero: float

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        return released_sums.loss_bounds is not None

    @classmethod
    def calibrate(cls, budget: guarantees.Budget, released_sums: ReleasedSums) -> Self:
        """Build the mechanism; InputError if the grid is too coarse for gradients that are not clipped."""
        fields, sigma = cls.released_fields(released_sums), 0.0
        C, unreserved = released_sums.clip_norm, 1 - SAMPLER_BUDGET_SHARE
        if math.isfinite(budget.rho):
            epsilon = unreserved * budget.epsilon - fields["curvature"] / fields["regularization"]
            relation = fields["residual_vertices"], released_sums.neighbours
            sigma = C * noise_multiplier(epsilon, unreserved * budget.delta, *relation)
        spacing = choose_grid_spacing(released_sums, sigma, noise_bits=40)
        if reduce_clip_norm(C, spacing, released_sums.parameters) * UNCLIPPED_NORM_OVER_G < C:
            raise InputError("The grid of messages is too coarse for so many samples. Use fewer of them.")
        mechanism = cls(sigma=sigma, grid_spacing=spacing, output_sigma=0.0, **fields)
        if 8 * mechanism.rounding_error > mechanism.regularization * mechanism.max_model_norm:
            raise InputError("Rounding errors are too large for so many samples. Use fewer of them.")
        noise_std = 2 * mechanism.model_error * sigma / (_OUTPUT_MU_SHARE * C)
        smallest = mechanism.max_model_norm * _MIN_OUTPUT_NOISE if sigma else 0.0
        return replace(mechanism, output_sigma=max(noise_std, smallest))

    @property
    def condition(self) -> float:
        """Condition number of the objective."""
        return condition_number(self.machines * self.samples, self.L, self.regularization)

    @property
    def max_model_norm(self) -> float:
        """Bound R on the minimiser's norm; at 0, the objective exceeds its minimum by lambda R^2 / 8."""
        linear_term = self.sigma * (1.01 * math.sqrt(self.parameters) + _NORM_TAIL) / self.regularization
        losses = 2 * self.machines * self.samples * self.loss_at_zero / self.regularization
        return 2 * math.hypot(linear_term, math.sqrt(losses))

    @property
    def rounding_error(self) -> float:
        """Bound e on the error of a gradient at models of norms up to 2 R, with those of its step."""
        n, d, R = self.machines * self.samples, self.parameters, self.max_model_norm
        each = 2 * d * R * self.L + (self.gradient_roundoffs + 8) * self.G
        step = 128 * self.condition * self.regularization * R
        return _UNIT_ROUNDOFF * (n * each + step) + (n + 1) * self.grid_spacing * math.sqrt(d) / 2

    @property
    def model_error(self) -> float:
        """Bound on the distance of the computed model to the exact minimiser, for any rounding errors."""
        contraction: float = (1 - self.condition**-0.5) ** ((self.rounds - MIN_ROUNDS) / 2)
        optimisation_error = math.sqrt(0.5) * self.max_model_norm * contraction
        return optimisation_error + 4 * self.rounding_error / self.regularization

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> guarantees.Guarantee:
        """Privacy guarantee for the output; earlier rounds release nothing."""
        if rounds is not None and rounds < self.rounds:
            return guarantees.GaussianGuarantee(0.0)
        if not (self.is_noisy and self.output_sigma):
            return guarantees.PrivacyCurveGuarantee(lambda _: math.inf)
        rounding = math.sqrt(self.parameters) * self.grid_spacing / self.sigma  # of the model, in output stds
        noise = self.clip_norm / self.sigma, 2 * self.model_error / self.output_sigma + rounding
        curve = partial(union_epsilon, *noise, self.residual_vertices, self.neighbours)
        log_determinant = self.curvature / self.regularization
        error = self.sampler_error(2, aggregated_machines)
        return guarantees.PrivacyCurveGuarantee(lambda delta: log_determinant + curve(delta), error)

    def round_sigma(self, t: int) -> float:
        """Noise std of the sum of round t: the linear term's in the first, the output's in round T - 1."""
        return self.sigma if t in (1, self.rounds - 1) else 0.0
