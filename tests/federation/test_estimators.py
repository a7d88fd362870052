"""Estimators and query points: weights of rounds, and bounds on what a sample adds to a message."""

import math

import pytest

from mu2mpi.core.registry import lookup
from mu2mpi.federation.estimators import (
    AVERAGED_ITERATE,
    CORRECTED_MOMENTUM,
    GRADIENT_ESTIMATOR,
    LAST_ITERATE,
)
from mu2mpi.losses.model.scaling import Scaling


def test_averages_are_weighted_by_alpha_t():
    """x_t = sum_{s <= t} alpha_s w_s / alpha_{1:t} with alpha_s = s, and step by step."""
    points, x = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0], 0.0
    for t, w in enumerate(points, start=1):
        weight = AVERAGED_ITERATE.averaging_weight(t)
        x = (1 - weight) * x + weight * w
        assert x == pytest.approx(sum(s * points[s - 1] for s in range(1, t + 1)) / (t * (t + 1) / 2))
    assert [query_point.importance_weight(7) for query_point in (AVERAGED_ITERATE, LAST_ITERATE)] == [7, 1]
    assert LAST_ITERATE.averaging_weight(7) == 1
    assert [estimator.gradient_weight(7) for estimator in (CORRECTED_MOMENTUM, GRADIENT_ESTIMATOR)] == [7, 1]


def test_bounds_are_those_of_the_lemmas():
    """S = G + 2 L D (Lemma 4.2), that of the paper for MNIST; none where iterates are queried."""
    G, L, *_ = lookup("losses", "softmax").constants(Scaling().max_squared_norm(784), 0.05, 10)
    assert CORRECTED_MOMENTUM.contribution_bound(G, L, 0.1, AVERAGED_ITERATE) == pytest.approx(
        118.1, abs=0.05
    )
    assert CORRECTED_MOMENTUM.contribution_bound(G, L, 0.1, LAST_ITERATE) == math.inf
    assert {
        GRADIENT_ESTIMATOR.contribution_bound(G, L, 0.1, query_point)
        for query_point in (AVERAGED_ITERATE, LAST_ITERATE)
    } == {G}
