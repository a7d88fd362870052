"""How stored samples become those of which theory speaks, and how long these are.

A sample is a row of features z, scaled into [-1, 1], with a constant 1 appended for the bias: F in all. Or if
`unit`, each sample is scaled to norm 1, the bias feature `UNIT_BIAS` included.
"""

import math

import numpy as np
from numpy.typing import NDArray

UNIT_BIAS = 0.1
"""The bias feature of a sample that is scaled to norm 1. The others have norm sqrt(1 - UNIT_BIAS^2)."""

VALUES = 1 << 17
"""Features of samples whose norms are taken together: as many as stay in a processor's cache."""

LEAST_SQUARE = 2.0**-900
"""Beside it, squares too small for floating-point numbers do not count."""


def largest_square(features: int, unit: bool) -> float:
    """Return what no ||z||^2 passes, with so many features."""
    return 1.0 if unit else float(features)


def bias_feature(unit: bool) -> float:
    """Return the bias feature of all samples."""
    return UNIT_BIAS if unit else 1.0


def sample_scales(features: NDArray[np.generic], scale: float, unit: bool) -> NDArray[np.float64]:
    """Return the factors, shape (n,), that take stored features, shape (n, F - 1), to those of z.

    It is the scale, which takes them into [-1, 1]; or if `unit`, by a sample's own norm alone, what makes no
    z longer than 1 + (F + 8) 2^-53: 0 for a squared norm below `LEAST_SQUARE`, or one that is not finite.
    """
    if not unit:
        return np.full(len(features), scale)
    scales = np.zeros(len(features))
    step = max(1, VALUES // features.shape[1])
    for start in range(0, len(features), step):
        part = features[start : start + step].astype(np.float64)
        squares = np.einsum("ij,ij->i", part, part)
        usable = (squares >= LEAST_SQUARE) & (squares < np.inf)
        of_part = scales[start : start + step]
        of_part[usable] = math.sqrt(1 - UNIT_BIAS**2) / np.sqrt(squares[usable])
    return scales


def scaled(features: NDArray[np.generic], scale: float, unit: bool) -> NDArray[np.float64]:
    """Return samples z with their bias feature, shape (n, F), from stored features of shape (n, F - 1)."""
    return with_bias(features, sample_scales(features, scale, unit), bias_feature(unit))


def with_bias(features: NDArray[np.generic], scales: NDArray[np.float64], bias: float) -> NDArray[np.float64]:
    """Return stored features times the scale of each sample, and the bias feature behind them."""
    z = np.full((len(features), features.shape[1] + 1), bias)
    np.multiply(features, scales[:, np.newaxis], out=z[:, :-1], casting="unsafe", dtype=np.float64)
    return z
