"""Strategy matrices for noise correlated over rounds: buffered linear Toeplitz (BLT) matrices.

Machines send g_t in round t, or the running sum of all g up to it. The matrix mechanism with a lower
triangular strategy C D^-1 protects C D^-1 g + z with independent normals z, that is C D^-1 (g + y) with y = D
C^-1 z. One sample moves one column of the strategy. Powers C = (1 - x)^-p of the matrix of ones suit prefix
sums: Fichtenberger, Henzinger and Upadhyay, "Constant matters", 2023. If the coefficients of C are sums of
exponentials, a round needs one buffer for each: Dvijotham et al., "Efficient and near-optimal noise
generation for streaming differential privacy", 2024.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.lazy import np


@dataclass(frozen=True)
class Correlation:
    """Toeplitz strategy matrix with coefficients c_0 = 1, c_j = sum over buffers of weight decay^(j-1)."""

    power: float  # p of the power (1 - x)^-p that the coefficients approximate
    buffers: int  # largest number k of buffers
    rounds: int  # T
    normalizes_columns: bool  # whether D scales each column to norm 1, instead of D = 1
    is_cumulative: bool  # whether messages, and so their noise, are running sums

    @cached_property
    def decays(self) -> FloatArray:
        """Decay per round of each of k buffers, shape (k,); time constants are equidistant in logarithm."""
        resolvable = (self.rounds - 1).bit_length() * 2 // 3 + 1  # buffers that few rounds can resolve
        count = min(self.buffers, resolvable, self.rounds - 1) * (self.power > 0)
        return np.exp(-1 / _geometric_sequence(0.8, 4.0 * self.rounds, count))

    @cached_property
    def weights(self) -> FloatArray:
        """Weight of each of k buffers, shape (k,), such that k coefficients of (1 - x)^-p are matched."""
        indices, k, p = [1], len(self.decays), self.power
        if not k:
            return np.empty(0)
        for index in _geometric_sequence(1.0, self.rounds - 1.0, k)[1:]:
            indices.append(max(round(index), indices[-1] + 1))
        powers = [[decay ** (j - 1) for decay in self.decays.tolist()] for j in indices]
        # The coefficient of x^j is Gamma(j + p) / (Gamma(p) j!).
        target = [math.exp(math.lgamma(j + p) - math.lgamma(p) - math.lgamma(j + 1)) for j in indices]
        # Ten digits, in which all processors agree
        return np.array([float(f"{weight:.10g}") for weight in _solve_linear(powers, target)])

    def coefficients(self) -> FloatArray:
        """Coefficients c_0, ..., c_(T-1) of the Toeplitz strategy matrix, its first column, shape (T,)."""
        powers = self.decays ** np.arange(self.rounds - 1)[:, np.newaxis]
        return np.append(1.0, powers @ self.weights)

    def squared_column_norm(self, length: Any) -> Any:
        """Sum of squares of the strategy's first `length` >= 1 coefficients, for each element of `length`."""
        sums = 1.0 + np.zeros(np.shape(length))
        for a, weight_a in zip(self.decays, self.weights, strict=True):
            for b, weight_b in zip(self.decays, self.weights, strict=True):
                sums -= weight_a * weight_b * np.expm1(np.subtract(length, 1) * math.log(a * b)) / (1 - a * b)
        return sums

    @cached_property
    def column_norms(self) -> FloatArray:
        """Factor on each round's noise, shape (T,): column norms of the strategy matrix, or 1."""
        if not self.normalizes_columns:
            return np.ones(self.rounds)
        return np.asarray(np.sqrt(self.squared_column_norm(np.arange(self.rounds, 0, -1))))

    def column_norm(self, t: int) -> float:
        """Factor on the noise of round t (1-based): column norm of the strategy, largest at t = 1, or 1."""
        return float(self.column_norms[t - 1])

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of the strategy to a change of norm 1 in one round: its largest column norm."""
        return 1.0 if self.normalizes_columns else math.sqrt(self.squared_column_norm(self.rounds))

    def sensitivity_fraction(self, first_round: int, last_round: int) -> float:
        """Fraction of the sensitivity to a sample of `first_round` that rounds up to `last_round` contain."""
        length = self.rounds - first_round + 1 if self.normalizes_columns else self.rounds
        rounds = last_round - first_round + 1
        return math.sqrt(self.squared_column_norm(rounds) / self.squared_column_norm(length))

    def apply_strategy(self, messages: FloatArray) -> FloatArray:
        """Multiply messages, shape (..., rounds, d), by the strategy matrix in place."""
        rounds = messages.shape[-2]
        if self.is_cumulative:
            messages[..., 1:, :] -= messages[..., :-1, :].copy()
        messages /= self.column_norms[:rounds, np.newaxis]
        c, lag = self.coefficients(), np.subtract.outer(np.arange(rounds), np.arange(rounds))
        messages[...] = np.where(lag >= 0, c[np.maximum(lag, 0)], 0.0) @ messages
        return messages

    def total_noise_std(self) -> float:
        """Noise std of the sum of all rounds, in units of sigma: the norm of r with C^T r = D 1."""
        weights, decays = self.weights.tolist(), self.decays.tolist()
        state, solution = [0.0] * len(weights), []
        for value in self.column_norms[::-1].tolist():
            r = value - sum(w * s for w, s in zip(weights, state, strict=True))
            state = [decay * s + r for decay, s in zip(decays, state, strict=True)]
            solution.append(r)
        return math.sqrt(sum(r * r for r in solution))

    @property
    def memory_rounds(self) -> float:
        """Memory of the correlation in rounds: sum over buffers of |weight| min(T, 1 / (1 - decay))."""
        return float(np.abs(self.weights) @ np.minimum(self.rounds, 1 / (1 - self.decays)))


def _geometric_sequence(first: float, last: float, length: int) -> FloatArray:
    return first * (last / first) ** (np.arange(length) / max(1, length - 1))


def _solve_linear(rows: list[list[float]], target: list[float]) -> list[float]:
    """Solve linear equations by Gauss-Jordan elimination, in the same order on every processor."""
    system, size = [[*row, value] for row, value in zip(rows, target, strict=True)], len(target)
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(system[k][i]))
        system[i], system[pivot] = system[pivot], system[i]
        for k in range(size):
            if k != i:
                factor = system[k][i] / system[i][i]
                system[k] = [a - factor * b for a, b in zip(system[k], system[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(system)]
