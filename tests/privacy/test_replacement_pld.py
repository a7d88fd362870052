"""The noise for samples that are drawn with replacement, against an accountant that others wrote."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from mu2mpi.privacy.mechanisms.replacement_mechanism import (
    min_batch_size,
    with_replacement_epsilon,
    with_replacement_sigma,
)

DELTA = 1e-5


def binomial(draws, probability):
    """Return the probabilities of 0 .. draws successes."""
    k = np.arange(draws + 1)
    log_choose = np.array(
        [math.lgamma(draws + 1) - math.lgamma(j + 1) - math.lgamma(draws - j + 1) for j in k]
    )
    if probability == 1:
        return (k == draws).astype(float)
    return np.exp(log_choose + k * math.log(probability) + (draws - k) * math.log1p(-probability))


def epsilon_of_pairs(samples, drawn, rounds, multiplier, interval=2e-5):
    """Return the epsilon of dp-accounting for a sample that is drawn j times and moves the sum by j or by -j.

    One Gaussian for each j, on a grid of outcomes: the number of times that the sample is drawn, out of K, is
    binomial, and the sample and what replaces it are as different as two vectors of norm 1 can be.
    """
    often = binomial(drawn, 1 / samples)
    largest = int(np.flatnonzero(often > 1e-14)[-1])
    edges = np.linspace(-largest - 9 * multiplier, largest + 9 * multiplier, 3001)
    centres = (edges[1:] + edges[:-1]) / 2
    j = np.flatnonzero(often > 1e-14)[:, np.newaxis]

    def logs(sign):
        density = -(((centres - sign * j) / multiplier) ** 2) / 2 + np.log(often[j])
        log = np.logaddexp.reduce(density, axis=0)
        return dict(enumerate(log - np.logaddexp.reduce(log)))

    one = pld.from_two_probability_mass_functions(logs(1), logs(-1), value_discretization_interval=interval)
    return one.self_compose(rounds).get_epsilon_for_delta(DELTA)


@pytest.mark.parametrize(
    ("samples", "rounds", "epsilon"),
    [(600, 2000, 4.0), (600, 50, 0.5), (5000, 300, 20.0), (40, 1000, 2.0), (5, 1, 20.0), (1, 1, 1.0)],
)
@pytest.mark.parametrize("times", [1, 4])
def test_the_noise_of_the_theorem_is_enough(samples, rounds, epsilon, times):
    """With the fewest samples that it allows, and with more."""
    drawn = times * min_batch_size(samples, rounds, epsilon, DELTA)
    sigma = with_replacement_sigma(3.0, samples, drawn, rounds, epsilon, DELTA)
    assert with_replacement_epsilon(3.0, samples, drawn, rounds, sigma, DELTA) == pytest.approx(epsilon)
    assert epsilon_of_pairs(samples, drawn, rounds, sigma / 3) < epsilon
