"""Guarantee of the best of a random number of runs, when nothing else of the runs is released.

Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", 2022: Theorem 2 (truncated
negative binomial number of runs) and Theorem 6 (Poisson), for runs that are rho-GDP. dp-accounting has them
in Renyi DP as well, and not for privacy loss distributions.
"""

import math
import secrets
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import lru_cache
from typing import NamedTuple

from mu2mpi.privacy.accounting import gaussian_dp
from mu2mpi.privacy.accounting.guarantee import Guarantee
from mu2mpi.privacy.noise.sampler_error import (
    MAX_NEG_LOG_PROBABILITY,
    NO_SAMPLER_ERROR,
    SAMPLER_BUDGET_SHARE,
    SAMPLER_DELTA_SHARE,
    SamplerError,
    max_stated_epsilon,
)

# Distributions of the number of runs, and the shape eta of those that are truncated negative binomial
DISTRIBUTIONS = {"logarithmic": 0.0, "geometric": 1.0, "poisson": math.inf}
MIN_MEAN_RUNS, MAX_MEAN_RUNS = 1.01, 1000.0  # mean numbers of runs that are accounted for
RHO_RTOL = 1e-12  # by which rho may differ between the runs of a selection, by rounding
_ROUNDING_MARGIN = 1e-11  # added to epsilon; a few terms below 10^3 are rounded


class RunCount(NamedTuple):
    """Distribution of the number K of runs: its name, one of `DISTRIBUTIONS`, and its mean."""

    distribution: str
    mean: float

    @property
    def continuation(self) -> float:
        """1 - gamma of the negative binomial: P(K = k) ~ (1 - gamma)^k, by k for the logarithmic one."""
        return _continuation(self)

    def draw(self) -> int:
        """Draw K from the operating system's random numbers, exactly: by rejection, with rational numbers."""
        if self.distribution != "poisson":
            eta, k = DISTRIBUTIONS[self.distribution], 1 + _draw_geometric(self.continuation)
            while eta == 0 and secrets.randbelow(k):  # accepted with probability 1 / k
                k = 1 + _draw_geometric(self.continuation)
            return k
        # A sum of Poisson numbers of a mean of at most 1/2, of which n is accepted with probability 1 / n!
        pieces, total = 2 << math.ceil(math.log2(self.mean)), 0
        for _ in range(pieces):
            while secrets.randbelow(math.factorial(n := _draw_geometric(self.mean / pieces))):
                pass
            total += n
        return total


@lru_cache(maxsize=64)
def _continuation(run_count: RunCount) -> float:
    distribution, mean = run_count
    if distribution == "geometric":
        return 1 - 1 / mean
    # The logarithmic distribution has the mean (1 / gamma - 1) / log(1 / gamma): a search for log(1 / gamma).
    low, high = 0.0, 2 * math.log(mean) + 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if math.expm1(middle) >= mean * middle else (middle, high)
    return -math.expm1(-high)


def _draw_geometric(probability: float) -> int:
    """Draw the number of successes before the first failure, of trials with this very probability."""
    successes, (numerator, denominator) = 0, probability.as_integer_ratio()
    while secrets.randbelow(denominator) < numerator:
        successes += 1
    return successes


@dataclass(frozen=True)
class SelectionGuarantee(Guarantee):
    """Guarantee of the best of K runs, each rho-GDP, for whoever sees the best alone."""

    run_rho: float
    run_count: RunCount
    sampler_error: SamplerError = NO_SAMPLER_ERROR  # of each run

    def renyi(self, order: float, log_ratio: float = 0.0) -> float:
        """Renyi divergence bound at an order above 1 (Theorems 2 and 6).

        `log_ratio` bounds the log ratio of a run's probabilities to those of an exactly rho-GDP mechanism.
        """
        rho, (distribution, mean) = self.run_rho, self.run_count
        if distribution == "poisson":
            hat_epsilon = math.log1p(1 / (order - 1)) - 2 * log_ratio
            hat_delta = gaussian_dp.gaussian_delta(hat_epsilon, rho) if hat_epsilon > 0 else math.inf
            selection = mean * hat_delta * math.exp(log_ratio)
        else:
            eta, log_gamma = DISTRIBUTIONS[distribution], -math.log1p(-self.run_count.continuation)
            # The least of (1 - 1/a) a rho^2/2 + log(1/gamma) / a over orders a >= 1
            root = math.sqrt(2 * log_gamma)
            least = rho * root - rho * rho / 2 if root > rho else log_gamma
            selection = (1 + eta) * (least + 2 * log_ratio)
        run = order * rho * rho / 2 + (2 + 1 / (order - 1)) * log_ratio
        return run + selection + math.log(mean) / (order - 1)

    def epsilon_exact_noise(self, delta: float) -> float:
        return _epsilon(self.run_rho, self.run_count, delta)

    def epsilon(self, delta: float) -> float:
        """Epsilon at `delta` for sampled noise; proof in docs/background/privacy-proofs.md."""
        exact, error = self.epsilon_exact_noise(delta), self.sampler_error
        if error == NO_SAMPLER_ERROR or math.isinf(exact):
            return exact
        limit = max_stated_epsilon(exact)
        # Of the event in which the error bound of a run fails: over all runs it costs a share of delta.
        neg_log_p = limit + math.log(16 * self.run_count.mean / (SAMPLER_DELTA_SHARE * delta))
        variation, log_ratio = (
            error.total_variation,
            error.log_ratio_bound(neg_log_p) + 8 * math.exp(-neg_log_p),
        )
        if neg_log_p > MAX_NEG_LOG_PROBABILITY or (variation > 0 and -math.log(variation) < neg_log_p):
            return math.inf
        if 2 * log_ratio > limit:
            return math.inf
        remaining = (1 - 2 * SAMPLER_DELTA_SHARE) * delta
        epsilon = _epsilon(self.run_rho, self.run_count, remaining, log_ratio)
        return epsilon if epsilon <= limit else math.inf


@lru_cache(maxsize=1024)
def _epsilon(rho: float, run_count: RunCount, delta: float, log_ratio: float = 0.0) -> float:
    """Least epsilon over all orders (Canonne, Kamath and Steinke, 2020: Proposition 12), rounded up."""
    if rho == 0 or math.isinf(rho):
        return rho
    guarantee = SelectionGuarantee(rho, run_count)

    def epsilon_at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # order - 1
        conversion = math.log(delta) + math.log1p(excess)
        return guarantee.renyi(1 + excess, log_ratio) - math.log1p(1 / excess) - conversion / excess

    # Any order gives a bound. The best is sought on a grid, and then by ternary search.
    centre = math.log(math.sqrt(2 * math.log(run_count.mean / delta)) / rho)
    best = min((centre + step / 8 for step in range(-40, 41)), key=epsilon_at)
    low, high = best - 1 / 8, best + 1 / 8
    for _ in range(40):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if epsilon_at(left) < epsilon_at(right) else (left, high)
    return max(0.0, epsilon_at(low)) * gaussian_dp.ROUND_UP_FACTOR + _ROUNDING_MARGIN


@lru_cache(maxsize=64)
def rho_of_runs(run_count: RunCount, epsilon: float, delta: float) -> float:
    """Largest rho of each run of a selection within (epsilon, delta), minus the noise sampler's reserve."""
    target, delta = ((1 - SAMPLER_BUDGET_SHARE) * value for value in (epsilon, delta))
    low, high = 0.0, gaussian_dp.rho_exact(target, delta)
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _epsilon(middle, run_count, delta) <= target else (low, middle)
    # In digits that all processors and math libraries agree on, like `rho_for_epsilon`
    return float(Context(prec=8, rounding=ROUND_FLOOR).create_decimal(repr(low)))


@dataclass(frozen=True, kw_only=True)
class Selection:
    """How a released run was chosen; the fields are attributes of `/privacy`."""

    select: str  # metric of the test set
    select_distribution: str  # of the number of runs
    select_runs: float  # mean number of runs
    # Bounds on the sampler error of each run that could be drawn, as in `SamplerError`
    select_sum_squared_ratio_errors: float
    select_max_ratio_error: float
    select_total_variation: float

    @property
    def run_count(self) -> RunCount:
        """Distribution of the number of runs."""
        return RunCount(self.select_distribution, self.select_runs)

    @property
    def run_sampler_error(self) -> SamplerError:
        """Bound on the sampler error of each run."""
        errors = self.select_sum_squared_ratio_errors, self.select_max_ratio_error
        return SamplerError(*errors, self.select_total_variation)

    @property
    def accounting_note(self) -> str:
        """Phrase for reports: the accountant of the selection."""
        return (
            f"by Renyi DP (Papernot and Steinke, 2022), for the best by {self.select} of a random number of "
            f"runs, {self.select_runs:g} on average."
        )

    @property
    def concern(self) -> str:
        """Sentences for reports on what the guarantee does not cover."""
        return (
            f"This run was selected by {self.select}, and epsilon is that of the whole selection for the "
            "selected result alone. Machines and others that saw any run, or the number or duration of the "
            "runs, may learn more. The test samples are not protected."
        )

    def guarantee(self, run: Guarantee) -> SelectionGuarantee:
        """Guarantee of the selection, from that of the selected run, whose rho is that of every run."""
        rho = math.inf if run.rho is None else run.rho * (1 + RHO_RTOL)
        return SelectionGuarantee(rho, self.run_count, self.run_sampler_error)

    def errors(self, run: Guarantee | None = None) -> list[str]:
        """Error messages on fields that are out of range, or below the sampler error of the selected run."""
        found = []
        if self.select_distribution not in DISTRIBUTIONS:
            found.append(f"select_distribution = {self.select_distribution!r} is unknown")
        if not MIN_MEAN_RUNS <= self.select_runs <= MAX_MEAN_RUNS:
            found.append(f"select_runs = {self.select_runs!r} is out of range")
        least = NO_SAMPLER_ERROR if run is None else run.sampler_error
        if not all(bound >= own for bound, own in zip(self.run_sampler_error, least, strict=True)):
            found.append("the sampler error of a selection is less than that of the selected run")
        return found
