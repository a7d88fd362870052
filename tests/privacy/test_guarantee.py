"""How guarantees add up, and what each says of an epsilon."""

import math

import pytest
from helpers import reference as ref

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact, epsilon_paper
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, PrivacyCurveGuarantee
from mu2mpi.privacy.noise.sampler_error import SamplerError, sampler_error

DELTA = 1e-5
DRAWN = sampler_error(100, 50, 2.0**16, 2.0**16)


def curve(delta):
    return math.log(1 / delta)


def test_gaussian_mechanisms_add_up_to_one():
    both = GaussianGuarantee(3.0, DRAWN) + GaussianGuarantee(4.0, DRAWN)
    assert isinstance(both, GaussianGuarantee)
    assert both.rho == 5.0
    assert both.sampler_error.sum_squared_ratio_errors == 2 * DRAWN.sum_squared_ratio_errors
    assert both.sampler_error.max_ratio_error == DRAWN.max_ratio_error
    assert (both + GaussianGuarantee(math.inf)).epsilon(DELTA) == math.inf


def test_what_a_gaussian_mechanism_says():
    exact, drawn = GaussianGuarantee(2.0), GaussianGuarantee(2.0, DRAWN)
    assert exact.epsilon(DELTA) == exact.epsilon_exact_noise(DELTA) == epsilon_exact(2.0, DELTA)
    assert exact.epsilon(DELTA) == pytest.approx(float(ref.epsilon_exact(2.0, DELTA)))
    assert exact.epsilon_paper(DELTA) == epsilon_paper(2.0, DELTA)
    assert drawn.epsilon_exact_noise(DELTA) == exact.epsilon_exact_noise(DELTA)
    assert drawn.epsilon(DELTA) > exact.epsilon(DELTA)
    assert drawn.epsilon_paper(DELTA) > exact.epsilon_paper(DELTA)


def test_where_one_is_a_curve_epsilons_and_deltas_add_up():
    gaussian, approximate = GaussianGuarantee(1.0), PrivacyCurveGuarantee(curve)
    for several in (
        gaussian + approximate + gaussian,
        approximate + gaussian + gaussian,
        gaussian + (approximate + gaussian),
    ):
        assert several.rho is None
        expected = 2 * gaussian.epsilon(DELTA / 3) + curve(DELTA / 3)
        assert several.epsilon_exact_noise(DELTA) == several.epsilon(DELTA) == pytest.approx(expected)
    assert (approximate + PrivacyCurveGuarantee(curve, DRAWN)).epsilon(DELTA) > 2 * curve(DELTA / 2)
    assert SamplerError() == GaussianGuarantee(1.0).sampler_error == approximate.sampler_error
