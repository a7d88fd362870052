"""Gaussian noise in sums over random samples, the same number in each, drawn with replacement.

No number rho describes such releases: what is known is epsilon at a delta, by strong composition.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Self

from mu2mpi.errors import InputError
from mu2mpi.privacy.guarantee import Approximate, Budget, Guarantee
from mu2mpi.privacy.mechanisms.base import Mechanism, Messages, drawn_words
from mu2mpi.privacy.sampler import RESERVE
from mu2mpi.registry import register

__all__ = ["ReplacementReleases", "fewest_drawn", "with_replacement_epsilon", "with_replacement_sigma"]


@register
@dataclass(frozen=True, kw_only=True)
class ReplacementReleases(Mechanism):
    """The same noise in every message, which is about K of a machine's n samples.

    References
    ----------
    Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023: Theorem D.2.
    """

    name, spends = "replacement", "epsilon"

    @classmethod
    def accounts_for(cls, messages: Messages) -> bool:
        """Return whether samples are drawn with replacement."""
        return messages.chance == "replacement"

    @classmethod
    def calibrate(cls, budget: Budget, messages: Messages) -> Self:
        """Return the mechanism with the noise of the theorem."""
        sigma = 0.0
        if math.isfinite(budget.rho):
            sizes = messages.clip_norm, messages.samples, round(messages.drawn), messages.rounds
            sigma = with_replacement_sigma(*sizes, budget.epsilon, budget.delta, RESERVE)
        return cls.of(messages, sigma)

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Guarantee | None:
        """Return the epsilon of the theorem for all messages, or for the first."""
        number = self.rounds if rounds is None else rounds
        if number == 0:
            return None
        if not self.is_noisy:
            return Approximate(lambda delta: math.inf)
        sizes = self.clip_norm, self.samples, round(self.drawn), number, self.sigma
        return Approximate(partial(with_replacement_epsilon, *sizes), self.deviation(number, draws))

    @property
    def samples_used(self) -> int:
        """As many as are drawn in all rounds, or all there are."""
        return self.machines * min(self.samples, round(self.drawn) * self.rounds)

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be, or are none of which the theorem speaks."""
        found = super().faults(delta)
        if not self.is_noisy:
            return found
        sizes = self.samples, round(self.drawn), self.rounds
        epsilon = with_replacement_epsilon(self.clip_norm, *sizes, self.sigma, delta)
        if not is_covered(*sizes, epsilon, delta):
            found.append(
                f"epsilon = {epsilon:.10g} does not follow: its theorem speaks of larger batches than "
                f"drawn = {self.drawn:g} of {self.samples:,} samples, or of a smaller epsilon"
            )
        return found

    @property
    def words(self) -> str:
        """By whom it is proved, and what is drawn."""
        return f"by the theorem of Lowy and Razaviyayn. {drawn_words(self)}"


def fewest_drawn(samples: int, rounds: int, epsilon: float, delta: float) -> int:
    """Return the smallest K for which the noise of `with_replacement_sigma` is known to suffice.

    References
    ----------
    Lowy and Razaviyayn, "Private federated learning without a trusted server", 2023: Theorem D.2.
    """
    return max(1, math.ceil(epsilon * samples / (4 * math.sqrt(2 * rounds * math.log(2 / delta)))))


def with_replacement_sigma(
    C: float, samples: int, drawn: int, rounds: int, epsilon: float, delta: float, reserve: float = 0.0
) -> float:
    """Return the standard deviation of the noise for the sum of some samples drawn with replacement.

    Parameters
    ----------
    C : float
        Norm that no term of the sum passes.
    samples, drawn, rounds : int
        n, K and R: in each of R rounds, K of n samples are drawn.
    epsilon, delta : float
        What all rounds together are to keep to.
    reserve : float, optional
        Share of both that is left to something else.

    Returns
    -------
    float
        16 C K sqrt(R log(2.5 R / delta) log(2 / delta)) / (n epsilon), K times that for an average.

    Raises
    ------
    InputError
        If epsilon is larger, or fewer samples are drawn, than the theorem speaks of.

    References
    ----------
    Lowy and Razaviyayn, 2023, Theorem D.2: each round is a Gaussian mechanism of sensitivity 2 C / K, which
    sampling makes 2 K / n times as private; then strong composition.
    """
    highest = 2 * math.log(2 / delta)
    if epsilon > highest:
        raise InputError(
            f"epsilon = {epsilon:.4g} is more than the {highest:.4g} that the noise of this method is known "
            f"for at delta = {delta:g}; give a smaller epsilon or rho, or rho = inf for no noise"
        )
    fewest = fewest_drawn(samples, rounds, epsilon, delta)
    if drawn < fewest:
        raise InputError(
            f"batch = {drawn} is too small: in {rounds} rounds, the noise of this method is known to suffice "
            f"for at least {fewest} of the {samples} samples of a machine; give batch = {fewest}, or more "
            "rounds"
        )
    left = 1 - reserve
    return _constant(C, samples, drawn, rounds, left * delta) / (left * epsilon)


def with_replacement_epsilon(
    C: float, samples: int, drawn: int, rounds: int, sigma: float, delta: float
) -> float:
    """Return the epsilon of which this is the sigma, as in `with_replacement_sigma`."""
    return _constant(C, samples, drawn, rounds, delta) / sigma


def is_covered(samples: int, drawn: int, rounds: int, epsilon: float, delta: float) -> bool:
    """Return whether `with_replacement_sigma` knows such an epsilon; rounding errors do not decide."""
    epsilon *= 1 - 1e-9
    return epsilon <= 2 * math.log(2 / delta) and drawn >= fewest_drawn(samples, rounds, epsilon, delta)


def _constant(C: float, samples: int, drawn: int, rounds: int, delta: float) -> float:
    logs = math.log(2.5 * rounds / delta) * math.log(2 / delta)
    return 16 * C * drawn * math.sqrt(rounds * logs) / samples
