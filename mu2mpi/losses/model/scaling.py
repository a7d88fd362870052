"""Scaling of stored samples to z: features in [-1, 1] and a constant bias feature, F in all."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNIT_BIAS = 0.1  # bias feature of samples of norm 1; the others have norm sqrt(1 - UNIT_BIAS^2)
_MIN_SQUARED_NORM = 2.0**-900  # above it, underflow of smaller squares is negligible


@dataclass(frozen=True)
class Scaling:
    """Scaling of each sample to norm 1, or of longer ones down to a norm bound."""

    unit_norm: bool = False  # scale every sample to norm 1, bias included
    max_norm: float | None = None  # bound on the norm of the features without the bias

    @property
    def bias(self) -> float:
        """Value of the bias feature."""
        return UNIT_BIAS if self.unit_norm else 1.0

    @property
    def is_per_sample(self) -> bool:
        """Whether scale factors depend on the norm of the sample."""
        return self.unit_norm or self.max_norm is not None

    def max_squared_norm(self, features_bound: float) -> float:
        """Return the bound on ||z||^2 for a bound on the squared norm of the features before scaling."""
        if self.unit_norm:
            return 1.0
        return 1.0 + (features_bound if self.max_norm is None else min(features_bound, self.max_norm**2))

    def scale_factors(self, features: NDArray[np.generic], scale: float) -> NDArray[np.float64]:
        """Return the factor, shape (n,), of each row of stored features, shape (n, F - 1).

        The factor is `scale`, which maps features into [-1, 1], or less for samples beyond their norm bound;
        rounding exceeds the bound by at most a factor of 1 + (F + 8) 2^-53. With `unit_norm`, samples whose
        squared norm is below `_MIN_SQUARED_NORM` or not finite get 0.
        """
        factors = np.full(len(features), 0.0 if self.unit_norm else scale)
        if not self.is_per_sample:
            return factors
        target = math.sqrt(1 - UNIT_BIAS**2) if self.unit_norm else float(self.max_norm or 0)
        # Features within the norm bound keep `scale`.
        min_square = _MIN_SQUARED_NORM if self.unit_norm else (target / scale) ** 2
        step = max(1, (1 << 17) // features.shape[1])
        for start in range(0, len(features), step):
            squares = squared_row_norms(features[start : start + step])
            is_scaled = (squares >= min_square) & (squares < np.inf)
            chunk = factors[start : start + step]
            chunk[is_scaled] = target / np.sqrt(squares[is_scaled])
        return factors

    def scaled_samples(self, features: NDArray[np.generic], scale: float) -> NDArray[np.float64]:
        """Return samples z, bias included, shape (n, F), of stored features, shape (n, F - 1)."""
        return append_bias(features, self.scale_factors(features, scale), self.bias)


def squared_row_norms(rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return the squared norm of each row, summed pairwise so that its bits do not depend on other rows."""
    with np.errstate(over="ignore"):
        terms: NDArray[np.float64] = np.square(rows, dtype=np.float64)
        width = terms.shape[1]
        while width > 1:
            half = (width + 1) // 2
            terms[:, : width - half] += terms[:, half:width]
            width = half
    return terms[:, 0]


def append_bias(
    features: NDArray[np.generic], scales: NDArray[np.float64], bias: float
) -> NDArray[np.float64]:
    """Return stored features times the scale factor of each row, with the bias feature appended."""
    z = np.full((len(features), features.shape[1] + 1), bias)
    np.multiply(features, scales[:, np.newaxis], out=z[:, :-1], casting="unsafe", dtype=np.float64)
    return z
