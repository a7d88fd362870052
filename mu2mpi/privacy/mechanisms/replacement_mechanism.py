"""Gaussian noise in sums over random samples, the same number in each, drawn with replacement.

Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023, Theorem D.2.
"""

import math
from dataclasses import dataclass

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.privacy.mechanisms._subsampled import Subsampled


def check_epsilon(epsilon: float, delta: float) -> None:
    """Raise InputError for an epsilon of which the theorem does not speak."""
    highest = 2 * math.log(2 / delta)
    if epsilon > highest:
        raise InputError(
            f"epsilon = {epsilon:.4g} is more than the {highest:.4g} that the noise of this method is known "
            f"for at delta = {delta:g}; give a smaller epsilon or rho, or rho = inf for no noise"
        )
    if epsilon == 0:
        raise InputError(
            f"rho is so small that epsilon = 0 at delta = {delta:g}, to which no noise of this method keeps; "
            "give a larger rho or a smaller delta, or an epsilon"
        )


def fewest_drawn(samples: int, rounds: int, epsilon: float, delta: float) -> int:
    """Return the smallest K for which the noise of `with_replacement_sigma` is known to suffice."""
    return max(1, math.ceil(epsilon * samples / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))))


def with_replacement_sigma(
    C: float, samples: int, drawn: float, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return the noise for sums over K of n samples in each of R rounds, with terms of norm at most C.

    It is 16 C K sqrt(R log(2.5 R / delta) log(2 / delta)) / (n epsilon), for what a reserve leaves of both.
    """
    check_epsilon(epsilon, delta)
    batch, fewest = round(drawn), fewest_drawn(samples, rounds, epsilon, delta)
    if batch < fewest:
        raise InputError(
            f"batch = {batch} is too small: in {rounds} rounds, the noise of this method is known to suffice "
            f"for at least {fewest} of the {samples} samples of a machine; give batch = {fewest}, or more "
            "rounds"
        )
    left = 1 - reserve
    # Epsilon is in inverse proportion to sigma: each follows from the other in the same way.
    return with_replacement_epsilon(C, samples, drawn, rounds, left * epsilon, left * delta)


def with_replacement_epsilon(
    C: float, samples: int, drawn: float, rounds: int, sigma: float, delta: float
) -> float:
    """Return the epsilon of which this is the sigma, as in `with_replacement_sigma`."""
    logs = math.log(2.5 * rounds / delta) * math.log(2 / delta)
    return 16 * C * round(drawn) * math.sqrt(rounds * logs) / samples / sigma


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementReleases(Subsampled):
    """Each message sums up about K of a machine's n samples."""

    name, account = "replacement", "the theorem of Lowy and Razaviyayn"
    least_sigma, epsilon_by = staticmethod(with_replacement_sigma), staticmethod(with_replacement_epsilon)

    @property
    def samples_used(self) -> int:
        """As many as are drawn in all rounds, or all there are."""
        return self.machines * min(self.samples, round(self.drawn) * self.rounds)

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be, or are none of which the theorem speaks."""
        found = super().faults(delta)
        if not self.is_noisy:
            return found
        epsilon = self.epsilon(self.rounds, delta)
        # Rounding errors do not decide.
        least, highest = epsilon * (1 - 1e-9), 2 * math.log(2 / delta)
        sizes = self.samples, self.rounds
        if not (least <= highest and round(self.drawn) >= fewest_drawn(*sizes, least, delta)):
            found.append(
                f"epsilon = {epsilon:.10g} does not follow: its theorem speaks of larger batches than "
                f"drawn = {self.drawn:g} of {self.samples:,} samples, or of a smaller epsilon"
            )
        return found
