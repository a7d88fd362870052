"""The accountant against the same formulas in 60 digits."""

import math
import random
import warnings

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import PLDAccountant
from helpers import reference as ref
from helpers.property_tests import given
from helpers.slow import slow
from hypothesis import example, strategies as st

from mu2mpi.privacy.accounting import gaussian_dp as accountant

rhos = st.floats(math.log(1e-3), math.log(50)).map(math.exp)
deltas = st.floats(math.log(1e-15), math.log(0.5)).map(math.exp)


def test_gaussian_delta_is_the_tail_of_the_privacy_loss():
    # delta = E max(0, 1 - exp(epsilon - loss)), the privacy loss being N(rho^2/2, rho^2).
    epsilon, rho = 0.7, 1.3

    def tail(loss):
        return (1 - mpmath.exp(epsilon - loss)) * mpmath.npdf(loss, rho**2 / 2, rho)

    assert float(mpmath.quad(tail, [epsilon, 3, 6, 12, 30])) == pytest.approx(
        float(ref.gaussian_delta(epsilon, rho)), rel=1e-12
    )


@given(rhos, deltas)
def test_accountant_epsilon_paper(rho, delta):
    truth = ref.epsilon_paper(rho, delta)
    assert accountant.epsilon_paper(rho, delta) == pytest.approx(float(truth), rel=1e-14)
    assert ref.gaussian_delta(truth, rho) < delta


# ------------------------------------------------------------------ the whole range, both ways

wide_epsilons = st.floats(math.log(1e-6), math.log(1e4)).map(math.exp)
wide_deltas = st.floats(math.log(1e-300), math.log(0.9)).map(math.exp)


@given(wide_epsilons, wide_deltas, max_examples=300)
@example(1e-6, 1e-300)
@example(1e4, 1e-300)
@example(1e-6, 0.9)
@example(1e4, 0.9)
@example(2.0, 1e-5)
def test_largest_rho_is_private_and_not_a_part_in_a_billion_larger(epsilon, delta):
    rho = accountant.rho_exact(epsilon, delta)
    assert ref.gaussian_delta(epsilon, rho) <= delta < ref.gaussian_delta(epsilon, rho * (1 + 1e-9))
    assert accountant.rho_paper(epsilon, delta) <= rho
    assert accountant.epsilon_exact(rho, delta) <= epsilon


@given(wide_epsilons, wide_deltas, max_examples=300)
@example(1e-6, 1e-300)
@example(1e4, 1e-300)
def test_smallest_epsilon_is_private_and_not_a_part_in_a_billion_smaller(epsilon, delta):
    rho = accountant.rho_exact(epsilon, delta)
    found = accountant.epsilon_exact(rho, delta)
    assert ref.gaussian_delta(found, rho) <= delta
    # Of an epsilon far below rho, hardly anything is left in the difference of two deltas.
    assert ref.gaussian_delta(found * (1 - 1e-9) - 1e-13 * rho, rho) > delta
    assert found <= accountant.epsilon_paper(rho, delta)


@given(wide_epsilons, wide_deltas, max_examples=300)
def test_delta_is_exact_in_log_space(epsilon, delta):
    rho = accountant.rho_exact(epsilon, delta)
    truth = ref.gaussian_delta(epsilon, rho)
    found = accountant.gaussian_delta(epsilon, rho)
    assert truth <= found <= truth * (1 + 1e-10)


@pytest.mark.parametrize("pairs", [1000, *slow(10_000)])
def test_pairs_there_and_back_and_monotone(pairs):
    draw = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(pairs):
            rho, delta = math.exp(draw.uniform(-12, 5)), math.exp(draw.uniform(math.log(1e-300), -0.1))
            epsilon = accountant.epsilon_exact(rho, delta)
            assert 0 <= epsilon <= accountant.epsilon_paper(rho, delta)
            more = 1 + 1e-6
            assert accountant.epsilon_exact(rho * more, delta) >= epsilon
            assert accountant.epsilon_exact(rho, delta * more) <= epsilon
            assert accountant.gaussian_delta(epsilon * more, rho) <= accountant.gaussian_delta(epsilon, rho)
            if epsilon == 0:
                assert accountant.gaussian_delta(0.0, rho) <= delta
                continue
            back = accountant.rho_exact(epsilon, delta)
            assert back == pytest.approx(rho, rel=1e-9)
            assert accountant.rho_exact(epsilon * more, delta) >= back
            assert accountant.gaussian_delta(epsilon, rho) == pytest.approx(delta, rel=1e-9)


@given(wide_epsilons, wide_deltas)
def test_the_lemma_there_and_back(epsilon, delta):
    rho = accountant.rho_paper(epsilon, delta)
    assert accountant.epsilon_paper(rho, delta) <= epsilon * (1 + 1e-14)
    assert accountant.epsilon_paper(rho, delta) == pytest.approx(epsilon, rel=1e-12)
    assert accountant.gaussian_delta(epsilon, rho) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("sigmas", [(3.0,), (2.0, 2.0, 2.0), (1.5, 4.0, 2.5, 9.0)])
def test_composition_against_dp_accounting(sigmas):
    """Privacy loss distributions, composed by convolution, know nothing of our formula."""
    theirs = PLDAccountant(value_discretization_interval=1e-4)
    for sigma in sigmas:
        theirs.compose(dp_accounting.GaussianDpEvent(sigma))
    rho = accountant.compose_rho(accountant.GaussianEvent(1.0, sigma) for sigma in sigmas)
    for delta in (1e-3, 1e-5, 1e-8):
        assert accountant.epsilon_exact(rho, delta) == pytest.approx(theirs.get_epsilon(delta), abs=1e-3)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (accountant.rho_exact, (math.inf, 1e-5), math.inf),
        (accountant.rho_paper, (math.inf, 1e-5), math.inf),
        (accountant.rho_exact, (1e300, 1e-5), math.sqrt(2e300)),
        (accountant.epsilon_exact, (1e100, 1e-5), 5e199),
        (accountant.epsilon_exact, (5e-324, 1e-5), 0.0),
        (accountant.gaussian_delta, (0.0, 5e-324), 5e-324),
        (accountant.gaussian_delta, (0.0, math.inf), 1.0),
        (accountant.gaussian_delta, (math.inf, 1.0), 0.0),
        (accountant.gaussian_delta, (1.0, 0.0), 0.0),
        (accountant.gaussian_delta, (1e300, 1.0), 5e-324),
        (accountant.gaussian_delta, (1e-300, 1e-320), 5e-324),
        (accountant.gaussian_delta, (1e-2, 1e250), 1.0),
        (accountant.rho_exact, (0.0, 1e-5), 2.5066282746e-5),
    ],
)
def test_ends_of_the_range(function, arguments, expected):
    assert function(*arguments) == pytest.approx(expected, rel=1e-6)
