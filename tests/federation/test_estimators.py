"""Estimators and query points: weights of rounds, and bounds on what a sample adds to a message."""

import math

import pytest

from mu2mpi.core.registry import find
from mu2mpi.federation.estimators import AVERAGE, CORRECTED_MOMENTUM, GRADIENT, ITERATE
from mu2mpi.losses.model.scaling import Scaling


def test_averages_are_weighted_by_alpha_t():
    """x_t = sum_{s <= t} alpha_s w_s / alpha_{1:t} with alpha_s = s, and with AVERAGE step by step."""
    points, x = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0], 0.0
    for t, w in enumerate(points, start=1):
        weight = AVERAGE.averaging_weight(t)
        x = (1 - weight) * x + weight * w
        assert x == pytest.approx(sum(s * points[s - 1] for s in range(1, t + 1)) / (t * (t + 1) / 2))
    assert [query.importance(7) for query in (AVERAGE, ITERATE)] == [7, 1]
    assert ITERATE.averaging_weight(7) == 1
    assert [estimator.weight(7) for estimator in (CORRECTED_MOMENTUM, GRADIENT)] == [7, 1]


def test_bounds_are_those_of_the_lemmas():
    """S = G + 2 L D (Lemma 4.2), that of the paper for MNIST; none where iterates are queried."""
    G, L, _ = find("losses", "softmax").constants(Scaling().largest_square(784), 0.05, 10)
    assert CORRECTED_MOMENTUM.bound(G, L, 0.1, AVERAGE) == pytest.approx(118.1, abs=0.05)
    assert CORRECTED_MOMENTUM.bound(G, L, 0.1, ITERATE) == math.inf
    assert {GRADIENT.bound(G, L, 0.1, query) for query in (AVERAGE, ITERATE)} == {G}
