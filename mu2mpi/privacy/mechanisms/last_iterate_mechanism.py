"""Privacy amplification by iteration: only the last iterate of SGD is released, not the messages.

A sample affects one step, later steps are contractions, and their noise protects earlier samples too.
docs/background/methods.md has the proof, after Feldman, Mironov, Talwar and Thakurta, "Privacy amplification
by iteration", 2018, and Bok, Su and Altschuler, "Shifted interpolation for differential privacy", 2024.
Batches grow, so that late samples are averaged with more others: Feldman, Koren and Talwar, "Private
stochastic convex optimization", 2020.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee
from mu2mpi.privacy.mechanisms.mechanism import MAX_FLOAT, MIN_POSITIVE, Mechanism, approx_equal
from mu2mpi.privacy.noise.grid import choose_grid_spacing, reduce_clip_norm
from mu2mpi.privacy.released_sums import ReleasedSums

# Share of rho that covers floating-point errors, which `mu2mpi.methods.snowball_sgd` checks
ROUNDOFF_RHO_SHARE = 2.0**-12
# Grid spacing of the last iterate in units of that of its sum. Measured in the noise of the last step, the
# iterate can be so large that a finer grid would overflow integers.
LAST_STEP_COARSENING = 2**12
_MAX_BATCH_SIZE = 2.0**40  # larger than any data set
_MAX_STEPS = 2**22  # to list the batches of more steps would take gigabytes
# Relative excess of gradient norms over G; that of features over 1 is below it
GRADIENT_NORM_TOLERANCE = 2.0**-18


@lru_cache(maxsize=8)
def halving_step_sizes(steps: int) -> FloatArray:
    """Step sizes eta_t of SGD for a good last iterate, relative to the first, shape (N,).

    2^-i for N - ceil(N / 2^i) < t <= N - ceil(N / 2^(i + 1)), and for the last step: Jain et al., "Making
    the last iterate of SGD information theoretically optimal", 2019.
    """
    remaining = -(-steps >> np.arange((steps - 1).bit_length() + 1))
    lengths = np.append(remaining[:-1] - remaining[1:], 1)  # 1: the last step
    step_sizes = np.repeat(0.5 ** np.arange(len(lengths)), lengths)
    step_sizes.flags.writeable = False
    return step_sizes


def growing_batch_sizes(steps: int, final_batch: float) -> IntArray:
    """Batch sizes ceil(final_batch eta_t / sqrt(sum of eta_s^2 over s >= t)), at least 1, shape (steps,)."""
    eta = halving_step_sizes(steps)
    sizes = np.ceil(final_batch * last_iterate_rho(eta, eta))
    return np.clip(sizes, 1.0, _MAX_BATCH_SIZE).astype(np.int64)


def last_iterate_rho(
    sensitivities: FloatArray, noise_stds: FloatArray, expansions: FloatArray | float = 0
) -> FloatArray:
    """GDP parameter rho of the last iterate for a sample of each step; all arrays have shape (steps,).

    `sensitivities` are the L2 changes of the iterate if a sample of the step changes, `noise_stds` the
    noise std per coordinate, and `expansions` the L2 excess of the step over a contraction, by rounding.
    """

    def suffix_norms(values: FloatArray) -> FloatArray:
        return np.sqrt(np.cumsum(values[::-1])[::-1])

    if not np.all(noise_stds > 0):
        return np.full(len(sensitivities), np.inf)
    return sensitivities / suffix_norms(noise_stds**2) + suffix_norms((expansions / noise_stds) ** 2)


def rounding_expansions(
    step_factors: FloatArray, samples: IntArray, grid_spacing: float, d: int
) -> FloatArray:
    """Bound on the L2 expansion of each SGD step by rounding to the grid, shape (steps,)."""
    expansions: FloatArray = step_factors * samples + np.append(0.0, step_factors[:-1])
    expansions[-1] += LAST_STEP_COARSENING * step_factors[-1]
    return grid_spacing * math.sqrt(d) * expansions


def rho_per_step(
    batch_sizes: IntArray, machines: int, sensitivity: float, noise_std: float, grid_spacing: float, d: int
) -> FloatArray:
    """GDP parameter rho of a sample of each step, shape (steps,); `noise_std` is of the average gradient."""
    eta, samples = halving_step_sizes(len(batch_sizes)), machines * batch_sizes
    step_factors = eta / samples
    expansions = rounding_expansions(step_factors, samples, grid_spacing, d)
    return last_iterate_rho(sensitivity * step_factors, eta * noise_std, expansions)


def final_batch_size(machines: int, d: int, rho: float) -> float:
    """Batch size of each machine in the last SGD step, 2 sqrt(d) / (M rho), not rounded."""
    # The step's noise is then about C / sqrt(d) per coordinate, the scale of the gradients themselves.
    return 2 * math.sqrt(d) / (machines * rho)


def max_steps(samples: int, final_batch: float) -> int:
    """Largest number of SGD steps whose batches fit into each machine's samples, at most `_MAX_STEPS`."""
    feasible, too_many = 0, min(samples, _MAX_STEPS) + 1
    while too_many - feasible > 1:
        steps = (feasible + too_many) // 2
        fits = growing_batch_sizes(steps, final_batch).sum() <= samples
        feasible, too_many = (steps, too_many) if fits else (feasible, steps)
    return feasible


def check_sgd_rounds(rounds: int) -> None:
    """Raise InputError unless 2 <= rounds <= `_MAX_STEPS` + 1, as the accountant needs."""
    if rounds < 2:
        raise InputError(f"--rounds must be at least 2 (the last releases the iterate), got {rounds}.")
    if rounds - 1 > _MAX_STEPS:
        raise InputError(
            f"--rounds must be at most {_MAX_STEPS + 1} (each has its own batch size), got rounds = {rounds}."
        )


@register
@dataclass(frozen=True, kw_only=True)
class LastIterateMechanism(Mechanism):
    """Gaussian noise of std `sigma` times the step's batch size; only the last round releases an iterate."""

    name, protected_outputs, reveals_messages = "last-iterate", "last iterate", False
    noise_description = ", times their batch"
    field_ranges = Mechanism.field_ranges | {"rounds": (2, _MAX_STEPS + 1)}
    field_ranges |= {"rho": (MIN_POSITIVE, math.inf), "final_batch": (0, MAX_FLOAT)}

    rho: float
    final_batch: float  # batch size of the last step, not rounded

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        return released_sums.hides_iterates

    @classmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        M, d, C, rho = released_sums.machines, released_sums.parameters, released_sums.clip_norm, budget.rho
        check_sgd_rounds(released_sums.rounds)
        final_batch, fields = final_batch_size(M, d, rho), cls.released_fields(released_sums)
        noiseless = cls(sigma=0.0, grid_spacing=1.0, rho=rho, final_batch=final_batch, **fields)
        # The grid costs rho and depends on the noise, so it is chosen for the noise without rounding.
        max_batch, G = int(noiseless.batch_sizes.max()), released_sums.max_gradient_norm
        unrounded = M * max_batch * (noiseless._max_rho(1.0, 0.0) / rho)
        largest = replace(released_sums, increments_per_message=max_batch, aggregated_machines=1)
        grid_spacing = choose_grid_spacing(largest, unrounded, noise_bits=40)
        # Where C exceeds G, rounded gradients are within C without being clipped.
        if C > G and reduce_clip_norm(C, grid_spacing, d) < G * (1 + GRADIENT_NORM_TOLERANCE):
            raise InputError("The grid of messages is too coarse for so many machines. Use fewer --machines.")
        sigma = M * (noiseless._max_rho(1.0, grid_spacing) / rho)
        return replace(noiseless, sigma=sigma, grid_spacing=grid_spacing)

    @cached_property
    def batch_sizes(self) -> IntArray:
        """Batch size of each machine in each step, shape (T - 1,)."""
        return growing_batch_sizes(max(1, self.rounds - 1), self.final_batch)

    def _max_rho(self, noise_std: float, grid_spacing: float) -> float:
        """Compute the largest rho of any sample; `noise_std` is the noise std of the average gradient."""
        messages = self.batch_sizes, self.machines, self.sensitivity
        rho = float(rho_per_step(*messages, noise_std, grid_spacing, self.parameters).max())
        # Floating-point errors are as large under every neighbouring relation.
        return rho + ROUNDOFF_RHO_SHARE * self.replace_sensitivity_ratio * rho

    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> GaussianGuarantee:
        """Privacy guarantee for the last iterate; earlier rounds release nothing."""
        if rounds is not None and rounds < self.rounds:
            return GaussianGuarantee(0.0)
        smallest, largest = int(self.batch_sizes.min()), int(self.batch_sizes.max())
        error = self.sampler_error(self.rounds, aggregated_machines, smallest, largest)
        return GaussianGuarantee(self._max_rho(self.sigma / self.machines, self.grid_spacing), error)

    def rho_spent(self, rounds: int) -> float:
        """Compute rho spent in the first `rounds` rounds: 0 until the last iterate is released."""
        return self.rho if rounds == self.rounds else 0.0

    def round_sigma(self, t: int) -> float:
        """Noise std of the messages of round t (1-based); 0 in the last round, which takes no step."""
        return self.sigma * int(self.batch_sizes[t - 1]) if t < self.rounds else 0.0

    def consistency_errors(self, delta: float) -> list[str]:
        errors = super().consistency_errors(delta)
        final_batch = final_batch_size(self.machines, self.parameters, self.rho)
        if not approx_equal(self.final_batch, final_batch):
            errors.append(f"final_batch is {self.final_batch:.10g}, but rho gives {final_batch:.10g}")
        elif self.samples != (samples := int(self.batch_sizes.sum())):
            errors.append(f"samples is {self.samples:,}, but batches have {samples:,}")
        return errors
