"""The accountant against the same formulas in 60 digits."""

import math

import mpmath
import pytest
import reference as ref
from hypothesis import example
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.privacy import accountant

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


@pytest.mark.parametrize(
    ("rho", "delta"), [(1e-3, 1e-15), (0.3, 1e-5), (4.0, 1e-5), (50.0, 0.99), (1.0, 0.3)]
)
def test_exact_epsilon_of_the_reference_solves_its_equation(rho, delta):
    epsilon = ref.epsilon_exact(rho, delta)
    assert abs(ref.gaussian_delta(epsilon, rho) / delta - 1) < 1e-25


def test_large_delta_needs_no_epsilon():
    # Phi(1/2) - Phi(-1/2) = 0.38...
    assert ref.epsilon_exact(1.0, 0.4) == 0
    assert accountant.epsilon_exact(1.0, 0.4) == 0.0


@given(rhos, deltas, max_examples=50)
@example(1e-3, 1e-15)
@example(1e-3, 2e-9)
@example(50.0, 1e-15)
@example(50.0, 0.5)
@example(math.sqrt(50), 1e-5)
def test_accountant_epsilon_exact(rho, delta):
    truth = ref.epsilon_exact(rho, delta)
    found = accountant.epsilon_exact(rho, delta)
    # Where epsilon nearly vanishes, rounding errors are all of it: hence the absolute term.
    assert found >= truth
    assert abs(found - truth) <= 1e-6 * truth + 1e-14
    assert found <= accountant.epsilon_paper(rho, delta)
    assert ref.gaussian_delta(found, rho) <= delta


def test_accountant_agrees_with_the_lemma_only_from_below():
    # The lemma is a bound: were the two ever equal, one of them would be the wrong formula.
    for rho in (0.01, 1.0, 4.0, 16.0):
        assert 0.5 < accountant.epsilon_exact(rho, 1e-5) / accountant.epsilon_paper(rho, 1e-5) < 0.99


@given(rhos, deltas)
def test_accountant_epsilon_paper(rho, delta):
    truth = ref.epsilon_paper(rho, delta)
    assert accountant.epsilon_paper(rho, delta) == pytest.approx(float(truth), rel=1e-14)
    assert ref.gaussian_delta(truth, rho) < delta


@given(rhos, st.floats(0, 10))
@example(1e-3, 7.07 / 1.5)
@example(50.0, 0.0)
def test_accountant_gaussian_delta(rho, deviations):
    # Where the privacy loss passes its mean by so many standard deviations.
    epsilon = rho**2 / 2 + deviations * rho
    for value in (epsilon, epsilon / 3, 0.0):
        truth = float(ref.gaussian_delta(value, rho))
        assert accountant.gaussian_delta(value, rho) == pytest.approx(truth, rel=1e-9)


def test_accountant_without_noise():
    assert accountant.epsilon_exact(math.inf, 1e-5) == math.inf
    assert accountant.epsilon_paper(math.inf, 1e-5) == math.inf


@given(rhos, st.integers(1, 1000), st.data())
def test_spent_rho_is_the_privacy_of_the_first_releases(rho, T, data):
    """Theorem 5.1: rho_t = 2 S sqrt(sum of 1/sigma^2 over the rounds done)."""
    t = data.draw(st.integers(0, T))
    S = ref.increment_bound(5, 0.1)
    expected = 2 * S * math.sqrt(t / ref.noise_scale(S, T, rho) ** 2)
    assert accountant.rho_spent(rho, t, T) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("rho", "delta"),
    [
        (1e-3, 0.0003989422637788379),
        (1e-3, 0.00039894226373894404),
        (1.0, 0.38292492254802585),
        (1e-8, 1e-10),
        (1e-12, 1e-15),
    ],
)
def test_accountant_rounds_to_the_private_side(rho, delta):
    assert accountant.epsilon_exact(rho, delta) >= ref.epsilon_exact(rho, delta)


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (accountant.epsilon_exact, (0.0, 1e-5), 0.0),  # before the first round, rho_spent is 0
        (accountant.rho_spent, (math.inf, 0, 5), 0.0),  # no message has left yet
        (accountant.epsilon_paper, (4.0, 1e-310), 159.13452326487464),
        (accountant.epsilon_paper, (1e160, 1e-5), math.inf),
    ],
    ids=["no rho", "no rounds", "subnormal delta", "huge rho"],
)
def test_accountant_edge_cases(function, arguments, expected):
    assert function(*arguments) == pytest.approx(expected)
