"""The feasible set K: a ball of diameter D about the starting point 0."""

import numpy as np

from mu2mpi.core.kernels import inline, reduction

# Squares that are summed up by themselves, so that rounding errors of d grow with BLOCK + d / BLOCK
BLOCK = 256


@reduction
def squared_norm(v):  # type: ignore[no-untyped-def]
    """Return the squared Euclidean norm of a vector."""
    total = 0.0
    for j in range(v.size):
        total += v[j] * v[j]
    return total


@inline
def shrinkage(squared, radius):  # type: ignore[no-untyped-def]
    """Return the factor that projects a vector with this squared norm on a ball about 0, or clips it."""
    return 1.0 if squared <= radius * radius else radius / np.sqrt(squared)
