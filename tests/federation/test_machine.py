"""What one replaced sample can change: at most 2 S, clipped and rounded, even when the data cheat."""

import math

import numpy as np
import pytest
from helpers.message_sums import norm, sums
from helpers.property_tests import given
from helpers.simulations import SWITCHED, make_schedule
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.core.registry import find
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, GRADIENT
from mu2mpi.losses.model.linear import BATCH
from mu2mpi.privacy.noise.grid import clipping_bound

SOFTMAX = find("losses", "softmax")


@pytest.mark.parametrize("method", SWITCHED)
@pytest.mark.parametrize("cheat", [1.0, 50.0, 1e6])
@given(
    st.integers(1, 3), st.integers(2, 8), st.integers(2, 4), st.integers(1, 30), st.sampled_from([None, 0.5]),
    st.integers(0, 2**31), max_examples=15,
)  # fmt: skip
def test_replacing_one_sample_moves_no_sum_by_more_than_twice_the_bound(
    cheat, method, machines, rounds, classes, dimension, clip_norm, seed
):
    """And with plain gradients, none but that of its own round."""
    if method == "storm":
        clip_norm = 0.5
    schedule = make_schedule(
        method, server="untrusted", machines=machines, rounds=rounds, classes=classes, features=dimension + 1,
        diameter=2.0, rho=4.0, clip_norm=clip_norm,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, machines * rounds, dimension, classes, np.float64)
    features = cheat * samples.features.reshape(rounds, machines, dimension)
    labels = samples.labels.reshape(rounds, machines)
    # Query points far outside of K, and far from each other, break the assumptions of the lemma, too.
    queries = cheat * rng.standard_normal((rounds + 1, classes, dimension + 1))
    t, i = int(rng.integers(rounds)), int(rng.integers(machines))
    other_features, other_labels = features.copy(), labels.copy()
    other_features[t, i] = -features[t, i]
    other_labels[t, i] = (labels[t, i] + 1) % classes
    before, _ = sums(schedule, features, labels, queries)
    after, _ = sums(schedule, other_features, other_labels, queries)
    for tau in range(rounds):
        change = norm(after[tau] - before[tau], schedule.mechanism.resolution)
        assert change <= 2 * schedule.mechanism.clip_norm * (1 + 1e-14)
        assert tau == t or (tau > t and schedule.estimator.lasts) or change == 0
    assert schedule.mechanism.sigma == pytest.approx(
        2 * schedule.mechanism.clip_norm * math.sqrt(rounds if schedule.estimator.lasts else 1) / 4.0
    )


def test_opposite_clipped_increments_nearly_reach_the_bound():
    """The bound above is no loose one: the test would notice a sensitivity of 2.2 S."""
    schedule = make_schedule(
        server="untrusted", machines=1, rounds=1, classes=2, features=2, diameter=0.1, rho=1.0, clip_norm=0.1
    )
    x = np.zeros((2, 2, 2))
    ends = []
    for label in (0, 1):
        found, _ = sums(schedule, np.ones((1, 1, 1)), np.array([[label]], np.int32), x)
        ends.append(found[0])
    assert norm(ends[0] - ends[1], schedule.mechanism.resolution) == pytest.approx(0.2, rel=6e-3)


numbers = st.floats(width=64) | st.sampled_from([0.0, 5e-324, 1e-300, 1e-162, 1e-30, 1.0, 1e30, 1e160, 1e308])


@pytest.mark.slow
@given(
    st.data(), st.sampled_from([np.float32, np.float64]), st.sampled_from([1, BATCH]), st.integers(1, 5),
    st.integers(2, 3), st.integers(1, 4), st.sampled_from([1, 2, 2**32 - 1]), st.booleans(),
    st.sampled_from([1e-100, 1e-3, 1.0, 1e100]), st.integers(12, 49), max_examples=300,
)  # fmt: skip
def test_whatever_the_floats_nothing_that_is_sent_is_longer_than_the_bound(
    data, dtype, batch, n, classes, dimension, t, plain, clip_norm, bits
):
    """Features, factors and query points of any size, infinite or no numbers: C holds in units of the grid.

    And the others of a batch are what they are alone.
    """

    def some(*shape):
        flat = data.draw(st.lists(numbers, min_size=math.prod(shape), max_size=math.prod(shape)))
        with np.errstate(over="ignore"):
            return np.array(flat).reshape(shape)

    with np.errstate(over="ignore"):
        features = some(n, dimension).astype(dtype)
    x, x_previous = some(classes, dimension + 1), some(classes, dimension + 1)
    scales, labels = some(n), np.zeros(n, np.int32)
    bias = data.draw(st.sampled_from([0.1, 1.0]) | numbers)
    resolution = 2.0 ** (math.floor(math.log2(clip_norm)) - bits)
    bound = clipping_bound(clip_norm, resolution, x.size)
    add = (GRADIENT if plain else CORRECTED_MOMENTUM).kernel(SOFTMAX, 3)

    def sent(first, end):
        q = np.zeros(x.shape, np.int64)
        fresh = features, labels, scales, bias, first, end
        add(q, x, x_previous, *fresh, t, bound, resolution, batch)
        return q

    alone = [sent(i, i + 1) for i in range(n)]
    for q in alone:
        assert norm(q, resolution) <= clip_norm
    np.testing.assert_array_equal(sent(0, n), sum(alone))


@pytest.mark.parametrize("batch", [1, BATCH])
def test_an_increment_whose_norm_is_unknown_is_none_and_counted_as_clipped(batch):
    """A logit of the second sample overflows, so its gradient is no number."""
    x, features = np.array([[1e308, 0, 0], [0, 0, 0]]), np.array([[0.5, 0.5], [100.0, 100.0]])
    found = {}
    for end in (1, 2):
        q = np.zeros((2, 3), np.int64)
        fresh = features, np.ones(2, np.int32), np.ones(2), 1.0, 0, end
        largest, clipped = GRADIENT.kernel(SOFTMAX, 3)(q, x, x, *fresh, 1, 1.0, 2.0**-30, batch)
        found[end] = q
        assert clipped == end
        assert largest == pytest.approx(3.0)
    np.testing.assert_array_equal(found[1], found[2])
