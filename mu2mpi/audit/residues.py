"""Uniformity of the low bits of noise.

Noise of standard deviation sigma is uniform modulo 2^k up to a relative error of 2 exp(-2 pi^2) for any
2^k <= sigma, both in units of the grid. A sampler that loses low bits leaves those of the hidden sums in
clear.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.chi_square import chi_square_evidence
from mu2mpi.audit.structure import Fault
from mu2mpi.kernels import kernel
from mu2mpi.privacy.noise import CHUNK, PAIRS

BYTES = 3
"""Low bytes of the noise that are counted."""

VALUES = 256
"""Values of a byte."""

DIFFERENCES = (
    "the difference of neighbouring coordinates",
    "the difference of the coordinates of a pair of normals",
)
"""Quantities of which the lowest byte is counted, after the bytes of the noise itself."""


def zero_residue_counts() -> NDArray[np.int64]:
    """Zeros to be passed to `count_residues`."""
    return np.zeros((BYTES + len(DIFFERENCES), VALUES), np.int64)


@kernel
def count_residues(counts, noise):  # type: ignore[no-untyped-def]
    """Add a message's noise, an array of int64, to the counts of its low bytes and of its `DIFFERENCES`."""
    flat = noise.ravel()
    for i in range(flat.size):
        counts[0, flat[i] & 255] += 1
        counts[1, flat[i] >> 8 & 255] += 1
        counts[2, flat[i] >> 16 & 255] += 1
        if i % CHUNK:
            counts[3, flat[i] - flat[i - 1] & 255] += 1
        if i % CHUNK >= PAIRS:
            counts[4, flat[i] - flat[i - PAIRS] & 255] += 1


def residue_faults(counts: NDArray[np.int64], scale: float, risk: float) -> tuple[Fault, ...]:
    """Bits of the noise that are not uniform.

    Parameters
    ----------
    counts : ndarray of int64
        As of `count_residues`.
    scale : float
        Standard deviation of the noise, in units of the grid.
    risk : float
        Largest probability of a fault of faultless noise.
    """
    uniform_bits = math.floor(math.log2(scale))
    # Bits above the uniform ones are left out.
    widths = [max(0, min(8, uniform_bits - 8 * byte)) for byte in range(BYTES)]
    names = [f"bits {8 * byte} to {8 * byte + width - 1}" for byte, width in enumerate(widths)]
    names += [f"bits 0 to {widths[0] - 1} of {difference}" for difference in DIFFERENCES]
    widths += widths[:1] * len(DIFFERENCES)
    limit = math.log(len(counts) / risk)
    return tuple(
        (True, f"{name} of the noise of real messages are not uniform")
        for row, width, name in zip(counts, widths, names, strict=True)
        if width and chi_square_evidence(row.reshape(-1, 2**width).sum(axis=0)) > limit
    )
