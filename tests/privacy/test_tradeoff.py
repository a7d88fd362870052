"""The trade-off curve against exact rates of tests: Gaussian, Poisson batches and randomised response."""

import math
from functools import partial
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact, rho_exact
from mu2mpi.privacy.accounting.guarantee import (
    ComposedGuarantee,
    GaussianGuarantee,
    GroupGuarantee,
    PrivacyCurveGuarantee,
)
from mu2mpi.privacy.accounting.tradeoff import MAX_SLACK, TRADEOFF_CLAIMS, TradeoffCurve
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.noise.sampler_error import SamplerError

FPRS = np.geomspace(1e-3, 0.9, 60)
NORMAL = NormalDist()


def logarithmic(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def gaussian_tpr(fpr, rho):
    """Return Phi(Phi^-1(fpr) + rho) to many digits."""
    with mpmath.workdps(40):
        z = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(fpr))
        return mpmath.erfc(-(z + mpmath.mpf(rho)) / mpmath.sqrt(2)) / 2


def curve_of_gaussian(rho):
    """Return the guarantee of a Gaussian mechanism, known by its epsilons alone."""
    return PrivacyCurveGuarantee(partial(epsilon_exact, rho))


@given(logarithmic(1e-3, 20), logarithmic(1e-12, 0.5))
def test_a_gaussian_mechanism_has_its_rho_and_the_exact_rates(rho, fpr):
    curve = TradeoffCurve(GaussianGuarantee(rho), 1e-6)
    assert curve.mu == rho
    assert gaussian_tpr(fpr, rho) <= curve.tpr(fpr) <= gaussian_tpr(fpr, rho) * (1 + 1e-9)
    claims = curve.claims()
    assert tuple(claims) == TRADEOFF_CLAIMS
    assert claims["tpr_at_fpr_0.01"] == curve.tpr(0.01)
    assert claims["attack_accuracy"] == pytest.approx(NORMAL.cdf(rho / 2), rel=1e-9)
    assert claims["attack_accuracy"] >= NORMAL.cdf(rho / 2)


@given(logarithmic(0.03, 6), logarithmic(1e-12, 1e-3))
def test_epsilons_alone_bound_a_gaussian_mechanism_within_a_percent(rho, delta):
    curve = TradeoffCurve(curve_of_gaussian(rho), delta)
    assert rho <= curve.mu <= 1.011 * rho
    for fpr in (1e-3, 1e-2, 1e-1, 0.5):
        exact = NORMAL.cdf(NORMAL.inv_cdf(fpr) + rho)
        assert exact <= curve.tpr(fpr) * (1 + 1e-12)
        # Below the smallest delta of the grid, a rate cannot be told from it.
        assert curve.tpr(fpr) <= 1.01 * exact + delta
    accuracy = curve.claims()["attack_accuracy"]
    assert NORMAL.cdf(rho / 2) * (1 - 1e-12) <= accuracy <= NORMAL.cdf(rho / 2) + 1e-3


def exact_rates(densities, others):
    """Return the rates of the most powerful tests of two distributions, given by probabilities of cells."""
    order = np.argsort(-np.log(densities / others), axis=None)
    return np.cumsum(others.ravel()[order]), np.cumsum(densities.ravel()[order])


def assert_bounds(curve, fprs, tprs, delta, excess=0.01):
    """Check that no test does better than a curve and its mu, and that the curve is nearly reached."""
    true = np.interp(FPRS, fprs, tprs)
    stated = np.array([*map(curve.tpr, FPRS.tolist())])
    assert np.all(true <= stated * (1 + 1e-9))
    assert np.all(stated <= true * (1 + excess) + delta)
    assert np.all(true <= ndtr(norm.ppf(FPRS) + curve.mu) + delta)
    accuracy = curve.claims()["attack_accuracy"]
    assert 0 <= accuracy - (1 + np.max(tprs - fprs)) / 2 <= excess


@given(st.floats(1, 5), st.floats(0.01, 1), max_examples=8)
def test_one_poisson_batch(multiplier, probability):
    # The sample is +1 or -1, if it is in the batch: the likelihood ratio increases with the sum.
    thresholds = np.linspace(-40, 40, 40_001) * multiplier

    def tail(value):
        mixed = probability * norm.sf(thresholds, value, multiplier)
        return mixed + (1 - probability) * norm.sf(thresholds, 0, multiplier)

    losses = PoissonMechanism.compose_pld("replace", multiplier, 1, probability, 1)
    curve = TradeoffCurve(PrivacyCurveGuarantee(losses.get_epsilon_for_delta), 1e-6)
    assert_bounds(curve, tail(-1)[::-1], tail(1)[::-1], 1e-6)


@pytest.mark.parametrize(("multiplier", "probability"), [(0.8, 0.1), (1.5, 0.5), (3.0, 0.9)])
def test_two_poisson_batches(multiplier, probability):
    edges = np.linspace(-9 * multiplier, 9 * multiplier, 1501)

    def cells(value):
        shifted = probability * norm.cdf(edges, value, multiplier)
        masses = np.diff(shifted + (1 - probability) * norm.cdf(edges, 0, multiplier))
        return np.outer(masses, masses) + 1e-300

    losses = PoissonMechanism.compose_pld("replace", multiplier, 1, probability, 2)
    curve = TradeoffCurve(PrivacyCurveGuarantee(losses.get_epsilon_for_delta), 1e-6)
    assert_bounds(curve, *exact_rates(cells(1), cells(-1)), 1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_between_its_deltas_a_curve_is_no_better_than_known(epsilon):
    # Randomised response has a kinked curve: rho of single pairs (epsilon, delta) is too small.
    odds, total_variation = math.exp(epsilon), math.tanh(epsilon / 2)
    response = PrivacyCurveGuarantee(lambda delta: max(0.0, math.log(max(1.0, odds - delta * (odds + 1)))))
    curve = TradeoffCurve(response, 1e-5)
    least = 2 * NORMAL.inv_cdf(odds / (1 + odds))
    assert least <= curve.mu <= 1.01 * least
    ends = rho_exact(response.epsilon(1e-5), 1e-5), rho_exact(1e-9, total_variation)
    assert ends[0] < 0.9 * least
    between = np.linspace(1e-5, total_variation * 0.999, 9).tolist()
    assert max(rho_exact(response.epsilon(delta), delta) for delta in between) < least
    for fpr in FPRS.tolist():
        exact = min(odds * fpr, 1 - (1 - fpr) / odds)
        assert exact <= curve.tpr(fpr) * (1 + 1e-12)
        assert curve.tpr(fpr) <= 1.01 * exact + 1e-5


def test_two_pairs_allow_no_more_than_their_lines():
    # Between two known pairs, nothing but convexity is known: the curve of such a mechanism is reached.
    known = {1e-5: 2.0, 0.1: 1.0}

    def epsilon(delta):
        return min((e for d, e in known.items() if d <= delta * (1 + 1e-9)), default=math.inf)

    curve = TradeoffCurve(PrivacyCurveGuarantee(epsilon), 1e-5 / 0.98)
    for fpr in (1e-3, 0.05, 0.2, 0.5):
        lines = [(math.exp(e), d) for d, e in known.items()]
        exact = min(min(d + x * fpr, 1 - (1 - d - fpr) / x) for x, d in lines)
        assert exact <= curve.tpr(fpr)
        assert exact <= NORMAL.cdf(NORMAL.inv_cdf(fpr) + curve.mu) + 1e-5


@given(logarithmic(0.05, 16), logarithmic(1e-12, 1e-4), logarithmic(1e-8, 1e-3))
def test_no_sampler_within_its_error_does_better(rho, delta, deviation):
    error = SamplerError(deviation**2, deviation / 10)
    curve = TradeoffCurve(GaussianGuarantee(rho, error), delta)
    if math.isinf(curve.mu):
        assert curve.tpr(0.001) == 1 == curve.claims()["attack_accuracy"]
        return
    assert rho < curve.mu <= 1.01 * rho + 0.01
    # Noise that is twice as likely as not to be within this deviation, and favours the test everywhere
    factor = math.exp(deviation)
    for fpr in (1e-3, 0.01, 0.3, 0.7):
        true_fpr = min(factor * fpr, 1 - (1 - fpr) / factor)
        tpr, miss = gaussian_tpr(true_fpr, rho), gaussian_tpr(1 - true_fpr, -rho)
        assert curve.tpr(fpr) >= min(factor * tpr, 1 - miss / factor) - mpmath.mpf(1e-15)
        assert curve.tpr(fpr) <= gaussian_tpr(fpr, curve.mu) * (1 + 1e-9)


def test_errors_of_samplers_that_are_too_large_leave_no_claim():
    assert TradeoffCurve(GaussianGuarantee(1.0, SamplerError(0, 0, 1e-300))).mu < 1.0001
    for error in (SamplerError(1.0, 1.0), SamplerError(0, 0, 1e-10), SamplerError(math.inf, math.inf)):
        assert math.isinf(TradeoffCurve(GaussianGuarantee(1.0, error)).mu)
    # Events as improbable as those that tell such data sets apart are not covered.
    assert math.isinf(TradeoffCurve(GaussianGuarantee(40.0, SamplerError(1e-20, 1e-12))).mu)


def test_compositions_and_groups():
    one = curve_of_gaussian(1.0)
    assert TradeoffCurve(one + GaussianGuarantee(1.0)).mu >= math.sqrt(2)
    assert isinstance(one + one, ComposedGuarantee)
    exact, sampled = (
        GroupGuarantee(PrivacyCurveGuarantee(partial(epsilon_exact, 0.5), e), 2) for e in ERRORS
    )
    assert 1 <= TradeoffCurve(exact).mu < TradeoffCurve(sampled).mu < 2.5


ERRORS = SamplerError(), SamplerError(1e-8, 1e-6)


@pytest.mark.parametrize(
    "guarantee", [GaussianGuarantee(math.inf), PrivacyCurveGuarantee(lambda _: math.inf)]
)
def test_without_noise_every_test_may_succeed(guarantee):
    assert {*TradeoffCurve(guarantee).claims().values()} == {math.inf, 1.0}


@pytest.mark.parametrize("rho", [0.0, 1e-9, 1e-3, 700.0, 1e100])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 0.3, 0.999])
def test_extreme_guarantees(rho, delta):
    for guarantee in (GaussianGuarantee(rho), curve_of_gaussian(rho), GaussianGuarantee(rho, ERRORS[1])):
        curve = TradeoffCurve(guarantee, delta)
        assert curve.mu >= rho * (1 - 1e-12)
        assert all(fpr <= curve.tpr(fpr) <= 1 for fpr in (0.0, 1e-12, 0.5, 1.0))
        assert 0.5 <= curve.claims()["attack_accuracy"] <= 1
    # Tests gain at most the slack over guessing if nothing else is known.
    assert TradeoffCurve(curve_of_gaussian(0.0), delta).tpr(0.1) <= 0.1 + MAX_SLACK
