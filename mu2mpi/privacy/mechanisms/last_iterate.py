"""Noise in the steps of which the last iterate alone is seen: that of later steps hides earlier samples, too.

An early sample is hidden by all later noise and a late one by little, so late samples share their step with
more others: Feldman, Koren and Talwar, "Private stochastic convex optimization: optimal rates in linear
time", 2020. No step has more noise than its gradients may have by themselves, C / sqrt(d) in each coordinate
of their average: that settles how large batches need to be. The noise is then the least that keeps to rho.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.privacy.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.guarantee import Budget, Gaussian
from mu2mpi.privacy.iteration import growing_batches, hidden_rho
from mu2mpi.privacy.mechanisms.base import Concern, Mechanism, Messages, agree
from mu2mpi.registry import register

ABOVE = 2.0**-18
"""By what share gradients may pass G: features may pass 1 by a little less than that."""

MOST_STEPS = 2**22
"""Beyond, to list the batches of all steps would take gigabytes."""

BITS = 40
"""Bits between the resolution and the noise: what rounding takes apart grows with M sqrt(d T)."""


def growth_of(machines: int, d: int, rho: float) -> float:
    """Return how large batches have to grow: 2 sqrt(d) / (M rho), of one machine in the last step.

    A sample moves the step by 2 C eta_t / (M B_t), and the noise from there on has the standard deviation
    (C / sqrt(d)) sqrt(sum of eta_s^2 over s >= t): their ratio may be rho.
    """
    return 2 * math.sqrt(d) / (machines * rho)


def most_steps(samples: int, growth: float) -> int:
    """Return for how many steps the samples of each machine suffice, up to `MOST_STEPS`; 0 if for none."""
    enough, too_many = 0, min(samples, MOST_STEPS) + 1
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
    if rounds - 1 > MOST_STEPS:
        raise InputError(
            f"rounds = {rounds} are too many: the last iterate is accounted for over at most "
            f"{MOST_STEPS + 1}, as each has a batch of its own size; give fewer rounds"
        )


@register
@dataclass(frozen=True, kw_only=True)
class LastIterate(Mechanism):
    """Noise in proportion to each step's batch; the last round shows the last iterate and takes no step.

    `sigma` is that for one sample of each machine, `rho` what was asked for; batches grow up to `growth`.
    """

    name, protects, shows_messages = "last-iterate", "last iterate", False
    noise_words = ", times their batch"

    rho: float
    growth: float

    @classmethod
    def accounts_for(cls, messages: Messages) -> bool:
        """Return whether iterates before the last are hidden."""
        return messages.is_hidden

    @classmethod
    def calibrate(cls, budget: Budget, messages: Messages) -> Self:
        """Return the mechanism with the least noise."""
        T, M, d, C = messages.rounds, messages.machines, messages.parameters, messages.clip_norm
        check_steps(T)
        growth = growth_of(M, d, budget.rho)
        whole = cls(sigma=0.0, resolution=1.0, rho=budget.rho, growth=growth, **cls.sizes(messages))
        # What rounding costs follows from the grid, and the grid from about how much noise there is.
        most, G = int(whole.batches.max()), messages.gradient_norm
        about = M * most * (whole._largest_rho(1.0, 0.0) / budget.rho)
        resolution = choose_resolution(C, G, about, d, M, most, noisy_bits=BITS)
        # Where C exceeds G, gradients that are rounded keep to it without being clipped.
        if C > G and clipping_bound(C, resolution, d) < G * (1 + ABOVE):
            raise InputError("the grid of messages is too coarse for so many machines; use fewer")
        sigma = M * (whole._largest_rho(1.0, resolution) / budget.rho)
        return replace(whole, sigma=sigma, resolution=resolution)

    @cached_property
    def batches(self) -> NDArray[np.int64]:
        """How many samples each machine uses in each step, shape (T - 1,)."""
        return growing_batches(max(1, self.rounds - 1), self.growth)

    def _largest_rho(self, noise: float, resolution: float) -> float:
        """Return the rho of the sample of which the last iterate tells most: in proportion to 1 / noise."""
        messages = self.batches, self.machines, self.clip_norm
        return float(hidden_rho(*messages, noise, resolution, self.parameters).max())

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Gaussian | None:
        """Return the rho of the last iterate; rounds before the last show nothing."""
        if rounds is not None and rounds < self.rounds:
            return None
        if not self.is_noisy:
            return Gaussian(math.inf)
        drawn = self.deviation(self.rounds, draws, int(self.batches.min()), int(self.batches.max()))
        return Gaussian(self._largest_rho(self.sigma / self.machines, self.resolution), drawn)

    def rho_spent(self, rounds: int) -> float:
        """Return rho once the last iterate is seen."""
        return self.rho if rounds == self.rounds else 0.0

    def sigma_of(self, t: int) -> float:
        """Return the noise of round t; the last takes no step."""
        return self.sigma * int(self.batches[t - 1]) if t < self.rounds else 0.0

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed."""
        found = super().out_of_range()
        if not 2 <= self.rounds <= MOST_STEPS + 1:
            found.append(f"rounds = {self.rounds!r} is out of range")
        if not self.rho > 0:
            found.append(f"rho = {self.rho!r} is out of range")
        if not 0 <= self.growth < math.inf:
            found.append(f"growth = {self.growth!r} is out of range")
        return found

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
    def who_sees(cls, server: str) -> str:
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
