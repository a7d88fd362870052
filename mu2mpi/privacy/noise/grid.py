"""The public grid on which all messages lie, so that their sums are exact in any order."""

import math

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.release import Release

# No draw of noise is larger, in standard deviations: u is at least 2^-1087 in Box and Muller's transform
MAX_NORMAL = 39.0
# In units of the grid, sums of messages stay below this, a factor 2 below the range of int64; and numbers
# to be rounded to it below 2^50, half of what `round_to_integer` takes
LARGEST_SUM, _LARGEST_UNITS_BITS = 2.0**62, 50
# Bits between the resolution and the scale of what is sent: the noise, at least, or an increment without
# noise. Each bit more than there must be lets messages show more of what the noise is made of.
_FEWEST_BITS, _NOISELESS_BITS = 12, 40


def choose_resolution(
    release: Release, sigma: float, noisy_bits: int = _FEWEST_BITS, smallest: float | None = None
) -> float:
    """Return the spacing g of the grid: a power of two, no finer than it must be; InputError if none will do.

    Rounding costs half a per cent of the clipping norm at most. It is finer beside small increments without
    noise, or noise, of which so many bits at least are above it; and coarser where a number, or the sum of
    all messages, could leave its integers. `sigma` is that of each draw, `smallest` that of any round.
    """
    C = release.clip_norm
    scale = (smallest or sigma) if sigma > 0 else min(C, release.gradient_norm)
    bits = noisy_bits if sigma > 0 else _NOISELESS_BITS
    wanted = min(scale * 2.0**-bits, 2 * 0.005 * C / math.sqrt(release.parameters))
    exponent = max(math.floor(math.log2(wanted)), _least_exponent(release, sigma))
    if exponent > math.floor(math.log2(scale)) - min(_FEWEST_BITS, noisy_bits):
        raise _no_room(release)
    return float(2.0**exponent)


def check_room(release: Release, sigma: float, resolution: float) -> None:
    """Raise InputError if a grid is too fine for the largest release."""
    if math.log2(resolution) < _least_exponent(release, sigma):
        raise _no_room(release)


def _least_exponent(release: Release, sigma: float) -> float:
    """Return the exponent of the finest grid on which all messages and their sum are 64-bit integers."""
    machines, terms, C = release.machines, release.summed, release.clip_norm
    # A message holds these increments and one draw of noise; each is rounded by at most half a unit.
    largest = machines * (terms * C + MAX_NORMAL * sigma)
    room = LARGEST_SUM - machines * (terms + 1.0)
    needed = math.ceil(math.log2(largest / room)) if room > 0 else math.inf
    drawn = MAX_NORMAL * math.sqrt(release.draws) * sigma
    return max(float(needed), math.ceil(math.log2(max(C, drawn))) - _LARGEST_UNITS_BITS)


def _no_room(release: Release) -> InputError:
    return InputError(
        f"the messages of {release.machines} machines, sums of {release.summed} increments each, do not "
        "fit into 64-bit integers on a grid that is fine enough; use fewer machines or rounds, a smaller "
        "diameter, or a smaller rho (or rho = inf)"
    )


def clipping_bound(clip_norm: float, resolution: float, d: int) -> float:
    """Return the norm to which increments are clipped so that, once rounded, they keep to `clip_norm`."""
    bound = (clip_norm - resolution * math.sqrt(d) / 2) * (1 - max(2.0**-40, d * 2.0**-52))
    if bound < clip_norm / 2:
        raise InputError(
            f"increments of norm {clip_norm:g} in {d} dimensions are too small for the grid of "
            f"{resolution:g} that fits this much noise; use a larger rho or clipping norm, or fewer rounds"
        )
    return bound
