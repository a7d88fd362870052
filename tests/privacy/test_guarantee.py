"""How guarantees add up, and what each says of an epsilon."""

import math

import pytest
from helpers import reference as ref

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact, epsilon_paper
from mu2mpi.privacy.accounting.guarantee import Approximate, Gaussian
from mu2mpi.privacy.noise.sampler_error import EXACT, deviation

DELTA = 1e-5
DRAWN = deviation(100, 50, 2.0**16, 2.0**16)


def curve(delta):
    return math.log(1 / delta)


def test_gaussian_mechanisms_add_up_to_one():
    both = Gaussian(3.0, DRAWN) + Gaussian(4.0, DRAWN)
    assert isinstance(both, Gaussian)
    assert both.rho == 5.0
    assert both.drawn.square == 2 * DRAWN.square
    assert both.drawn.largest == DRAWN.largest
    assert (both + Gaussian(math.inf)).epsilon(DELTA) == math.inf


def test_what_a_gaussian_mechanism_says():
    exact, drawn = Gaussian(2.0), Gaussian(2.0, DRAWN)
    assert exact.epsilon(DELTA) == exact.exact(DELTA) == epsilon_exact(2.0, DELTA)
    assert exact.epsilon(DELTA) == pytest.approx(float(ref.epsilon_exact(2.0, DELTA)))
    assert exact.lemma(DELTA) == epsilon_paper(2.0, DELTA)
    assert drawn.exact(DELTA) == exact.exact(DELTA)
    assert drawn.epsilon(DELTA) > exact.epsilon(DELTA)
    assert drawn.lemma(DELTA) > exact.lemma(DELTA)


def test_where_one_is_a_curve_epsilons_and_deltas_add_up():
    gaussian, approximate = Gaussian(1.0), Approximate(curve)
    for several in (
        gaussian + approximate + gaussian,
        approximate + gaussian + gaussian,
        gaussian + (approximate + gaussian),
    ):
        assert several.rho is None
        expected = 2 * gaussian.epsilon(DELTA / 3) + curve(DELTA / 3)
        assert several.exact(DELTA) == several.epsilon(DELTA) == pytest.approx(expected)
    assert (approximate + Approximate(curve, DRAWN)).epsilon(DELTA) > 2 * curve(DELTA / 2)
    assert EXACT == Gaussian(1.0).drawn == approximate.drawn
