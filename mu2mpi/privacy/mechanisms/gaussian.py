"""Gaussian noise in messages that anybody may see, each sample in a known number of them."""

import math
from dataclasses import dataclass
from typing import Self

from mu2mpi.privacy.accountant import Releases, rho_of
from mu2mpi.privacy.guarantee import Budget, Gaussian
from mu2mpi.privacy.mechanisms.base import Mechanism, Messages
from mu2mpi.registry import register

__all__ = ["GaussianReleases"]


@register
@dataclass(frozen=True, kw_only=True)
class GaussianReleases(Mechanism):
    """The same noise in every message: sigma = 2 C sqrt(touched) / rho.

    A sample is in one term, of norm at most C, and moves every sum in which that is by at most 2 C. Given the
    messages before it, any other is the same whatever the sample is, and tells nothing of it.

    Attributes
    ----------
    rho : float
        What was asked for: the messages are (a, a rho^2 / 2)-RDP for every a > 1; infinite without noise.
    touched : int
        How many of the messages one sample can change: all T of them if it stays in what is sent, and 1 with
        plain gradients.

    References
    ----------
    Theorems 5.1 and 6.1; 5.2 and 6.2 for sigma, where touched = T.
    """

    name = "gaussian"

    rho: float
    touched: int

    @classmethod
    def accounts_for(cls, messages: Messages) -> bool:
        """Return whether no sample can be in one message several times."""
        return messages.chance != "replacement"

    @classmethod
    def calibrate(cls, budget: Budget, messages: Messages) -> Self:
        """Return the mechanism with the noise of Theorems 5.2 and 6.2."""
        C, touched = messages.clip_norm, messages.touched
        sigma = 2 * C * math.sqrt(touched) / budget.rho
        return cls.of(messages, sigma, rho=budget.rho, touched=touched)

    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Gaussian | None:
        """Return the rho of all messages, or of the first, for the sample of which they tell most."""
        number = min(self.rounds if rounds is None else rounds, self.touched)
        if number == 0:
            return None
        rho = rho_of([Releases(2 * self.clip_norm, self.sigma, number)])
        return Gaussian(rho, self.deviation(number, draws))

    def rho_spent(self, rounds: int) -> float:
        """Return the rho of the first rounds: rho^2 is in proportion to their number."""
        return self.rho * math.sqrt(min(rounds, self.touched) / self.touched)

    def share(self, first: int, last: int) -> float:
        """Return the root of the share of messages."""
        return math.sqrt((last - first + 1) / self.touched)

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed."""
        found = super().out_of_range()
        if self.touched < 1:
            found.append(f"touched = {self.touched!r} is out of range")
        return found

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers cannot be."""
        found = super().faults(delta)
        if self.touched not in (1, self.rounds):
            found.append(f"touched is {self.touched}, and there is only 1 and {self.rounds}")
        return found
