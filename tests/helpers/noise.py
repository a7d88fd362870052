"""What a run draws as noise, for the reference: the tests of the noise itself are elsewhere."""

import numpy as np

from mu2mpi.privacy.noise.noise_stream import AGGREGATE_STREAM, add_noise, padded_zeros


def drawn_noise(constants, key, who, number, t):
    """Return one draw of round t as a message gets it, in standard deviations of one machine's noise."""
    shape = constants.problem.model_rows, constants.problem.features
    flat, _ = padded_zeros(shape)
    noised, draw = padded_zeros(shape)
    sigma = constants.mechanism.round_sigma(t)
    scale = (
        sigma
        / constants.mechanism.grid_spacing
        * (np.sqrt(constants.problem.machines) if who == AGGREGATE_STREAM else 1.0)
    )
    add_noise(noised, flat, key, who, number, 1, t, scale)
    return draw * (constants.mechanism.grid_spacing / sigma)
