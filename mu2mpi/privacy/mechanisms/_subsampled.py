"""Gaussian mechanisms on random batches, whose privacy is accounted for by (epsilon, delta), not rho."""

import math
from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, Self

from mu2mpi.privacy.accounting import pld
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee, Guarantee, PrivacyCurveGuarantee
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.sampler_error import SAMPLER_BUDGET_SHARE
from mu2mpi.privacy.released_sums import ReleasedSums


class SubsampledMechanism(Mechanism):
    """Gaussian noise of constant std in sums over random batches, accounted for by composed PLDs."""

    budget_parameter = "epsilon"
    subsampling: ClassVar[str]  # kind of batches that the accountant assumes

    @staticmethod
    @abstractmethod
    def compose_pld(
        neighbours: str, multiplier: float, samples: int, batch_size: float, rounds: int, coarseness: int = 1
    ) -> Any:
        """Compute the privacy loss distribution of all rounds for the noise multiplier sigma / C.

        `coarseness` multiplies the spacing of the discretised losses; only searches use another than 1.
        """

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        return released_sums.subsampling == cls.subsampling

    @classmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        if math.isinf(budget.rho):
            return cls.from_sigma(released_sums, 0.0)
        sizes = released_sums.clip_norm, released_sums.samples, released_sums.batch_size, released_sums.rounds
        target = budget.epsilon, budget.delta, SAMPLER_BUDGET_SHARE
        sigma = cls.find_sigma(*sizes, *target, released_sums.neighbours)
        return cls.from_sigma(released_sums, sigma)

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> Guarantee:
        messages = self.rounds if rounds is None else rounds
        if messages == 0:
            return GaussianGuarantee(0.0)
        sizes = self.clip_norm, self.samples, self.batch_size, messages
        epsilon_at = partial(self.compute_epsilon, *sizes, self.sigma, neighbours=self.neighbours)
        curve = epsilon_at if self.is_noisy else lambda _: math.inf
        return PrivacyCurveGuarantee(curve, self.sampler_error(messages, aggregated_machines))

    @classmethod
    def find_sigma(cls, C: float, *arguments: Any) -> float:
        """Smallest noise std; `arguments` are n, K, T, epsilon, delta, reserved share, and neighbours."""
        return C * pld.min_noise_multiplier(cls.compose_pld, *arguments)

    @classmethod
    def compute_epsilon(
        cls, C: float, n: int, K: float, T: int, sigma: float, delta: float, neighbours: str = "replace"
    ) -> float:
        """Epsilon at `delta` of T noised sums over batches of K of n samples, terms clipped to norm C."""
        losses = cls.compose_pld(neighbours, sigma / C, n, K, T, 1)  # cached by `calibrate`
        return pld.epsilon_at_delta(losses, delta)

    def range_errors(self) -> list[str]:
        errors, C = super().range_errors(), self.clip_norm
        if self.sigma != 0 and not pld.MIN_NOISE_MULTIPLIER * C <= self.sigma <= pld.MAX_NOISE_MULTIPLIER * C:
            errors.append(f"no epsilon can be computed for sigma = {self.sigma!r} and clip_norm = {C!r}")
        return errors

    @property
    def accounting_note(self) -> str:
        batch = f"{self.batch_size:.6g} of its {self.samples:,} samples"
        accountant = "by the distribution of the privacy loss, which dp-accounting computes"
        return f"{accountant}. A machine draws {batch} in each round, in secret."
