"""Noise of rounds that cancels in their sum: which strategy it belongs to, and how far one sample moves that.

What machines send in round t is g_t, or the sum of all g up to it. A strategy C D^-1, lower triangular, says
what is hidden: C D^-1 g + z with fresh normals z, and that is C D^-1 (g + y) with y = D C^-1 z. One sample
moves its column of the strategy alone. Powers C = (1 - x)^-p of the matrix of ones are good for sums:
Fichtenberger, Henzinger and Upadhyay, "Constant matters", 2023. If coefficients of C are sums of
exponentials, a round takes a buffer for each: Dvijotham et al., "Efficient and near-optimal noise generation
for streaming differential privacy", 2024.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """A strategy of k buffers, c_0 = 1 and c_j = sum over i of weight_i decay_i^(j-1), for so many rounds.

    If `normalized`, D makes the norm of each column 1, else it is 1; if it `lasts`, noise is summed up.
    """

    power: float
    buffers: int
    rounds: int
    normalized: bool
    lasts: bool

    @cached_property
    def decays(self) -> Array:
        """Decays of the buffers, shape (k,): their lengths are evenly spread on a logarithmic scale."""
        # Of few rounds more would tell next to nothing apart.
        number = min(self.buffers, (self.rounds - 1).bit_length() * 2 // 3 + 1, self.rounds - 1)
        number *= self.power > 0
        return np.exp(-1 / _geometric(0.8, 4.0 * self.rounds, number))

    @cached_property
    def weights(self) -> Array:
        """Weights of the buffers, shape (k,), that meet k coefficients of (1 - x)^-p exactly."""
        places, k, p = [1], len(self.decays), self.power
        if not k:
            return np.empty(0)
        for place in _geometric(1.0, self.rounds - 1.0, k)[1:]:
            places.append(max(round(place), places[-1] + 1))
        powers = [[decay ** (place - 1) for decay in self.decays.tolist()] for place in places]
        # The coefficient of x^j is Gamma(j + p) / (Gamma(p) j!).
        goal = [math.exp(math.lgamma(j + p) - math.lgamma(p) - math.lgamma(j + 1)) for j in places]
        # Fewer digits than those in which processors may differ.
        return np.array([float(f"{weight:.10g}") for weight in _solve(powers, goal)])

    def coefficients(self) -> Array:
        """Return c_0, c_1, ..., c_(T-1)."""
        powers = self.decays ** np.arange(self.rounds - 1)[:, np.newaxis]
        return np.append(1.0, powers @ self.weights)

    def squares(self, number: Any) -> Any:
        """Return the sum of the squares of the first coefficients, at least one, for one number or many."""
        found = 1.0 + np.zeros(np.shape(number))
        for a, of_a in zip(self.decays, self.weights, strict=True):
            for b, of_b in zip(self.decays, self.weights, strict=True):
                found -= of_a * of_b * np.expm1(np.subtract(number, 1) * math.log(a * b)) / (1 - a * b)
        return found

    @cached_property
    def norms(self) -> Array:
        """By what the fresh draw of each round is multiplied, shape (T,): norms of columns of C, or 1."""
        if not self.normalized:
            return np.ones(self.rounds)
        found: Array = np.sqrt(self.squares(np.arange(self.rounds, 0, -1)))
        return found

    def norm(self, t: int) -> float:
        """Return that of round t."""
        return float(self.norms[t - 1])

    @property
    def largest_norm(self) -> float:
        """The largest of any round, which is that of the first."""
        return self.norm(1)

    @property
    def sensitivity(self) -> float:
        """By how much one sample that moves its g_t by 1 moves the strategy: the largest norm of a column."""
        return 1.0 if self.normalized else math.sqrt(self.squares(self.rounds))

    def share(self, first: int, last: int) -> float:
        """Return the share of this that a sample of one round moves in all rounds until another."""
        whole = self.rounds - first + 1 if self.normalized else self.rounds
        return math.sqrt(self.squares(last - first + 1) / self.squares(whole))

    def whiten(self, messages: Array) -> Array:
        """Return what a strategy makes of messages of the first rounds, shape (..., rounds, d), in place."""
        rounds = messages.shape[-2]
        if self.lasts:
            messages[..., 1:, :] -= messages[..., :-1, :].copy()
        messages /= self.norms[:rounds, np.newaxis]
        c, lag = self.coefficients(), np.subtract.outer(np.arange(rounds), np.arange(rounds))
        messages[...] = np.where(lag >= 0, c[np.maximum(lag, 0)], 0.0) @ messages
        return messages

    def gain(self) -> float:
        """Return the deviation of the sum of all g_t + y_t: the norm of r with C^T r = D 1."""
        return math.sqrt(sum(r * r for r in self._undone(self.norms[::-1].tolist())))

    def deviations(self) -> Array:
        """Return the standard deviation of the noise of each message, shape (T,), for normals z."""
        # C^-1 is Toeplitz, too: its coefficients are the noise after a single draw.
        inverse = self._undone([1.0] + [0.0] * (self.rounds - 1))
        rows = np.cumsum(inverse) if self.lasts else np.array(inverse)
        found: Array = np.sqrt(np.cumsum(rows**2)) * self.norms
        return found

    def _undone(self, stream: list[float]) -> list[float]:
        """Return C^-1 times a stream, from the first to the last."""
        weights, decays = self.weights.tolist(), self.decays.tolist()
        state, found = [0.0] * len(weights), []
        for value in stream:
            y = value - sum(w * s for w, s in zip(weights, state, strict=True))
            state = [decay * s + y for decay, s in zip(decays, state, strict=True)]
            found.append(y)
        return found

    @property
    def lengths(self) -> float:
        """The sum over buffers of weights times how many rounds they remember."""
        return float(np.abs(self.weights) @ np.minimum(self.rounds, 1 / (1 - self.decays)))


class Filter:
    """The noise y of a correlation from fresh draws, in numbers that nothing is rounded in."""

    def __init__(self, correlation: Correlation, size: int) -> None:
        self._of, self._buffers = correlation, np.zeros((len(correlation.weights), size))
        self._sum = np.zeros(size)

    def add(self, t: int, fresh: Array) -> Array:
        """Return what is added to the message of round t, given its normals; rounds follow each other."""
        y = fresh - self._of.weights @ self._buffers
        self._buffers *= self._of.decays[:, np.newaxis]
        self._buffers += y
        y *= self._of.norm(t)
        self._sum = self._sum + y if self._of.lasts else y
        return self._sum


def _geometric(first: float, last: float, number: int) -> Array:
    return first * (last / first) ** (np.arange(number) / max(1, number - 1))


def _solve(rows: list[list[float]], goal: list[float]) -> list[float]:
    """Solve a few linear equations by elimination, in an order that is the same on every processor."""
    system, size = [[*row, value] for row, value in zip(rows, goal, strict=True)], len(goal)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(system[k][i]))
        system[i], system[pivot] = system[pivot], system[i]
        for k in range(size):
            if k != i:
                factor = system[k][i] / system[i][i]
                system[k] = [a - factor * b for a, b in zip(system[k], system[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(system)]
