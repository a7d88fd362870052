"""What a run draws as noise, for the reference: the tests of the noise itself are elsewhere."""

import numba
import numpy as np

from mu2mpi.core.kernels import NUMBA_OPTIONS
from mu2mpi.privacy.noise.box_muller import normal_pair
from mu2mpi.privacy.noise.noise_stream import (
    AGGREGATE_STREAM,
    CHUNK_PAIRS,
    CHUNK_WORDS,
    add_noise,
    allocate_chunk_arrays,
    fill_normal_pairs,
    padded_zeros,
)


# Not cached on disk: numba would not notice changes of the package's functions that it inlines.
@numba.njit(**NUMBA_OPTIONS)
def _fill_normals(out, key, stream, machine, t):
    arrays = allocate_chunk_arrays()
    keystream, _, squared_radii, _, _ = arrays
    for chunk in range(out.size // CHUNK_WORDS):
        fill_normal_pairs(*arrays, -1, key, chunk, stream, machine, t)
        part = out[chunk * CHUNK_WORDS : (chunk + 1) * CHUNK_WORDS]
        for i in range(CHUNK_PAIRS):
            g, h = normal_pair(squared_radii[i], keystream[CHUNK_PAIRS + i])
            part[i] = g
            part[CHUNK_PAIRS + i] = h


def standard_normal(key, stream, machine, t, d):
    """Draw d standard normals as a function of key, stream, machine (0: server) and round t; shape (d,)."""
    out = np.empty(-(-d // CHUNK_WORDS) * CHUNK_WORDS)
    _fill_normals(out, key, stream, machine, t)
    return out[:d]


def drawn_noise(constants, key, who, number, t):
    """Return one draw of round t as a message gets it, in standard deviations of one machine's noise."""
    flat, _ = padded_zeros(constants.message_shape)
    noised, draw = padded_zeros(constants.message_shape)
    sigma = constants.mechanism.round_sigma(t)
    scale = (
        sigma
        / constants.mechanism.grid_spacing
        * (np.sqrt(constants.problem.machines) if who == AGGREGATE_STREAM else 1.0)
    )
    add_noise(noised, flat, key, who, number, 1, t, scale)
    return draw * (constants.mechanism.grid_spacing / sigma)
