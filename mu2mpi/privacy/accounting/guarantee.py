"""What is to be hidden, what that may cost, and what is known of it: values to be compared and composed."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context
from functools import lru_cache, partial

from mu2mpi.privacy.accounting.gaussian_dp import SMALLEST_DELTA, UP, epsilon_exact, epsilon_paper, rho_exact
from mu2mpi.privacy.noise.sampler_error import EXACT, RESERVE, Deviation, with_sampler


# A folder of results has few epsilons, and each takes a search.
@lru_cache(maxsize=1024)
def affordable_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho that keeps to an epsilon, with some left to the sampler.

    It is rounded down to 8 digits, fewer than those in which processors and their libraries differ.
    """
    exact = rho_exact((1 - RESERVE) * epsilon, (1 - RESERVE) * delta)
    return float(Context(prec=8, rounding=ROUND_FLOOR).create_decimal(repr(exact)))


@dataclass(frozen=True)
class Budget:
    """What a run may spend."""

    rho: float  # infinite for no noise
    epsilon: float  # the same at a delta, for mechanisms that are not as private as any one Gaussian one
    delta: float


class Guarantee(ABC):
    """What is seen reveals at most this of one sample; the sum of guarantees is that of all that is seen."""

    rho: float | None = None  # that of a Gaussian mechanism, if it is as private as one
    drawn: Deviation = EXACT  # how far the noise that is drawn is from exact

    @abstractmethod
    def exact(self, delta: float) -> float:
        """Return the smallest epsilon that is known to hold at a delta, were the noise exact."""

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at a delta, with the noise as it is drawn."""
        return with_sampler(self.exact, delta, self.drawn)

    def lemma(self, delta: float) -> float:
        """Return the epsilon that the paper's lemma gives, or where it says nothing, that of `epsilon`."""
        return self.epsilon(delta)

    def __add__(self, other: "Guarantee") -> "Guarantee":
        return Several((*_parts(self), *_parts(other)))


@dataclass(frozen=True)
class Gaussian(Guarantee):
    """As private as one Gaussian mechanism: (a, a rho^2 / 2)-RDP at every order a > 1."""

    rho: float
    drawn: Deviation = EXACT

    def exact(self, delta: float) -> float:
        """Return the smallest epsilon that holds."""
        return epsilon_exact(self.rho, delta)

    def lemma(self, delta: float) -> float:
        """Return the epsilon of Lemma 2.5."""
        return with_sampler(partial(epsilon_paper, self.rho), delta, self.drawn)

    def __add__(self, other: Guarantee) -> Guarantee:
        if isinstance(other, Gaussian):
            return Gaussian(math.hypot(self.rho, other.rho), self.drawn + other.drawn)
        return super().__add__(other)


@dataclass(frozen=True)
class Approximate(Guarantee):
    """(epsilon, delta)-private along a curve that takes a delta, and returns epsilon for exact noise."""

    curve: Callable[[float], float]
    drawn: Deviation = EXACT

    def exact(self, delta: float) -> float:
        """Return the curve's epsilon."""
        return self.curve(delta)


@dataclass(frozen=True)
class Several(Guarantee):
    """Of releases that no one curve describes: epsilons and deltas add up, and each gets the same delta."""

    parts: tuple[Guarantee, ...]

    def exact(self, delta: float) -> float:
        """Return the sum of their epsilons with exact noise."""
        return math.fsum(part.exact(delta / len(self.parts)) for part in self.parts)

    def epsilon(self, delta: float) -> float:
        """Return the sum of their epsilons."""
        return math.fsum(part.epsilon(delta / len(self.parts)) for part in self.parts)


@dataclass(frozen=True)
class Grouped(Guarantee):
    """What is revealed of so many samples together, if `one` holds of each: they are replaced one by one.

    (epsilon', delta') of each is (k epsilon', (1 + e^epsilon' + .. + e^((k - 1) epsilon')) delta') of k.
    """

    one: Guarantee
    samples: int

    def exact(self, delta: float) -> float:
        """Return the smallest k epsilon' that is found with exact noise; infinite if none is."""
        return self._epsilon(self.one.exact, delta)

    def epsilon(self, delta: float) -> float:
        """Return the smallest that is found."""
        return self._epsilon(self.one.epsilon, delta)

    def _epsilon(self, epsilon_of: Callable[[float], float], delta: float) -> float:
        if self.samples == 1:
            return epsilon_of(delta)
        k, least, most = self.samples, -math.log(delta), -math.log(SMALLEST_DELTA)

        def suffices(log_inverse: float) -> bool:
            epsilon = epsilon_of(math.exp(-log_inverse))
            terms = k if epsilon == 0 else math.expm1(-k * epsilon) / math.expm1(-epsilon)
            return (k - 1) * epsilon + math.log(terms) + 1e-12 <= log_inverse - least

        # Larger deltas come first, as epsilon is smaller there; but not every smaller one suffices, too.
        steps = [least * (most / least) ** (n / 64) for n in range(65)]
        if (found := next((n for n, step in enumerate(steps) if suffices(step)), None)) is None:
            return math.inf
        low, high = steps[max(0, found - 1)], steps[found]
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        return k * epsilon_of(math.exp(-high)) * UP


def _parts(guarantee: Guarantee) -> tuple[Guarantee, ...]:
    return guarantee.parts if isinstance(guarantee, Several) else (guarantee,)
