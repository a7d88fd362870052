"""What machines send before noise, and how far two such sums lie apart, both exactly."""

import math
from dataclasses import replace
from fractions import Fraction

from helpers.sources import one_a_round
from mu2mpi.federation.machine import Machines


def sums(constants, features, labels, queries):
    """Return the exact sums of increments after each round, with the query points given."""
    flat = features.reshape(-1, features.shape[-1])
    samples = replace(
        one_a_round(features, labels),
        feature_scales=constants.problem.feature_scaling.scale_factors(flat, 1.0),
    )
    machines, found = Machines(constants, range(constants.problem.machines), lambda t: samples, None), []
    for t in range(1, constants.rounds + 1):
        machines.accumulate_increments(t, queries[t], queries[t - 1])
        found.append(machines.message_sum.copy())
    return found, machines


def norm(difference, grid_spacing):
    """Return the exact norm of a difference of messages, rounded once at the end."""
    units = sum(int(v) ** 2 for v in difference.ravel())
    return math.sqrt(Fraction(units) * Fraction(grid_spacing) ** 2)
