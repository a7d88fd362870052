"""An attack on the fine structure of the noise: whether its draws lie on rings or rays that messages resolve.

Box and Muller's transform makes a pair of normals from a radius r and an angle. Of ideal normals,
u = exp(-r^2 / 2) and the angle in turns are uniform, and so are the fractional parts of 2^b u and 2^b turns
for any b. If a generator has only b bits, these are always 0. Far from the centre such a lattice is so wide
that it shows through the grid of messages, and tells of each data set whether its sums fit.
"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from mu2mpi.kernels import kernel
from mu2mpi.privacy.noise import PAIRS
from mu2mpi.problem.base import Array

TAIL_BITS = 22
"""Pairs with u < 2^-22, r^2 > 30.5, are looked at: fractional parts of 2^b u are uniform for b from 22 on."""

RADIUS_BITS, ANGLE_BITS = range(TAIL_BITS, 71), range(4, 63)
"""Lattices that are looked for."""

OFFSETS = 0.0, 0.5
"""Where on the unit interval the points of a lattice may lie."""

ROUNDING = math.sqrt(1 / 12)
"""Standard deviation of what rounding to the grid adds, in units of the grid."""

SHARPEST, BLUNTEST = 0.005, 0.5
"""Standard deviations of a fractional part: smaller ones are not trusted, and larger ones tell nothing."""

STRAYING = 0.05
"""Share of pairs of which a lattice is not expected to tell anything."""

Fault = tuple[bool, str]
"""Whether less is hidden than is claimed, and what is wrong, in words."""


@dataclass(frozen=True)
class Structure:
    """What was found in the noise of so many normals, of which so many pairs lie in the tail."""

    normals: int
    pairs: int
    log_evidence: float  # for a lattice, of which there is one if the evidence is beyond the threshold
    threshold: float
    strongest: str  # the lattice that fits best, in words
    faults: tuple[Fault, ...] = ()  # what else is wrong with the noise


@kernel
def collect_tail(message, hidden, scale, tail, count):  # type: ignore[no-untyped-def]
    """Add the pairs of a message's noise that lie far from the centre to `tail`; return how many it has.

    What is sent and what it hides are of shape (K, F), in units of the grid, as is the standard deviation
    `scale` of the noise. `tail`, of shape (2, most), has `count` pairs already, in units of `scale`; those
    that find no room are left out.
    """
    sent, known = message.ravel(), hidden.ravel()
    least = 2 * TAIL_BITS * math.log(2.0) * scale * scale
    for start in range(0, sent.size, 2 * PAIRS):
        for i in range(start, min(start + PAIRS, sent.size - PAIRS)):
            g = np.float64(sent[i] - known[i])
            h = np.float64(sent[i + PAIRS] - known[i + PAIRS])
            if g * g + h * h > least and count < tail.shape[1]:
                tail[0, count], tail[1, count] = g / scale, h / scale
                count += 1
    return count


def lattice_evidence(pairs: Array, scale: float) -> tuple[float, str]:
    """Return the logarithm of the evidence for a lattice in pairs of the tail, and the one that fits best.

    The pairs, shape (2, n), are in units of their standard deviation, which is `scale` in units of the grid.
    The evidence is the mean, over all lattices that are looked for, of the likelihood of the fractional parts
    if the lattice is there over that if it is not. Its mean is 1 for ideal normals, so that it passes 1 / p
    with a probability of at most p, by Markov's inequality.
    """
    r = np.hypot(*pairs)
    u, turns = np.exp(-r * r / 2), np.arctan2(pairs[1], pairs[0]) / (2 * np.pi)
    blur = ROUNDING / scale
    found = []
    for name, bits, uniforms, deviations in (
        ("radii", RADIUS_BITS, u, u * r * blur),
        ("angles", ANGLE_BITS, turns, blur / (2 * np.pi * r)),
    ):
        for b, offset in product(bits, OFFSETS):
            k, deviation = np.ldexp(uniforms, b), np.maximum(np.ldexp(deviations, b), SHARPEST)
            found.append((_log_likelihood(k - offset, deviation), f"{name} on a lattice of 2^-{b}"))
    strongest, name = max(found)
    mean = np.mean(np.exp(np.array([value for value, _ in found]) - strongest))
    return strongest + math.log(mean), name


def _log_likelihood(k: Array, deviation: Array) -> float:
    """Return log of the density of the fractional parts, blurred as they are, relative to the uniform one."""
    parts = k - np.rint(k)
    shifts = np.arange(-2, 3)[:, np.newaxis]
    density = np.exp(-(((parts + shifts) / deviation) ** 2) / 2).sum(axis=0)
    density /= math.sqrt(2 * math.pi) * deviation
    density = np.where(deviation < BLUNTEST, density, 1.0)
    return float(np.log(STRAYING + (1 - STRAYING) * density).sum())
