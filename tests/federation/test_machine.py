"""What one replaced sample can change: at most 2 S, clipped and rounded, even when the data cheat."""

import math

import numpy as np
import pytest
from helpers.message_sums import norm, sums
from helpers.plain_losses import PLAIN, random_labels
from helpers.property_tests import given
from helpers.simulations import SWITCHED, make_schedule
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.core.registry import lookup
from mu2mpi.federation.estimators import CORRECTED_MOMENTUM, GRADIENT_ESTIMATOR
from mu2mpi.losses.model.linear import SAMPLES_PER_BLOCK
from mu2mpi.privacy.noise.grid import reduce_clip_norm

SOFTMAX = lookup("losses", "softmax")


def random_run(rng, cheat, rounds, machines, classes, dimension):
    """Return features and labels by round and machine, and query points, as far off as `cheat` says.

    Query points far outside of K, and far from each other, break the assumptions of the lemma, too.
    """
    samples = random_samples(rng, machines * rounds, dimension, classes, np.float64)
    features = cheat * samples.features.reshape(rounds, machines, dimension)
    queries = cheat * rng.standard_normal((rounds + 1, classes, dimension + 1))
    return features, samples.labels.reshape(rounds, machines), queries


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
    constants = make_schedule(
        method, server="untrusted", machines=machines, rounds=rounds, classes=classes, features=dimension + 1,
        diameter=2.0, rho=4.0, clip_norm=clip_norm,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    features, labels, queries = random_run(rng, cheat, rounds, machines, classes, dimension)
    t, i = int(rng.integers(rounds)), int(rng.integers(machines))
    other_features, other_labels = features.copy(), labels.copy()
    other_features[t, i] = -features[t, i]
    other_labels[t, i] = (labels[t, i] + 1) % classes
    before, _ = sums(constants, features, labels, queries)
    after, _ = sums(constants, other_features, other_labels, queries)
    for tau in range(rounds):
        change = norm(after[tau] - before[tau], constants.mechanism.grid_spacing)
        assert change <= 2 * constants.mechanism.clip_norm * (1 + 1e-14)
        assert tau == t or (tau > t and constants.estimator.is_cumulative) or change == 0
    assert constants.mechanism.sigma == pytest.approx(
        2
        * constants.mechanism.clip_norm
        * math.sqrt(rounds if constants.estimator.is_cumulative else 1)
        / 4.0
    )


@given(
    st.integers(1, 3), st.integers(1, 12), st.integers(2, 4), st.integers(1, 30), st.floats(0.1, 1e4),
    st.integers(0, 2**31), max_examples=25,
)  # fmt: skip
def test_a_zeroed_sample_moves_no_sum_by_more_than_the_bound(
    machines, rounds, classes, dimension, cheat, seed
):
    """A sample that is not finite contributes zero, and leaves the terms of all others as they are."""
    constants = make_schedule(
        "mu2-sgd", server="untrusted", machines=machines, rounds=rounds, classes=classes,
        features=dimension + 1, diameter=2.0, rho=4.0, clip_norm=0.5,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    features, labels, queries = random_run(rng, cheat, rounds, machines, classes, dimension)
    t, i = int(rng.integers(rounds)), int(rng.integers(machines))
    zeroed = features.copy()
    zeroed[t, i] = np.nan
    before, _ = sums(constants, features, labels, queries)
    after, _ = sums(constants, zeroed, labels, queries)
    changes = [norm(a - b, constants.mechanism.grid_spacing) for a, b in zip(after, before, strict=True)]
    assert changes[:t] == [0.0] * t
    assert max(changes) <= constants.mechanism.clip_norm * (1 + 1e-14)
    alone = zeroed.copy()
    alone[:] = np.nan
    nothing, _ = sums(constants, alone, labels, queries)
    assert not np.any(nothing)


def test_opposite_clipped_increments_nearly_reach_the_bound():
    """The bound above is no loose one: the test would notice a sensitivity of 2.2 S."""
    constants = make_schedule(
        server="untrusted", machines=1, rounds=1, classes=2, features=2, diameter=0.1, rho=1.0, clip_norm=0.1
    )
    x = np.zeros((2, 2, 2))
    ends = []
    for label in (0, 1):
        found, _ = sums(constants, np.ones((1, 1, 1)), np.array([[label]], np.int32), x)
        ends.append(found[0])
    assert norm(ends[0] - ends[1], constants.mechanism.grid_spacing) == pytest.approx(0.2, rel=6e-3)
    # And half of it for a sample that contributes nothing in one data set
    assert norm(ends[0], constants.mechanism.grid_spacing) == pytest.approx(0.1, rel=6e-3)


numbers = st.floats(width=64) | st.sampled_from([0.0, 5e-324, 1e-300, 1e-162, 1e-30, 1.0, 1e30, 1e160, 1e308])


@pytest.mark.slow
@given(
    st.data(), st.sampled_from([np.float32, np.float64]), st.sampled_from([1, SAMPLES_PER_BLOCK]),
    st.integers(1, 5),
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
    grid_spacing = 2.0 ** (math.floor(math.log2(clip_norm)) - bits)
    bound = reduce_clip_norm(clip_norm, grid_spacing, x.size)
    add = (GRADIENT_ESTIMATOR if plain else CORRECTED_MOMENTUM).compile_kernel(SOFTMAX, 3)

    def sent(first, end):
        q = np.zeros(x.shape, np.int64)
        fresh = features, labels, scales, bias, first, end
        add(q, x, x_previous, *fresh, t, bound, grid_spacing, batch)
        return q

    alone = [sent(i, i + 1) for i in range(n)]
    for q in alone:
        assert norm(q, grid_spacing) <= clip_norm
    np.testing.assert_array_equal(sent(0, n), sum(alone))


@pytest.mark.parametrize("batch", [1, SAMPLES_PER_BLOCK])
def test_an_increment_whose_norm_is_unknown_is_none_and_counted_as_clipped(batch):
    """A logit of the second sample overflows, so its gradient is no number."""
    x, features = np.array([[1e308, 0, 0], [0, 0, 0]]), np.array([[0.5, 0.5], [100.0, 100.0]])
    found = {}
    for end in (1, 2):
        q = np.zeros((2, 3), np.int64)
        fresh = features, np.ones(2, np.int32), np.ones(2), 1.0, 0, end
        largest, clipped = GRADIENT_ESTIMATOR.compile_kernel(SOFTMAX, 3)(
            q, x, x, *fresh, 1, 1.0, 2.0**-30, batch
        )
        found[end] = q
        assert clipped == end
        assert largest == pytest.approx(3.0)
    np.testing.assert_array_equal(found[1], found[2])


LOSSES = pytest.mark.parametrize("loss", list(PLAIN))
seeds = st.integers(0, 2**31)
norm_bounds = st.sampled_from([None, 0.3, 1.5])


def make_constants(loss, method, norm_bound, dimension, rounds=6, **settings):
    return make_schedule(
        method, server="untrusted", machines=2, rounds=rounds, classes=2, features=dimension + 1, loss=loss,
        norm_bound=norm_bound, **{"diameter": 1.0, "rho": 4.0, **settings},
    )  # fmt: skip


def surface(rng, constants):
    """Return query points from one end of the ball to the other, as far as rows are alike."""
    points = rng.standard_normal(
        (constants.rounds + 1, constants.problem.model_rows, constants.problem.features)
    )
    points[1::2] = -points[::2][: len(points[1::2])]
    return points * (constants.problem.radius / np.linalg.norm(points, axis=(1, 2), keepdims=True))


def at_the_edge(rng, constants, dimension):
    """Return features at the corners of the cube, which `norm_bound` makes shorter, and labels."""
    features = rng.choice([-1.0, 1.0], (constants.rounds, 2, dimension))
    return features, random_labels(rng, constants.problem.loss, 2 * constants.rounds, 2).reshape(-1, 2)


@LOSSES
@pytest.mark.parametrize("method", ["mu2-sgd", "parallel-sgd"])
@given(
    st.integers(1, 12), norm_bounds, st.sampled_from([None, 0.2]), st.sampled_from([1.0, 1e3, 1e150]), seeds,
    max_examples=25,
)  # fmt: skip
def test_no_message_moves_by_more_than_twice_the_bound(
    loss, method, dimension, norm_bound, clip_norm, cheat, seed
):
    """Also where features, numbers and query points break what is declared of them."""
    constants = make_constants(loss, method, norm_bound, dimension, clip_norm=clip_norm)
    rng = np.random.default_rng(seed)
    features, labels = at_the_edge(rng, constants, dimension)
    queries = cheat * surface(rng, constants)
    t, i = int(rng.integers(constants.rounds)), int(rng.integers(2))
    others, other_labels = features.copy(), labels.copy()
    others[t, i] = cheat * rng.choice([-1.0, 0.0, 1.0], dimension)
    if constants.problem.loss.label_kind == "classes":
        other_labels[t, i] = 1 - labels[t, i]
    else:
        other_labels[t, i] = -cheat if labels[t, i] > 0 else cheat
    before, _ = sums(constants, features, labels, queries)
    after, _ = sums(constants, others, other_labels, queries)
    for tau in range(constants.rounds):
        change = norm(after[tau] - before[tau], constants.mechanism.grid_spacing)
        assert change <= 2 * constants.mechanism.clip_norm * (1 + 1e-14)
        assert tau == t or (tau > t and constants.estimator.is_cumulative) or change == 0


@LOSSES
@pytest.mark.parametrize("method", ["mu2-sgd", "parallel-sgd"])
@given(st.integers(1, 12), norm_bounds, seeds, max_examples=25)
def test_nothing_is_longer_than_its_bound_where_the_declarations_hold(
    loss, method, dimension, norm_bound, seed
):
    """Of gradients on the surface of the ball, and of increments on paths as long as the algorithm's."""
    constants, rng = make_constants(loss, method, norm_bound, dimension), np.random.default_rng(seed)
    features, labels = at_the_edge(rng, constants, dimension)
    queries = surface(rng, constants)
    if constants.estimator.is_cumulative:
        for t in range(2, len(queries)):
            # alpha_{t-1} ||x_t - x_{t-1}|| <= 2 D, and within the ball.
            step = min(
                1.0, 4 * constants.problem.radius / (t - 1) / np.linalg.norm(queries[t] - queries[t - 1])
            )
            queries[t] = queries[t - 1] + step * (queries[t] - queries[t - 1])
    _, machines = sums(constants, features, labels, queries)
    # Clipping leaves room for rounding, which gradients as long as G do not.
    assert (machines.clipped_count > 0) == (machines.largest_squared_norm > constants.reduced_clip_norm**2)
    assert 0 < machines.largest_squared_norm <= constants.S**2 * (1 + 1e-12)


@LOSSES
def test_two_samples_come_near_to_the_bound(loss):
    """Opposite gradients are 2 G apart where the loss allows it, and 2 C where they are clipped."""
    for clip_norm in (None, 0.05):
        constants = make_constants(
            loss, "parallel-sgd", None, 3, rounds=1, diameter=40.0, clip_norm=clip_norm
        )
        far = (
            np.full((constants.problem.model_rows, 4), 1.0)
            * np.array([[-1.0], [1.0]])[-constants.problem.model_rows :]
        )
        far *= constants.problem.radius / np.linalg.norm(far)
        ends = []
        for sign in (1.0, -1.0):
            # A model that is certain, and wrong; a poisson loss is as steep at one end alone.
            labels = (
                np.array([[0, 0]], np.int32)
                if constants.problem.loss.label_kind == "classes"
                else -np.ones((1, 2))
            )
            features = np.ones((1, 2, 3))
            if sign < 0:
                labels = 1 - labels if constants.problem.loss.label_kind == "classes" else -labels
            queries = np.array([far * 0, sign * far])
            found, _ = sums(constants, features, labels, queries)
            ends.append(found[0] / 2)
        moved = np.linalg.norm(ends[0] - ends[1]) * constants.mechanism.grid_spacing
        share = moved / (2 * constants.mechanism.clip_norm)
        assert share > (0.49 if loss == "poisson" and clip_norm is None else 0.98)
        assert share <= 1
