"""Conversion between rho, epsilon and delta."""

import re

import pytest
from helpers import reference as ref

from mu2mpi.analysis.budget_conversion import convert_budget
from mu2mpi.core.errors import InputError


def flat(text):
    return " ".join(text.split())


def table(text):
    rows = [line.split() for line in text.splitlines() if re.match(r"\d\S*e?-?\d*  ", line)]
    return {float(delta): (float(exact), float(lemma)) for delta, exact, lemma in rows}


def test_rho_and_delta_give_epsilon_rounded_up():
    text = convert_budget({"rho": 4.0, "delta": 1e-5})
    said = flat(text)
    assert "epsilon = 24.39 and delta = 1e-05, exactly." in said
    for delta, (exact, lemma) in table(text).items():
        assert 1 <= exact / float(ref.epsilon_exact(4.0, delta)) < 1.001
        assert 1 <= lemma / float(ref.epsilon_paper(4.0, delta)) < 1.001
    assert len(table(text)) == 10


def test_epsilon_and_delta_give_the_rho_that_a_run_takes():
    text = flat(convert_budget({"epsilon": 2.0, "delta": 1e-6, "samples": 60_000}))
    rho = float(re.search(r"rho = (\S+) is \(", text)[1])
    # A 512th of both is left to what the draws of the noise add.
    left, delta = 2.0 * 511 / 512, 1e-6 * 511 / 512
    assert ref.gaussian_delta(left, rho) <= delta < ref.gaussian_delta(left, rho * (1 + 1e-6))


def test_rho_and_epsilon_give_delta_rounded_up():
    text = flat(convert_budget({"rho": 1.0, "epsilon": 2.0}))
    found = float(re.search(r"epsilon = 2 and delta = (\S+),", text)[1])
    assert 1 <= found / float(ref.gaussian_delta(2.0, 1.0)) < 1.001


def test_a_delta_of_a_sample_is_a_warning():
    assert "not below 1/n for n = 1,000 samples" in flat(
        convert_budget({"rho": 0.1, "delta": 1e-3, "samples": 1000})
    )
    assert "not below" not in convert_budget({"rho": 0.1, "delta": 9e-4, "samples": 1000})


def test_a_delta_beyond_all_floating_point_numbers():
    assert "delta = 4.94" in flat(convert_budget({"rho": 0.01, "epsilon": 1000.0}))
    assert "delta = 1," in flat(convert_budget({"rho": 1e3, "epsilon": 1.0}))


def test_no_noise_no_guarantee():
    for given in ({"rho": float("inf")}, {"epsilon": float("inf"), "delta": 1e-5}):
        assert "no privacy guarantee at all" in convert_budget(given)


BAD = [
    *({}, {"delta": 1e-5}, {"rho": 1.0, "epsilon": 1.0, "delta": 1e-5}, {"rho": 0.0}, {"rho": float("nan")}),
    *({"epsilon": 1.0, "delta": 1.0}, {"rho": 1.0, "samples": 10**400}, {"rho": 1.0, "delta": 5e-324}),
]


@pytest.mark.parametrize("given", BAD)
def test_bad_numbers_are_refused(given):
    with pytest.raises(InputError):
        convert_budget(given)
