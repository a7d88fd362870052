"""Scaling of stored samples: features in [-1, 1], and a constant bias feature."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray

UNIT_NORM_BIAS_FEATURE = 0.1  # bias feature of samples of norm 1; their other features have norm sqrt(0.99)
_MIN_SCALABLE_SQUARED_NORM = 2.0**-900  # above it, underflow of smaller squares is negligible


@dataclass(frozen=True)
class Scaling:
    """Scaling of every sample to norm 1, or of samples above a norm bound down to it."""

    unit_norm: bool = False  # scale every sample to norm 1, bias included
    max_norm: float | None = None  # bound on the norm of the features without the bias

    @property
    def bias_feature(self) -> float:
        """Value of the constant bias feature of every scaled sample."""
        return UNIT_NORM_BIAS_FEATURE if self.unit_norm else 1.0

    @property
    def is_per_sample(self) -> bool:
        """Whether the scale factor of a sample depends on its norm."""
        return self.unit_norm or self.max_norm is not None

    def max_squared_norm(self, features_bound: float) -> float:
        """Return the bound on a scaled sample's squared norm, bias included, given that of its features."""
        if self.unit_norm:
            return 1.0
        return 1.0 + (features_bound if self.max_norm is None else min(features_bound, self.max_norm**2))

    def scale_factors(self, features: NDArray[np.generic], scale: float) -> FloatArray:
        """Return the scale factor of each sample, shape (n,), given stored features, shape (n, F - 1).

        Samples within the norm bound get `scale`. Rounding exceeds the bound by at most a factor of
        1 + (F + 8) 2^-53. With `unit_norm`, samples of tiny or infinite squared norm get 0.
        """
        factors = np.full(len(features), 0.0 if self.unit_norm else scale)
        if not self.is_per_sample:
            return factors
        target_norm = math.sqrt(1 - UNIT_NORM_BIAS_FEATURE**2) if self.unit_norm else self.max_norm or 0.0
        min_square = _MIN_SCALABLE_SQUARED_NORM if self.unit_norm else (target_norm / scale) ** 2
        chunk_rows = max(1, (1 << 17) // features.shape[1])
        for start in range(0, len(features), chunk_rows):
            squares = squared_row_norms(features[start : start + chunk_rows])
            is_scaled = (squares >= min_square) & (squares < np.inf)
            chunk = factors[start : start + chunk_rows]
            chunk[is_scaled] = target_norm / np.sqrt(squares[is_scaled])
        return factors

    def scaled_samples(self, features: NDArray[np.generic], scale: float) -> FloatArray:
        """Return scaled samples with bias feature, shape (n, F), of stored features, shape (n, F - 1)."""
        return append_bias(features, self.scale_factors(features, scale), self.bias_feature)


def squared_row_norms(rows: NDArray[np.generic]) -> FloatArray:
    """Return the squared norm of each row, shape (n,), bitwise independent of the other rows."""
    with np.errstate(over="ignore"):
        terms: FloatArray = np.square(rows, dtype=np.float64)
        width = terms.shape[1]
        while width > 1:
            half = (width + 1) // 2
            terms[:, : width - half] += terms[:, half:width]
            width = half
    return terms[:, 0]


def append_bias(features: NDArray[np.generic], scales: FloatArray, bias: float) -> FloatArray:
    """Return samples, shape (n, F): stored features times the scale factor of each row, and a bias column."""
    z = np.full((len(features), features.shape[1] + 1), bias)
    np.multiply(features, scales[:, np.newaxis], out=z[:, :-1], casting="unsafe", dtype=np.float64)
    return z
