"""Pearson's chi-square test of uniform counts."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.problem.base import Array


def chi_square_evidence(counts: NDArray[np.int64]) -> Array:
    """Evidence against uniform counts: -log of an upper bound on the p-value of each row.

    With f degrees of freedom, chi-square is r f or more with a probability of at most (r e^(1 - r))^(f / 2)
    for r > 1, by Chernoff's bound.

    Parameters
    ----------
    counts : ndarray of int64, shape (..., values)
        Occurrences of each value, with a sum greater than 0 in each row.

    Returns
    -------
    ndarray of float64, shape (...)
    """
    freedom = counts.shape[-1] - 1
    expected = counts.sum(axis=-1, keepdims=True) / counts.shape[-1]
    ratios = np.maximum(((counts - expected) ** 2 / expected).sum(axis=-1) / freedom, 1.0)
    evidence: Array = freedom / 2 * (ratios - 1 - np.log(ratios))
    return evidence
