"""What a run draws as noise, for the reference: the tests of the noise itself are elsewhere."""

import numpy as np

from mu2mpi.privacy.noise.stream import AGGREGATE, add_noise, padded_zeros


def drawn_noise(schedule, key, who, number, t):
    """Return one draw of round t as a message gets it, in standard deviations of one machine's noise."""
    shape = schedule.rows, schedule.features
    flat, _ = padded_zeros(shape)
    noised, draw = padded_zeros(shape)
    sigma = schedule.mechanism.sigma_of(t)
    scale = sigma / schedule.mechanism.resolution * (np.sqrt(schedule.machines) if who == AGGREGATE else 1.0)
    add_noise(noised, flat, key, who, number, 1, t, scale)
    return draw * (schedule.mechanism.resolution / sigma)
