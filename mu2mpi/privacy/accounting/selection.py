"""Guarantee of the best of a random number of runs, of which nothing else is released.

Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", 2022: Theorem 2, for runs that
are rho-GDP. dp-accounting, too, has it in Renyi DP alone, and not for privacy loss distributions.
"""

import math
import secrets
from dataclasses import dataclass
from functools import cached_property, lru_cache

from mu2mpi.privacy.accounting.gaussian_dp import ROUND_UP_FACTOR, rho_exact
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, Guarantee, round_down_digits
from mu2mpi.privacy.mechanisms.mechanism import Concern
from mu2mpi.privacy.noise import sampler_error as sampler

MIN_MEAN_RUNS, MAX_MEAN_RUNS = 1.01, 1000.0  # mean numbers of runs that are accounted for
RHO_RTOL = 1e-12  # by which rho may differ between the runs of a selection, by rounding
_RESERVED_SHARE = 4 * sampler.SAMPLER_BUDGET_SHARE  # of epsilon and delta, for the noise sampler
_LOG_RATIO_PER_RHO = 2.0**-9  # part of the log ratios of runs that covers the noise sampler
_ROUNDING_MARGIN = 1e-11  # added to epsilon; a few terms below 10^3 are rounded


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of the best of a logarithmic number K of runs; the fields are attributes of `/privacy`."""

    select: str  # metric of the test set
    select_runs: float  # mean of K

    @cached_property
    def continuation(self) -> float:
        """1 - gamma, to whose k-th power k P(K = k) is proportional."""
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
            if secrets.randbelow(k) == 0:
                k = 1
        return k

    def guarantee(self, run: Guarantee) -> "SelectionGuarantee":
        """Guarantee of the selection, from that of the selected run, whose rho is that of every run."""
        rho = math.inf if run.rho is None else run.rho * (1 + RHO_RTOL)
        return SelectionGuarantee(rho, self, run.sampler_error)

    def rho_of_runs(self, epsilon: float, delta: float) -> float:
        """Largest rho of each run within (epsilon, delta), minus the reserve for the noise sampler."""
        target, delta = ((1 - _RESERVED_SHARE) * value for value in (epsilon, delta))
        low, high = 0.0, rho_exact(target, delta)
        while high - low > 1e-10 * high:
            rho = (low + high) / 2
            is_within = self.guarantee(GaussianGuarantee(rho)).epsilon_exact_noise(delta) <= target
            low, high = (rho, high) if is_within else (low, rho)
        return round_down_digits(low)

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
        is_in_range = MIN_MEAN_RUNS <= self.select_runs <= MAX_MEAN_RUNS
        return [] if is_in_range else [f"{self} is out of range"]


@dataclass(frozen=True)
class SelectionGuarantee(Guarantee):
    """Guarantee of the best of K runs, each rho-GDP, for whoever sees the best alone."""

    run_rho: float
    selection: Selection
    run_error: sampler.SamplerError

    def renyi(self, order: float, log_ratio: float = 0.0) -> float:
        """Renyi divergence bound at an order above 1: Theorem 2 for eta = 0.

        `log_ratio` bounds the log ratio of a run's probabilities to those of an exactly rho-GDP mechanism.
        """
        rho, selection = self.run_rho, self.selection
        log_gamma = -math.log1p(-selection.continuation)
        # The least of (1 - 1/a) a rho^2/2 + log(1/gamma) / a over orders a >= 1
        root = math.sqrt(2 * log_gamma)
        least = rho * root - rho * rho / 2 if root > rho else log_gamma
        run = order * rho * rho / 2 + (2 + 1 / (order - 1)) * log_ratio
        return run + least + 2 * log_ratio + math.log(selection.select_runs) / (order - 1)

    def epsilon_exact_noise(self, delta: float) -> float:
        return _epsilon(self, delta)

    def epsilon(self, delta: float) -> float:
        """Epsilon at `delta` for sampled noise; proof in docs/background/selection.md.

        A fixed part of it covers the sampler error of each run, and so does not depend on the grid.
        """
        log_ratio = _LOG_RATIO_PER_RHO * self.run_rho
        epsilon = _epsilon(self, (1 - 2 * sampler.SAMPLER_DELTA_SHARE) * delta, log_ratio)
        # Of the event in which the error bound of a run fails: over all runs it costs a share of delta.
        share = sampler.SAMPLER_DELTA_SHARE * delta / (16 * self.selection.select_runs)
        neg_log_p, error = epsilon - math.log(share), self.run_error
        if neg_log_p > sampler.MAX_NEG_LOG_PROBABILITY or error.total_variation > math.exp(-neg_log_p):
            return math.inf
        own_log_ratio = error.log_ratio_bound(neg_log_p) + 16 * math.exp(-neg_log_p)
        return epsilon if own_log_ratio <= log_ratio else math.inf


@lru_cache(maxsize=1024)
def _epsilon(guarantee: SelectionGuarantee, delta: float, log_ratio: float = 0.0) -> float:
    """Least epsilon over all orders (Canonne, Kamath and Steinke, 2020: Proposition 12), rounded up."""
    from scipy.optimize import minimize_scalar

    if (rho := guarantee.run_rho) == 0 or math.isinf(rho):
        return rho

    def epsilon_at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # order - 1
        conversion = math.log(delta) + math.log1p(excess)
        return guarantee.renyi(1 + excess, log_ratio) - math.log1p(1 / excess) - conversion / excess

    # Any order gives a bound.
    centre = math.log(math.sqrt(2 * math.log(guarantee.selection.select_runs / delta)) / rho)
    best = minimize_scalar(epsilon_at, bounds=(centre - 5, centre + 5), options={"xatol": 1e-7})
    return float(max(0.0, best.fun)) * ROUND_UP_FACTOR + _ROUNDING_MARGIN
