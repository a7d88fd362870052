"""How stored samples become z: features scaled into [-1, 1], with a constant bias feature; F in all."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# The bias feature of a sample that is scaled to norm 1. The others have norm sqrt(1 - UNIT_BIAS^2).
UNIT_BIAS = 0.1
_LEAST_SQUARE = 2.0**-900  # beside it, squares too small for floating-point numbers do not count


@dataclass(frozen=True)
class Scaling:
    """What is done to each sample: scaled to `unit` norm, bias included, or features to a `bound`."""

    unit: bool = False
    bound: float | None = None

    @property
    def bias(self) -> float:
        """The bias feature of all samples."""
        return UNIT_BIAS if self.unit else 1.0

    @property
    def is_by_sample(self) -> bool:
        """Whether the norm of a sample decides on its factor."""
        return self.unit or self.bound is not None

    def largest_square(self, of_features: float) -> float:
        """Return what no ||z||^2 passes, where no squared norm of features in [-1, 1] passes that number."""
        if self.unit:
            return 1.0
        return 1.0 + (of_features if self.bound is None else min(of_features, self.bound**2))

    def factors(self, features: NDArray[np.generic], scale: float) -> NDArray[np.float64]:
        """Return the factors, shape (n,), that take stored features, shape (n, F - 1), to those of z.

        It is the scale, which takes them into [-1, 1]; or by a sample's own norm, what makes no z longer than
        its bound, by more than a factor of 1 + (F + 8) 2^-53: if `unit`, 0 for a squared norm below
        `_LEAST_SQUARE`, or one that is not finite.
        """
        factors = np.full(len(features), 0.0 if self.unit else scale)
        if not self.is_by_sample:
            return factors
        length = math.sqrt(1 - UNIT_BIAS**2) if self.unit else float(self.bound or 0)
        # Features that are short enough stay as they are.
        least = _LEAST_SQUARE if self.unit else (length / scale) ** 2
        step = max(1, (1 << 17) // features.shape[1])
        for start in range(0, len(features), step):
            squares = squared_norms(features[start : start + step])
            usable = (squares >= least) & (squares < np.inf)
            of_part = factors[start : start + step]
            of_part[usable] = length / np.sqrt(squares[usable])
        return factors

    def samples(self, features: NDArray[np.generic], scale: float) -> NDArray[np.float64]:
        """Return samples z with their bias feature, shape (n, F), from stored ones of shape (n, F - 1)."""
        return with_bias(features, self.factors(features, scale), self.bias)


def squared_norms(rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the squared norm of each row by halves, with the same bits whichever rows stand beside it."""
    with np.errstate(over="ignore"):
        terms: NDArray[np.float64] = np.square(rows, dtype=np.float64)
        width = terms.shape[1]
        while width > 1:
            half = (width + 1) // 2
            terms[:, : width - half] += terms[:, half:width]
            width = half
    return terms[:, 0]


def with_bias(features: NDArray[np.generic], scales: NDArray[np.float64], bias: float) -> NDArray[np.float64]:
    """Return stored features times the scale of each sample, and the bias feature behind them."""
    z = np.full((len(features), features.shape[1] + 1), bias)
    np.multiply(features, scales[:, np.newaxis], out=z[:, :-1], casting="unsafe", dtype=np.float64)
    return z
