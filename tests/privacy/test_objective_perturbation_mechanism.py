"""Account of objective perturbation against exact densities of minimisers, dp-accounting and a theorem."""

import math
from functools import partial

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.simulations import make_schedule
from hypothesis import strategies as st
from scipy.special import ndtr

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.mechanisms.objective_perturbation_mechanism import (
    noise_multiplier,
    union_delta,
    union_epsilon,
)
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

constants_of = partial(
    make_schedule, "objective-perturbation", server="trusted", classes=2, features=3, delta=1e-5
)
EPSILONS = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0])


def sigmoid(m):
    return 1 / (1 + np.exp(-m))


# Derivative of losses of a margin m and a label y, its bound, that of the second derivative, and vertices.
LOSSES = {
    "logistic": (lambda m, y: sigmoid(m) - y, 1.0, 0.25, 1),
    "huber": (lambda m, y: np.clip(m - y, -1, 1), 1.0, 1.0, 2),
    # As logistic with gradients clipped to 1/2
    "clipped": (lambda m, y: np.clip(sigmoid(m) - y, -0.5, 0.5), 0.5, 0.25, 1),
}


def probabilities_on_a_line(loss, samples, sigma, regularization, edges):
    """Exact probabilities of the minimiser of sum of losses + lambda x^2 / 2 + b x to lie between edges.

    The minimiser decreases in b, which is Gaussian. Divergences between the probabilities of intervals are at
    most those between densities.
    """
    first, *_ = LOSSES[loss]
    b = -(regularization * edges + sum(z * first(z * edges, y) for z, y in samples))
    return -np.diff(ndtr(b / sigma))


def hockey_stick(p, q, epsilons):
    return np.array([np.sum(np.maximum(0, p - math.exp(e) * q)) for e in epsilons])


@given(
    st.sampled_from(sorted(LOSSES)), st.sampled_from(["replace", "zero-out"]),
    st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 1.0])), max_size=3),
    st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 1.0])), st.sampled_from([0.0, 1.0]),
    st.floats(0.5, 5), st.floats(0.3, 5), max_examples=40,
)  # fmt: skip
def test_exact_divergences_on_a_line_are_below_the_bound(loss, neighbours, others, sample, label, sigma, lam):
    """Samples of norm 1 attack, others are arbitrary; both directions, by probabilities of intervals."""
    _, C, curvature, vertices = LOSSES[loss]
    reach = (8 * sigma + 5) / lam
    edges = np.linspace(-reach, reach, 40_001)
    own = [(math.copysign(1, sample[0]), sample[1])]
    other = [] if neighbours == "zero-out" else [(sample[0], label)]
    p, q = (probabilities_on_a_line(loss, [*others, *d], sigma, lam, edges) for d in (own, other))
    assert np.sum(p) == pytest.approx(1, abs=1e-3)
    shift = math.log1p(curvature / lam)
    bounds = [union_delta(C / sigma, 1e-9, vertices, neighbours, e) for e in EPSILONS]
    for one, two in ((p, q), (q, p)):
        assert np.all(hockey_stick(one, two, EPSILONS + shift) <= np.array(bounds) + 1e-4)


def test_the_bound_is_attained_by_losses_that_are_linear_where_minimisers_are():
    """Huber losses far from their labels: one sign of the residual, so the bound of one vertex."""
    edges = np.linspace(-60, 60, 400_001)
    p, q = (probabilities_on_a_line("huber", d, 2.0, 1.0, edges) for d in ([(1.0, 1e3)], []))
    exact = hockey_stick(p, q, EPSILONS)
    assert exact == pytest.approx([union_delta(0.5, 1e-9, 1, "zero-out", e) for e in EPSILONS], rel=1e-3)
    p, q = (probabilities_on_a_line("huber", [(1.0, y)], 2.0, 1.0, edges) for y in (1e3, -1e3))
    bounds = np.array([union_delta(0.5, 1e-9, 1, "replace", e) for e in EPSILONS])
    exact = hockey_stick(p, q, EPSILONS)
    assert np.all(exact <= bounds * (1 + 1e-6))
    # The tails: replaced samples that are both at a vertex dominate.
    assert exact[-2:] == pytest.approx(bounds[-2:], rel=0.05)


@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize("seed", range(3))
def test_exact_divergences_of_softmax_with_three_classes(neighbours, seed):
    """One feature: a model of three weights, on a grid of 64^3 points."""
    rng = np.random.default_rng(seed)
    sigma, lam = 1.5, 1.0
    axis, cell = np.linspace(-11, 11, 64, retstep=True)
    x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    others = [(rng.uniform(-1, 1), int(rng.integers(3))) for _ in range(2)]
    own, other = [(1.0, 0)], [] if neighbours == "zero-out" else [(1.0, 1)]

    def density(samples):
        b, hessian = lam * x, np.broadcast_to(lam * np.eye(3), (*x.shape, 3)).copy()
        for z, y in samples:
            powers = np.exp(z * x - np.max(z * x, axis=-1, keepdims=True))
            s = powers / powers.sum(axis=-1, keepdims=True)
            b = b + z * (s - np.eye(3)[y])
            hessian += z * z * (s[..., :, None] * np.eye(3) - s[..., :, None] * s[..., None, :])
        normal = np.exp(-0.5 * np.sum((b / sigma) ** 2, axis=-1)) / (sigma * math.sqrt(2 * math.pi)) ** 3
        return normal * np.linalg.det(hessian)

    p, q = (density([*others, *d]) for d in (own, other))
    assert np.sum(p) * cell**3 == pytest.approx(1, abs=1e-3)
    shift = (2 / 3) / lam
    bounds = [union_delta(math.sqrt(2) / sigma, 1e-9, 2, neighbours, e) for e in EPSILONS]
    for one, two in ((p, q), (q, p)):
        assert np.all(hockey_stick(one, two, EPSILONS + shift) * cell**3 <= np.array(bounds) + 1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_a_linear_loss_has_the_account_of_dp_accounting(epsilon):
    """One vertex, no curvature: the Gaussian mechanism on the sum of gradients."""
    privacy_loss = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    gaussian = privacy_loss.GaussianPrivacyLoss(2.0, sensitivity=1.0)
    expected = gaussian.get_delta_for_epsilon(epsilon)
    assert union_delta(0.5, 1e-9, 1, "zero-out", epsilon) == pytest.approx(expected, rel=1e-6)


@given(
    st.floats(1e-3, 20), st.floats(-9, -1), st.integers(1, 99), st.sampled_from(["replace", "zero-out"]),
    max_examples=40,
)  # fmt: skip
def test_the_noise_multiplier_is_the_smallest(epsilon, log_delta, vertices, neighbours):
    delta = 10**log_delta
    multiplier = noise_multiplier(epsilon, delta, vertices, neighbours)
    assert union_epsilon(1 / multiplier, 1 / (16 * multiplier), vertices, neighbours, delta) <= epsilon * (
        1 + 1e-9
    )
    less = multiplier * (1 - 1e-6)
    assert union_epsilon(1 / less, 1 / (16 * less), vertices, neighbours, delta) > epsilon
    # At least the Gaussian mechanism's noise, and at most that of a union bound over everything
    k, count = UNIT_SENSITIVITIES[neighbours], (vertices + 1) ** 2
    assert epsilon_exact(k / multiplier, delta) <= epsilon * (1 + 1e-9)
    assert epsilon_exact(1.01 * k / multiplier, delta / count) >= epsilon * (1 - 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_classical_theorem_needs_more_noise(epsilon):
    """Kifer et al., 2012: lambda >= 2 L / epsilon, sigma = G sqrt(8 log(2 / delta) + 4 epsilon) / epsilon."""
    delta, L = 1e-5, 0.25
    sigma = math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    ours = L / (2 * L / epsilon) + union_epsilon(1 / sigma, 1 / (16 * sigma), 1, "zero-out", delta)
    assert ours < epsilon


@pytest.mark.parametrize("rho", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("loss", ["logistic", "softmax", "huber"])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_calibration_spends_the_budget_and_no_more(rho, loss, neighbours):
    constants = constants_of(
        machines=3, rounds=400, samples=300, rho=rho, loss=loss, neighbours=neighbours, diameter=100.0
    )
    mechanism, budget = constants.mechanism, constants.problem.budget
    epsilon = mechanism.guarantee().epsilon(budget.delta)
    assert 0.98 * budget.epsilon < epsilon <= budget.epsilon
    assert mechanism.guarantee(399).epsilon(budget.delta) == 0
    assert mechanism.curvature / mechanism.regularization <= 0.126 * budget.epsilon
