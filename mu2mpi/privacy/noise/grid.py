"""Public integer grid of messages: spacing and range, such that sums are exact in any order."""

import math

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.released_sums import ReleasedSums

MAX_NORMAL_DRAW = 39.0  # largest draw in standard deviations: Box-Muller's u is at least 2^-1087
MAX_GRID_SUM = 2.0**62  # bound on sums of messages in grid units: half of the range of int64
_MAX_GRID_VALUE_BITS = 50  # log2 of rounded numbers, in grid units: half of what `round_to_integer` takes
# log2 of the noise std, or of an increment without noise, in grid units; more would resolve sampler errors
_MIN_NOISE_BITS = 12
_NOISELESS_GRID_BITS = 40


def choose_grid_spacing(
    released_sums: ReleasedSums,
    sigma: float,
    noise_bits: int = _MIN_NOISE_BITS,
    min_sigma: float | None = None,
) -> float:
    """Grid spacing, a power of two, for noise of std `sigma` in the messages of a release.

    Rounding takes at most half a per cent of the clipping norm, and the smallest noise std of any round,
    `min_sigma` [default: `sigma`], is 2^noise_bits spacings or more. InputError if the grid would overflow.
    """
    C = released_sums.clip_norm
    scale = (min_sigma or sigma) if sigma > 0 else min(C, released_sums.max_gradient_norm)
    bits = noise_bits if sigma > 0 else _NOISELESS_GRID_BITS
    max_spacing = min(scale * 2.0**-bits, 2 * 0.005 * C / math.sqrt(released_sums.parameters))
    exponent = max(math.floor(math.log2(max_spacing)), _min_spacing_exponent(released_sums, sigma))
    if exponent > math.floor(math.log2(scale)) - min(_MIN_NOISE_BITS, noise_bits):
        raise _overflow_error(released_sums)
    return float(2.0**exponent)


def check_grid_range(released_sums: ReleasedSums, sigma: float, grid_spacing: float) -> None:
    """Raise InputError if sums of a release could overflow 64-bit integers on a grid."""
    if math.log2(grid_spacing) < _min_spacing_exponent(released_sums, sigma):
        raise _overflow_error(released_sums)


def _min_spacing_exponent(released_sums: ReleasedSums, sigma: float) -> float:
    """Log2 of the finest grid spacing on which messages and their sum are 64-bit integers."""
    machines, terms, C = released_sums.machines, released_sums.increments_per_message, released_sums.clip_norm
    # Each increment and the noise of a message are rounded by at most half a grid unit.
    max_value = machines * (terms * C + MAX_NORMAL_DRAW * sigma)
    capacity = MAX_GRID_SUM - machines * (terms + 1.0)
    sum_exponent = math.ceil(math.log2(max_value / capacity)) if capacity > 0 else math.inf
    max_noise = MAX_NORMAL_DRAW * math.sqrt(released_sums.aggregated_machines) * sigma
    return max(float(sum_exponent), math.ceil(math.log2(max(C, max_noise))) - _MAX_GRID_VALUE_BITS)


def _overflow_error(released_sums: ReleasedSums) -> InputError:
    return InputError(
        f"Messages of {released_sums.machines} machines, sums of {released_sums.increments_per_message} "
        "increments each, overflow 64-bit integers on a fine enough grid. Use fewer --machines or "
        "--rounds, or a smaller --diameter or --rho (or --rho inf)."
    )


def reduce_clip_norm(clip_norm: float, grid_spacing: float, d: int) -> float:
    """Clipping norm before rounding, such that increments rounded to the grid are within `clip_norm`."""
    bound = (clip_norm - grid_spacing * math.sqrt(d) / 2) * (1 - max(2.0**-40, d * 2.0**-52))
    if bound < clip_norm / 2:
        raise InputError(
            f"The clipping norm {clip_norm:g} in {d} dimensions is too small for the grid spacing "
            f"{grid_spacing:g} of this noise. Use a larger --rho or --clip-norm, or fewer --rounds."
        )
    return bound
