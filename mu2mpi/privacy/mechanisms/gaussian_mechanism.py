"""Gaussian mechanism on released sums, each sample affecting a known number of them."""

import math
from dataclasses import dataclass
from typing import Self

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.gaussian_dp import GaussianEvent, compose_rho
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.release import Release


@register
@dataclass(frozen=True, kw_only=True)
class GaussianMechanism(Mechanism):
    """Independent noise of std sigma = 2 C sqrt(affected_sums) / rho per sum: Theorems 5.2 and 6.2.

    A sample contributes one term of norm at most C and moves each of `affected_sums` sums by at most 2 C: all
    T if sums are cumulative or batches full, 1 if it is used once, and ceil(T K / n) in passes by batches of
    K.
    """

    name = "gaussian"
    scales_with_participation = True

    ranges = Mechanism.ranges | {"affected_sums": (1, math.inf)}

    rho: float
    affected_sums: int

    @classmethod
    def supports(cls, release: Release) -> bool:
        """Whether no sample can occur several times in one sum."""
        return release.subsampling != "replacement"

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the noise of Theorems 5.2 and 6.2."""
        sigma = 2 * release.clip_norm * math.sqrt(release.affected_sums) / budget.rho
        return cls.from_sigma(release, sigma, rho=budget.rho, affected_sums=release.affected_sums)

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> GaussianGuarantee:
        """Guarantee for the first `rounds` sums (by default all), of the sample that affects most of them."""
        count = self.affected_by(self.rounds if rounds is None else rounds)
        if count == 0:
            return GaussianGuarantee(0.0)
        return GaussianGuarantee(self._compose(count), self.sampler_error(count, aggregated_machines))

    def _compose(self, count: int) -> float:
        """Compute rho of `count` sums that are each moved by 2 C."""
        return compose_rho([GaussianEvent(2 * self.clip_norm, self.sigma, count)])

    def group_guarantee(
        self, group_size: int, one_per_round: bool, aggregated_machines: int = 1
    ) -> GaussianGuarantee:
        """Guarantee for k samples of one machine, from how many of them each sum contains.

        With at most one per round, they affect distinct sums, or if sums are cumulative, the first k sums
        contain 1, 2, ..., k of them and all later ones k.
        """
        k, T = group_size, self.rounds
        if not one_per_round:
            squares = k * k * self.affected_sums
        elif self.affected_sums < T:
            squares = k * self.affected_sums
        else:
            k = min(k, T)
            squares = k * (k + 1) * (2 * k + 1) // 6 + k * k * (T - k)
        error = self.sampler_error(min(T, k * self.affected_sums), aggregated_machines)
        return GaussianGuarantee(self._compose(squares), error)

    def rho_spent(self, rounds: int) -> float:
        """Compute rho of the first rounds, for the sample that affects most of their sums."""
        return self.rho * self.rho_fraction(1, self.affected_by(rounds)) if rounds else 0.0

    def affected_by(self, rounds: int) -> int:
        """Largest number of the first `rounds` sums that one sample affects."""
        if self.affected_sums in (1, self.rounds):
            return min(rounds, self.affected_sums)
        return self._passes(rounds)

    def _passes(self, rounds: int) -> int:
        return -(-rounds * round(self.batch_size) // self.samples)

    def rho_fraction(self, first: int, last: int) -> float:
        """Square root of the fraction of sums, since rho^2 is proportional to their number."""
        return math.sqrt((last - first + 1) / self.affected_sums)

    def consistency_errors(self, delta: float) -> list[str]:
        """Messages on fields that contradict each other."""
        errors = super().consistency_errors(delta)
        possible = sorted({1, self._passes(self.rounds), self.rounds})
        if self.affected_sums not in possible:
            values = " or ".join(map(str, possible))
            errors.append(f"affected_sums is {self.affected_sums}, but must be {values}")
        return errors
