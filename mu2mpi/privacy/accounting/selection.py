"""Guarantee of the best of a random number of runs, of which nothing else is released.

Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", 2022: Theorem 2, for runs that
are rho-GDP. dp-accounting, too, has it in Renyi DP alone, and not for privacy loss distributions.
"""

import math
import secrets
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import cached_property, lru_cache

from mu2mpi.privacy.accounting.gaussian_dp import ROUND_UP_FACTOR, rho_exact
from mu2mpi.privacy.accounting.guarantee import Guarantee
from mu2mpi.privacy.mechanisms.mechanism import Concern
from mu2mpi.privacy.noise import sampler_error as sampler
from mu2mpi.privacy.noise.sampler_error import NO_SAMPLER_ERROR, SamplerError

# Truncated negative binomial distributions of the number of runs, and their shape eta
DISTRIBUTIONS = {"logarithmic": 0.0, "geometric": 1.0}
MIN_MEAN_RUNS, MAX_MEAN_RUNS = 1.01, 1000.0  # mean numbers of runs that are accounted for
RHO_RTOL = 1e-12  # by which rho may differ between the runs of a selection, by rounding
_ROUNDING_MARGIN = 1e-11  # added to epsilon; a few terms below 10^3 are rounded


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of the best of a random number K of runs; the fields are attributes of `/privacy`."""

    select: str  # metric of the test set
    select_distribution: str  # of K, one of `DISTRIBUTIONS`
    select_runs: float  # mean of K
    # Bounds on the sampler error of each run that could be drawn, as in `SamplerError`
    select_sum_squared_ratio_errors: float = 0.0
    select_max_ratio_error: float = 0.0
    select_total_variation: float = 0.0

    @property
    def sampler_error(self) -> SamplerError:
        """Bound on the sampler error of each run."""
        return SamplerError(*(getattr(self, f"select_{name}") for name in SamplerError._fields))

    @cached_property
    def continuation(self) -> float:
        """1 - gamma, to whose k-th power P(K = k), or k P(K = k) if logarithmic, is proportional."""
        if self.select_distribution == "geometric":
            return 1 - 1 / self.select_runs
        # The mean is (1 / gamma - 1) / log(1 / gamma), where Newton's method finds log(1 / gamma).
        log = 2 * math.log(self.select_runs) + 2
        for _ in range(64):
            log -= (math.expm1(log) - self.select_runs * log) / (math.exp(log) - self.select_runs)
        return -math.expm1(-log)

    def draw_run_count(self) -> int:
        """Draw K from the operating system's random numbers, exactly: by rejection, with rational numbers."""
        k, (numerator, denominator) = 1, self.continuation.as_integer_ratio()
        while secrets.randbelow(denominator) < numerator:
            k += 1
            # Starting again here is to accept a geometric number k with probability 1/2 * 2/3 ... = 1/k.
            if self.select_distribution == "logarithmic" and secrets.randbelow(k) == 0:
                k = 1
        return k

    def guarantee(self, run: Guarantee) -> "SelectionGuarantee":
        """Guarantee of the selection, from that of the selected run, whose rho is that of every run."""
        return SelectionGuarantee(math.inf if run.rho is None else run.rho * (1 + RHO_RTOL), self)

    def rho_of_runs(self, epsilon: float, delta: float) -> float:
        """Largest rho of each run within (epsilon, delta), minus the reserve for the noise sampler."""
        target, delta = ((1 - sampler.SAMPLER_BUDGET_SHARE) * value for value in (epsilon, delta))
        low, high = 0.0, rho_exact(target, delta)
        while high - low > 1e-10 * high:
            rho = (low + high) / 2
            is_within = _epsilon(SelectionGuarantee(rho, self), delta) <= target
            low, high = (rho, high) if is_within else (low, rho)
        # In digits that all processors and math libraries agree on, like `rho_for_epsilon`
        return float(Context(prec=8, rounding=ROUND_FLOOR).create_decimal(repr(low)))

    @property
    def accounting_note(self) -> str:
        """Phrase for reports: the accountant."""
        return f"by Renyi DP, for the best of a random number of runs, {self.select_runs:g} on average."

    def concerns(self) -> list[Concern]:
        """Limitations of the privacy guarantee that a reader may not expect."""
        full = (
            f"The run was selected by {self.select}, and epsilon is that of the whole selection for this "
            "result alone. Machines and others that saw any run, or the number or duration of the runs, may "
            "learn more. Test samples are not protected."
        )
        return [Concern(f"selected by {self.select}", full)]

    def errors(self) -> list[str]:
        """Error messages on fields out of the range for which a guarantee can be computed."""
        is_known = self.select_distribution in DISTRIBUTIONS and min(self.sampler_error) >= 0
        is_valid = is_known and MIN_MEAN_RUNS <= self.select_runs <= MAX_MEAN_RUNS
        return [] if is_valid else [f"{self} is out of range"]


@dataclass(frozen=True)
class SelectionGuarantee(Guarantee):
    """Guarantee of the best of K runs, each rho-GDP, for whoever sees the best alone."""

    run_rho: float
    selection: Selection

    def renyi(self, order: float, log_ratio: float = 0.0) -> float:
        """Renyi divergence bound at an order above 1: Theorem 2.

        `log_ratio` bounds the log ratio of a run's probabilities to those of an exactly rho-GDP mechanism.
        """
        rho, selection = self.run_rho, self.selection
        log_gamma = -math.log1p(-selection.continuation)
        # The least of (1 - 1/a) a rho^2/2 + log(1/gamma) / a over orders a >= 1
        root = math.sqrt(2 * log_gamma)
        least = rho * root - rho * rho / 2 if root > rho else log_gamma
        cost = (1 + DISTRIBUTIONS[selection.select_distribution]) * (least + 2 * log_ratio)
        run = order * rho * rho / 2 + (2 + 1 / (order - 1)) * log_ratio
        return run + cost + math.log(selection.select_runs) / (order - 1)

    def epsilon_exact_noise(self, delta: float) -> float:
        return _epsilon(self, delta)

    def epsilon(self, delta: float) -> float:
        """Epsilon at `delta` for sampled noise; proof in docs/background/selection.md."""
        exact, error = self.epsilon_exact_noise(delta), self.selection.sampler_error
        if error == NO_SAMPLER_ERROR or math.isinf(exact):
            return exact
        limit = sampler.max_stated_epsilon(exact)
        # Of the event in which the error bound of a run fails: over all runs it costs a share of delta.
        neg_log_p = limit + math.log(16 * self.selection.select_runs / (sampler.SAMPLER_DELTA_SHARE * delta))
        log_ratio = error.log_ratio_bound(neg_log_p) + 8 * math.exp(-neg_log_p)
        is_covered = error.total_variation <= math.exp(-neg_log_p) and 2 * log_ratio <= limit
        if neg_log_p > sampler.MAX_NEG_LOG_PROBABILITY or not is_covered:
            return math.inf
        epsilon = _epsilon(self, (1 - 2 * sampler.SAMPLER_DELTA_SHARE) * delta, log_ratio)
        return epsilon if epsilon <= limit else math.inf


@lru_cache(maxsize=1024)
def _epsilon(guarantee: SelectionGuarantee, delta: float, log_ratio: float = 0.0) -> float:
    """Least epsilon over all orders (Canonne, Kamath and Steinke, 2020: Proposition 12), rounded up."""
    if (rho := guarantee.run_rho) == 0 or math.isinf(rho):
        return rho

    def epsilon_at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # order - 1
        conversion = math.log(delta) + math.log1p(excess)
        return guarantee.renyi(1 + excess, log_ratio) - math.log1p(1 / excess) - conversion / excess

    # Any order gives a bound. The best is sought on a grid, and then by ternary search.
    centre = math.log(math.sqrt(2 * math.log(guarantee.selection.select_runs / delta)) / rho)
    best = min((centre + step / 8 for step in range(-40, 41)), key=epsilon_at)
    low, high = best - 1 / 8, best + 1 / 8
    for _ in range(40):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if epsilon_at(left) < epsilon_at(right) else (left, high)
    return max(0.0, epsilon_at(low)) * ROUND_UP_FACTOR + _ROUNDING_MARGIN
