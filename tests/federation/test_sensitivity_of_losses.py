"""What one replaced sample can change with each loss: rows that are too long, labels and models far out."""

import numpy as np
import pytest
from helpers.message_sums import norm, sums
from helpers.plain_losses import PLAIN, random_labels
from helpers.property_tests import given
from helpers.simulations import make_schedule
from hypothesis import strategies as st

LOSSES = pytest.mark.parametrize("loss", list(PLAIN))
seeds = st.integers(0, 2**31)
norm_bounds = st.sampled_from([None, 0.3, 1.5])


def schedule_of(loss, method, norm_bound, dimension, rounds=6, **settings):
    return make_schedule(
        method, server="untrusted", machines=2, rounds=rounds, classes=2, features=dimension + 1, loss=loss,
        norm_bound=norm_bound, **{"diameter": 1.0, "rho": 4.0, **settings},
    )  # fmt: skip


def surface(rng, constants):
    """Return query points from one end of the ball to the other, as far as rows are alike."""
    points = rng.standard_normal((constants.rounds + 1, constants.task.rows, constants.task.features))
    points[1::2] = -points[::2][: len(points[1::2])]
    return points * (constants.task.radius / np.linalg.norm(points, axis=(1, 2), keepdims=True))


def at_the_edge(rng, constants, dimension):
    """Return features at the corners of the cube, which `norm_bound` makes shorter, and labels."""
    features = rng.choice([-1.0, 1.0], (constants.rounds, 2, dimension))
    return features, random_labels(rng, constants.task.problem, 2 * constants.rounds, 2).reshape(-1, 2)


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
    constants = schedule_of(loss, method, norm_bound, dimension, clip_norm=clip_norm)
    rng = np.random.default_rng(seed)
    features, labels = at_the_edge(rng, constants, dimension)
    queries = cheat * surface(rng, constants)
    t, i = int(rng.integers(constants.rounds)), int(rng.integers(2))
    others, other_labels = features.copy(), labels.copy()
    others[t, i] = cheat * rng.choice([-1.0, 0.0, 1.0], dimension)
    if constants.task.problem.labels == "classes":
        other_labels[t, i] = 1 - labels[t, i]
    else:
        other_labels[t, i] = -cheat if labels[t, i] > 0 else cheat
    before, _ = sums(constants, features, labels, queries)
    after, _ = sums(constants, others, other_labels, queries)
    for tau in range(constants.rounds):
        change = norm(after[tau] - before[tau], constants.mechanism.resolution)
        assert change <= 2 * constants.mechanism.clip_norm * (1 + 1e-14)
        assert tau == t or (tau > t and constants.estimator.lasts) or change == 0


@LOSSES
@pytest.mark.parametrize("method", ["mu2-sgd", "parallel-sgd"])
@given(st.integers(1, 12), norm_bounds, seeds, max_examples=25)
def test_nothing_is_longer_than_its_bound_where_the_declarations_hold(
    loss, method, dimension, norm_bound, seed
):
    """Of gradients on the surface of the ball, and of increments on paths as long as the algorithm's."""
    constants, rng = schedule_of(loss, method, norm_bound, dimension), np.random.default_rng(seed)
    features, labels = at_the_edge(rng, constants, dimension)
    queries = surface(rng, constants)
    if constants.estimator.lasts:
        for t in range(2, len(queries)):
            # alpha_{t-1} ||x_t - x_{t-1}|| <= 2 D, and within the ball.
            step = min(1.0, 4 * constants.task.radius / (t - 1) / np.linalg.norm(queries[t] - queries[t - 1]))
            queries[t] = queries[t - 1] + step * (queries[t] - queries[t - 1])
    _, machines = sums(constants, features, labels, queries)
    # Clipping leaves room for rounding, which gradients as long as G do not.
    assert (machines.clipped > 0) == (machines.largest_squared_norm > constants.clip_bound**2)
    assert 0 < machines.largest_squared_norm <= constants.S**2 * (1 + 1e-12)


@LOSSES
def test_two_samples_come_near_to_the_bound(loss):
    """Opposite gradients are 2 G apart where the loss allows it, and 2 C where they are clipped."""
    for clip_norm in (None, 0.05):
        constants = schedule_of(loss, "parallel-sgd", None, 3, rounds=1, diameter=40.0, clip_norm=clip_norm)
        far = np.full((constants.task.rows, 4), 1.0) * np.array([[-1.0], [1.0]])[-constants.task.rows :]
        far *= constants.task.radius / np.linalg.norm(far)
        ends = []
        for sign in (1.0, -1.0):
            # A model that is certain, and wrong; a poisson loss is as steep at one end alone.
            labels = (
                np.array([[0, 0]], np.int32)
                if constants.task.problem.labels == "classes"
                else -np.ones((1, 2))
            )
            features = np.ones((1, 2, 3))
            if sign < 0:
                labels = 1 - labels if constants.task.problem.labels == "classes" else -labels
            queries = np.array([far * 0, sign * far])
            found, _ = sums(constants, features, labels, queries)
            ends.append(found[0] / 2)
        moved = np.linalg.norm(ends[0] - ends[1]) * constants.mechanism.resolution
        share = moved / (2 * constants.mechanism.clip_norm)
        assert share > (0.49 if loss == "poisson" and clip_norm is None else 0.98)
        assert share <= 1
