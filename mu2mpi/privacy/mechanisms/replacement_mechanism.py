"""Gaussian mechanism on batches sampled with replacement, with a closed form for the noise std.

Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023, Theorem D.2.
"""

import math
from dataclasses import dataclass

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms._subsampled import SubsampledMechanism


def check_replacement_epsilon(epsilon: float, delta: float) -> None:
    """Raise InputError if epsilon is outside of the range of Theorem D.2, (0, 2 log(2 / delta)]."""
    highest = 2 * math.log(2 / delta)
    if epsilon > highest:
        raise InputError(
            f"--epsilon must be at most {highest:.4g} at delta = {delta:g} for mechanism = replacement, got "
            f"{epsilon:.4g}. Use a smaller --epsilon or --rho, or --rho inf for no noise."
        )
    if epsilon == 0:
        raise InputError(
            f"--rho is so small that epsilon = 0 at delta = {delta:g}, which needs infinite noise. "
            "Use a larger --rho or a smaller --delta, or --epsilon."
        )


def min_batch_size(samples: int, rounds: int, epsilon: float, delta: float) -> int:
    """Smallest batch size K for which Theorem D.2 holds, for `samples` per machine and `rounds` rounds."""
    return max(1, math.ceil(epsilon * samples / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))))


def with_replacement_sigma(
    C: float, samples: int, batch_size: float, rounds: int, epsilon: float, delta: float, reserved: float = 0
) -> float:
    """Noise std of Theorem D.2 for sums over K of n samples in R rounds, with terms of norm at most C.

    It is 16 C K sqrt(R log(2.5 R / delta) log(2 / delta)) / (n epsilon), for 1 - `reserved` of the budget.
    """
    check_replacement_epsilon(epsilon, delta)
    batch, smallest = round(batch_size), min_batch_size(samples, rounds, epsilon, delta)
    if batch < smallest:
        raise InputError(
            f"--batch must be at least {smallest} for {samples} samples per machine in {rounds} rounds, got "
            f"batch = {batch}. Use --batch {smallest} or more --rounds."
        )
    unreserved = 1 - reserved  # epsilon sigma is constant, so that the formula for epsilon also gives sigma
    return with_replacement_epsilon(C, samples, batch_size, rounds, unreserved * epsilon, unreserved * delta)


def with_replacement_epsilon(
    C: float, samples: int, batch_size: float, rounds: int, sigma: float, delta: float
) -> float:
    """Epsilon of Theorem D.2 at `delta` for noise std `sigma`: the inverse of `with_replacement_sigma`."""
    logs = math.log(2.5 * rounds / delta) * math.log(2 / delta)
    return 16 * C * round(batch_size) * math.sqrt(rounds * logs) / samples / sigma


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementMechanism(SubsampledMechanism):
    """Gaussian noise in sums over K draws with replacement from n samples, with the std of Theorem D.2."""

    name = subsampling = "replacement"
    accountant = "the theorem of Lowy and Razaviyayn"
    find_sigma, compute_epsilon = staticmethod(with_replacement_sigma), staticmethod(with_replacement_epsilon)

    @property
    def max_samples_used(self) -> int:
        return self.machines * min(self.samples, round(self.batch_size) * self.rounds)

    def consistency_errors(self, delta: float) -> list[str]:
        errors = super().consistency_errors(delta)
        if not self.is_noisy:
            return errors
        epsilon = self.guarantee().epsilon_exact_noise(delta)
        lowest, highest = epsilon * (1 - 1e-9), 2 * math.log(2 / delta)  # tolerates rounding errors
        sizes = self.samples, self.rounds
        if not (lowest <= highest and round(self.batch_size) >= min_batch_size(*sizes, lowest, delta)):
            errors.append(
                f"epsilon = {epsilon:.10g} does not follow: its theorem needs larger batches than "
                f"batch_size = {self.batch_size:g} of {self.samples:,} samples, or a smaller epsilon"
            )
        return errors
