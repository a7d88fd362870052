"""How far the noise as it is drawn is from exact rounded normals, and what that adds to epsilon.

Let P be the probability of a cell of the grid for an exact pair of rounded normals, and Q that for a pair as
it is drawn. docs/background/sampler.md bounds |Q / P - 1| <= tau. Over n pairs, log Q / P adds up to more
than some xi only with a probability that Bernstein's inequality bounds (Boucheron, Lugosi and Massart,
"Concentration inequalities", 2013: Theorem 2.10). Releases are private but for 2 xi of epsilon.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

# A coordinate of a pair at radius r is computed, scaled and rounded with an error of at most ERROR r, in
# standard deviations. In units of 2^-53: 5.6 for the radius before its root is rounded, 1 for that, 1.5
# for u, which has 53 bits, 3.2 for sine and cosine, 1 for each of two products, and 0.4 for the angle,
# which has 53 bits, too; and some to spare.
ERROR = 16 * 2.0**-53
# The bound is for at least so many units of the grid in a standard deviation. Draws with more than `FINEST`
# are spread over 2^-9 of a standard deviation, or down to half of that: a power of two units of the grid.
COARSEST, FINEST, SPREAD_BITS = 2.0**12, 2.0**21, 9
# Of delta that is left to draws that are less likely than all that the bound is about, and as much to the
# rest of a `Deviation`
_SHARE = 2.0**-11
# Share of an epsilon and a delta to be kept to that is left to the sampler; no run may need more. It is a
# share of `_SMALL` where epsilon is smaller.
RESERVE, _SMALL = 2.0**-9, 0.01
# Of u below 2^-980 = e^-679 nothing is known, nor in any of 10^16 pairs with a probability of e^-642:
# where something that rare counts, no epsilon is stated
RAREST = 640.0
# Binomial noise: with fewer coins their number of heads is not normal; farther out, in standard deviations,
# lies a share of e^-642 of all draws.
FEWEST_COINS, FARTHEST = 2**16, 38.0


class Deviation(NamedTuple):
    """How far all draws that tell of one sample are from exact ones."""

    square: float  # the sum over pairs of the mean square of tau
    largest: float  # the largest tau of any cell
    rest: float = 0.0  # the probability with which noise may be anything else: a total variation

    def __add__(self, other: "Deviation") -> "Deviation":  # type: ignore[override]
        largest = max(self.largest, other.largest)
        return Deviation(self.square + other.square, largest, self.rest + other.rest)

    def loss(self, log_inverse: float) -> float:
        """Return what the sum of |log Q / P| passes with a probability of at most e^-log_inverse."""
        linear = self.largest * log_inverse / 3
        return self.square + linear + math.sqrt(linear**2 + 2 * self.square * log_inverse)


EXACT = Deviation(0.0, 0.0)  # that of no draws at all


def deviation(d: int, messages: int, smallest: float, largest: float, finest: float = FINEST) -> Deviation:
    """Return how far from exact the noise of messages is, from `smallest` to `largest` units of the grid."""
    if smallest < COARSEST:
        return Deviation(math.inf, math.inf)
    # An integer stands for an interval of one unit, or if draws are spread, of 2^-(SPREAD_BITS + 1) or more.
    width = 1 / min(largest, finest) if smallest <= finest else 2.0 ** -(SPREAD_BITS + 1)
    # No more pairs than coordinates.
    return Deviation(messages * d * (6.5 * ERROR / width) ** 2, 2.0**-41 / width + 2.0**-60 / width**2)


def sum_of_rounded(numbers: int, parts: int, scale: float) -> Deviation:
    """Return how far sums of rounded normals are from a normal of their variance, rounded after a shift.

    `scale` is in units of the grid; of less than 1 nothing is known: docs/background/privacy-proofs.md.
    """
    if parts == 1:
        return EXACT
    if scale < 1:
        return Deviation(0.0, 0.0, math.inf)
    square = scale * scale
    power = 3 * parts * math.exp(-square * math.pi**2 / 4) - math.pi**2 * square * (1 - 1 / parts)
    of_cell = math.exp(min(power, 700.0))
    tail = 2 * math.exp(-parts * (square - 0.5) ** 2 / (2 * square))
    return Deviation(0.0, 0.0, numbers * ((parts * square + 1) * of_cell + tail))


def with_sampler(epsilon_at: Callable[[float], float], delta: float, draws: Deviation) -> float:
    """Return the epsilon at delta of releases as they are drawn; `epsilon_at` is that with exact noise.

    With a probability of at least 1 - delta' each of Q <= e^xi P and P <= e^xi Q holds for what is seen. From
    (epsilon, delta'') for P follows (epsilon + 2 xi, e^xi delta'' + (1 + e^(epsilon + xi)) delta') for Q.
    What is returned is infinite if epsilon, or the deviation, is too large to say anything.
    """
    exact = epsilon_at(delta)
    if draws == EXACT:
        return exact
    log_inverse = _log_inverse(exact, delta)
    if log_inverse > RAREST or (draws.rest > 0 and -math.log(draws.rest) < log_inverse):
        return math.inf
    left = 1 - _SHARE * (1 + (draws.rest > 0))
    xi = draws.loss(log_inverse)
    if 2 * xi > _ceiling(exact):
        return math.inf
    epsilon = epsilon_at(delta * left * math.exp(-xi)) + 2 * xi
    return epsilon if epsilon <= _ceiling(exact) else math.inf


def is_negligible(epsilon: float, exact: float, delta: float) -> bool:
    """Return whether the sampler adds no more than its reserve to exact noise's epsilon, if one is known."""
    return _log_inverse(exact, delta) > RAREST or epsilon - exact <= RESERVE * max(exact, _SMALL)


def _ceiling(exact: float) -> float:
    """Return what no epsilon passes that is stated for one with exact noise."""
    return 1.01 * exact + 0.01


def _log_inverse(exact: float, delta: float) -> float:
    """Return -log delta' with which (1 + e^epsilon) delta' is below the share of delta that is left to it."""
    return _ceiling(exact) + math.log(2 / (_SHARE * delta))
