"""Noise in the steps of which the last iterate alone is seen: that of later steps hides earlier samples, too.

A sample moves one step alone, and no later one takes two iterates farther apart: docs/background/methods.md
has the proof, after Feldman, Mironov, Talwar and Thakurta, "Privacy amplification by iteration", 2018, and
Bok, Su and Altschuler, "Shifted interpolation for differential privacy", 2024. Late samples share their step
with more others: Feldman, Koren and Talwar, "Private stochastic convex optimization", 2020.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.privacy.accounting.guarantee import Budget, Gaussian
from mu2mpi.privacy.mechanisms.mechanism import LARGEST, SMALLEST, Concern, Mechanism, agree
from mu2mpi.privacy.noise.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Counts = NDArray[np.int64]

# Share of rho for errors of floating-point numbers, to which `mu2mpi.methods.snowball_sgd` holds them
ARITHMETIC = 2.0**-12
# Spacing of the grid on which the last step is taken, in units of that of its sum. The iterate can be so
# far away, measured in the noise of that step, that a finer grid would not fit into integers.
LANDING = 2**12
# Growth beyond all data sets ends with the one; to list the batches of more steps would take gigabytes
_LARGEST_BATCH, _MOST_STEPS = 2.0**40, 2**22
ABOVE = 2.0**-18  # by what share gradients may pass G: features may pass 1 by a little less than that


@lru_cache(maxsize=8)
def halving_steps(steps: int) -> "Array":
    """Return learning rates in units of the first, shape (N,), with which the last iterate of SGD is good.

    2^-i for N - ceil(N / 2^i) < t <= N - ceil(N / 2^(i + 1)), and for the last step, too: Jain, Nagaraj and
    Netrapalli, "Making the last iterate of SGD information theoretically optimal", 2019.
    """
    # After the last halving ceil(N / 2^i) stays 1, which is the last step.
    left = -(-steps >> np.arange((steps - 1).bit_length() + 1))
    lengths = np.append(left[:-1] - left[1:], 1)
    rates = np.repeat(0.5 ** np.arange(len(lengths)), lengths)
    rates.flags.writeable = False
    return rates


def growing_batches(steps: int, growth: float) -> "Counts":
    """Return each step's batch: growth * eta_t / sqrt(sum of eta_s^2 over s >= t), rounded up, at least 1."""
    eta = halving_steps(steps)
    wanted = np.ceil(growth * last_iterate_rho(eta, eta))
    return np.clip(wanted, 1.0, _LARGEST_BATCH).astype(np.int64)


def last_iterate_rho(moves: "Array", deviations: "Array", slacks: "Array | float" = 0.0) -> "Array":
    """Return for each step the rho of the last iterate, as it protects the samples of that step; shape (N,).

    Another sample moves the iterate by at most `moves`, beside noise of `deviations` in each coordinate, and
    a step takes two iterates by at most `slacks` farther apart than exact steps do. They are brought together
    by the noise of this step and all that follow.
    """

    def from_here_on(squares: "Array") -> "Array":
        return np.sqrt(np.cumsum(squares[::-1])[::-1])

    if not np.all(deviations > 0):
        return np.full(len(moves), np.inf)
    return moves / from_here_on(deviations**2) + from_here_on((slacks / deviations) ** 2)


def rounding_slack(scales: "Array", samples: "Counts", resolution: float, d: int) -> "Array":
    """Return how much farther apart than exact steps the grid lets each step of a run take two iterates."""
    slack: Array = scales * samples + np.append(0.0, scales[:-1])
    slack[-1] += LANDING * scales[-1]
    return resolution * math.sqrt(d) * slack


def hidden_rho(
    batches: "Counts", machines: int, C: float, noise: float, resolution: float, d: int
) -> "Array":
    """Return `last_iterate_rho` of a run for this noise of an average gradient, of norm at most C."""
    eta, samples = halving_steps(len(batches)), machines * batches
    scales = eta / samples
    slacks = rounding_slack(scales, samples, resolution, d)
    rho = last_iterate_rho(2 * C * scales, eta * noise, slacks)
    return rho + ARITHMETIC * float(rho.max())


def growth_of(machines: int, d: int, rho: float) -> float:
    """Return the batch of each machine in the last step: 2 sqrt(d) / (M rho).

    Each step's noise is then about that which gradients may have by themselves, C / sqrt(d) in a
    coordinate.
    """
    return 2 * math.sqrt(d) / (machines * rho)


def most_steps(samples: int, growth: float) -> int:
    """Return for how many steps the samples of each machine suffice, up to `_MOST_STEPS`; 0 if for none."""
    enough, too_many = 0, min(samples, _MOST_STEPS) + 1
    while too_many - enough > 1:
        steps = (enough + too_many) // 2
        if growing_batches(steps, growth).sum() <= samples:
            enough = steps
        else:
            too_many = steps
    return enough


def check_steps(rounds: int) -> None:
    """Raise InputError if there is no step, or if there are more than batches can be listed of."""
    if rounds < 2:
        raise InputError("the last iterate needs at least 2 rounds: the last shows what the others made")
    if rounds - 1 > _MOST_STEPS:
        raise InputError(
            f"rounds = {rounds} are too many: the last iterate is accounted for over at most "
            f"{_MOST_STEPS + 1}, as each has a batch of its own size; give fewer rounds"
        )


@register
@dataclass(frozen=True, kw_only=True)
class LastIterate(Mechanism):
    """Noise `sigma` times each step's batch, up to `growth`; the last round shows the last iterate."""

    name, protects, shows_messages = "last-iterate", "last iterate", False
    noise_words = ", times their batch"
    ranges = Mechanism.ranges | {"rounds": (2, _MOST_STEPS + 1)}
    ranges |= {"rho": (SMALLEST, math.inf), "growth": (0, LARGEST)}

    rho: float
    growth: float

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether iterates before the last are hidden."""
        return release.is_hidden

    @classmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the least noise."""
        T, M, d, C = release.rounds, release.machines, release.parameters, release.clip_norm
        check_steps(T)
        growth = growth_of(M, d, budget.rho)
        whole = cls(sigma=0.0, resolution=1.0, rho=budget.rho, growth=growth, **cls.sizes(release))
        # What rounding costs follows from the grid, and the grid from about how much noise there is.
        most, G = int(whole.batches.max()), release.gradient_norm
        about = M * most * (whole._largest_rho(1.0, 0.0) / budget.rho)
        resolution = choose_resolution(replace(release, summed=most, draws=1), about, noisy_bits=40)
        # Where C exceeds G, gradients that are rounded keep to it without being clipped.
        if C > G and clipping_bound(C, resolution, d) < G * (1 + ABOVE):
            raise InputError("the grid of messages is too coarse for so many machines; use fewer")
        sigma = M * (whole._largest_rho(1.0, resolution) / budget.rho)
        return replace(whole, sigma=sigma, resolution=resolution)

    @cached_property
    def batches(self) -> "Counts":
        """How many samples each machine uses in each step, shape (T - 1,)."""
        return growing_batches(max(1, self.rounds - 1), self.growth)

    def _largest_rho(self, noise: float, resolution: float) -> float:
        """Return the rho of the sample of which the last iterate tells most: in proportion to 1 / noise."""
        messages = self.batches, self.machines, self.clip_norm
        return float(hidden_rho(*messages, noise, resolution, self.parameters).max())

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Gaussian:
        """Return the rho of the last iterate; rounds before the last show nothing."""
        if rounds is not None and rounds < self.rounds:
            return Gaussian(0.0)
        drawn = self.deviation(self.rounds, draws, int(self.batches.min()), int(self.batches.max()))
        return Gaussian(self._largest_rho(self.sigma / self.machines, self.resolution), drawn)

    def rho_spent(self, rounds: int) -> float:
        """Return rho once the last iterate is seen."""
        return self.rho if rounds == self.rounds else 0.0

    def sigma_of(self, t: int) -> float:
        """Return the noise of round t; the last takes no step."""
        return self.sigma * int(self.batches[t - 1]) if t < self.rounds else 0.0

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be."""
        found = super().faults(delta)
        growth = growth_of(self.machines, self.parameters, self.rho)
        if not agree(self.growth, growth):
            found.append(f"growth is {self.growth:.10g}, and rho asks for {growth:.10g}")
        elif self.samples != (samples := int(self.batches.sum())):
            found.append(f"samples is {self.samples:,}, and batches have {samples:,}")
        return found

    @classmethod
    def who_sees(cls, server: str, colluders: str = "c") -> str:
        """Say who it is that learns no more than is claimed."""
        return "Whoever sees the output alone, and no iterate before it,"

    def concerns(self) -> list[Concern]:
        """Say what is not protected."""
        full = (
            "Only the last iterate is protected, which is the output. Every machine sees the iterates before "
            "it and has to be trusted with them; whoever else sees one of them, a message or a checkpoint "
            "may learn more."
        )
        return [Concern("of the last iterate alone", full)]
