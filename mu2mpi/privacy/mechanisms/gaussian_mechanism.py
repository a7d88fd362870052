"""Gaussian mechanism with independent noise, for a known number of affected sums per sample."""

import math
from dataclasses import dataclass
from typing import Self

from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.gaussian_dp import GaussianEvent, compose_rho
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.released_sums import ReleasedSums


@register
@dataclass(frozen=True, kw_only=True)
class GaussianMechanism(Mechanism):
    """Noise of std sigma = sensitivity sqrt(affected_sums) / rho per sum: Theorems 5.2 and 6.2.

    A sample moves each of `affected_sums` sums by at most the sensitivity: all T if sums are cumulative or
    batches full, 1 if it is used once, ceil(T K / n) in passes over n samples by batches of K, and the
    ceil(T / k) consecutive sums of a phase if k phases have different samples.
    """

    name = "gaussian"
    calibrates_to_participation = True

    field_ranges = Mechanism.field_ranges | {"affected_sums": (1, math.inf)}

    rho: float
    affected_sums: int

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        """Whether no sample occurs several times in one sum of a release."""
        return released_sums.subsampling != "replacement"

    @classmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        sensitivity = cls.unit_sensitivities[released_sums.neighbours] * released_sums.clip_norm
        sigma = sensitivity * math.sqrt(released_sums.affected_sums) / budget.rho
        return cls.from_sigma(released_sums, sigma, rho=budget.rho)

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> GaussianGuarantee:
        n_sums = self.affected_sums_until(self.rounds if rounds is None else rounds)
        if n_sums == 0:
            return GaussianGuarantee(0.0)
        return GaussianGuarantee(self._composed_rho(n_sums), self.sampler_error(n_sums, aggregated_machines))

    def _composed_rho(self, n_sums: int) -> float:
        return compose_rho([GaussianEvent(self.sensitivity, self.sigma, n_sums)])

    def group_guarantee(
        self, group_size: int, one_sample_per_round: bool, aggregated_machines: int = 1
    ) -> GaussianGuarantee:
        """Privacy guarantee for k = `group_size` samples of one machine, composed over the sums they affect.

        With at most one per round, they affect distinct sums, or if sums are cumulative, the first k sums
        contain 1, 2, ..., k of them and all later ones k.
        """
        k, T = group_size, self.rounds
        if not one_sample_per_round:
            squares = k * k * self.affected_sums
        elif self.affected_sums < T:
            squares = k * self.affected_sums
        else:
            k = min(k, T)
            squares = k * (k + 1) * (2 * k + 1) // 6 + k * k * (T - k)
        error = self.sampler_error(min(T, k * self.affected_sums), aggregated_machines)
        return GaussianGuarantee(self._composed_rho(squares), error)

    def rho_spent(self, rounds: int) -> float:
        return self.rho * self.rho_fraction(1, self.affected_sums_until(rounds)) if rounds else 0.0

    def affected_sums_until(self, rounds: int) -> int:
        """Largest number of the first `rounds` sums that one sample affects."""
        if self.affected_sums == self._n_passes(self.rounds):
            return self._n_passes(rounds)
        return min(rounds, self.affected_sums)

    def _n_passes(self, rounds: int) -> int:
        return -(-rounds * round(self.batch_size) // self.samples)

    def rho_fraction(self, first_round: int, last_round: int) -> float:
        """Fraction of a sample's rho spent in these rounds: rho^2 is additive over sums."""
        return math.sqrt((last_round - first_round + 1) / self.affected_sums)

    def consistency_errors(self, delta: float) -> list[str]:
        errors = super().consistency_errors(delta)
        valid_counts = {1, self._n_passes(self.rounds), self.rounds}
        phases = -(-self.rounds // self.affected_sums)
        if self.samples / phases <= self.batch_size < self.samples:  # The first phase has the largest share.
            valid_counts.add(-(-self.rounds // phases))
        if self.affected_sums not in valid_counts:
            values = " or ".join(map(str, sorted(valid_counts)))
            errors.append(f"affected_sums is {self.affected_sums}, but must be {values}")
        return errors
