"""The noise for samples that are drawn each by itself, against samples, and an accountant of others."""

import math

import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism


@pytest.mark.parametrize(
    ("probability", "rounds", "epsilon"),
    [(0.1, 30, 0.5), *slow((0.02, 100, 1.0), (1.0, 20, 2.0), (0.2, 1, 3.0))],
)
def test_dp_sgd_has_the_noise_that_it_needs_and_hardly_more(probability, rounds, epsilon):
    """The privacy loss of replacing a sample by its opposite, drawn at random: five standard errors."""
    delta = 0.01
    sigma = PoissonMechanism.find_sigma(3.0, 1, probability, rounds, epsilon, delta)
    assert (
        epsilon * 0.995
        < PoissonMechanism.compute_epsilon(3.0, 1, probability, rounds, sigma, delta)
        <= epsilon
    )
    rng, C = np.random.default_rng(1), 3 / sigma
    losses = np.zeros(200_000)
    for _ in range(rounds):
        seen = rng.standard_normal(losses.size) + C * (rng.random(losses.size) < probability)
        with_one, with_other = (
            1 - probability + probability * np.exp(sign * C * seen - C**2 / 2) for sign in (1, -1)
        )
        losses += np.log(with_one / with_other)
    excess = np.maximum(0, -np.expm1(epsilon - losses))
    assert abs(excess.mean() - delta) < 5 * excess.std() / math.sqrt(losses.size) + 0.01 * delta
    if probability == 1:
        assert epsilon_exact(2 * 3 * math.sqrt(rounds) / sigma, delta) == pytest.approx(epsilon, rel=5e-3)
