"""Mechanisms of a user's own whose guarantee makes no sense are refused before anything is sent."""

import math

import pytest
from helpers.simulations import make_task

from mu2mpi.cli import main
from mu2mpi.core import registry
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, PrivacyCurveGuarantee
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


def stating(guarantee_of, spends_what="rho"):
    """Return a mechanism like the Gaussian one, but with this guarantee."""

    class Own(GaussianMechanism):
        name, budget_parameter = "own", spends_what

        def guarantee(self, rounds=None, aggregated_machines=1):
            return guarantee_of(super().guarantee(rounds, aggregated_machines))

    return Own


CASES = {
    "rho is no number": (stating(lambda true: GaussianGuarantee(math.nan, true.sampler_error)), "rho = nan"),
    "rho is negative": (stating(lambda true: GaussianGuarantee(-true.rho, true.sampler_error)), "rho = -4"),
    "epsilon is no number": (
        stating(lambda true: PrivacyCurveGuarantee(lambda delta: math.nan, true.sampler_error), "epsilon"),
        "epsilon = nan",
    ),
    "epsilon is negative": (
        stating(lambda true: PrivacyCurveGuarantee(lambda delta: -1.0, true.sampler_error), "epsilon"),
        "epsilon = -",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_guarantee_that_is_nonsense_is_refused(case, monkeypatch, capsys, tmp_path):
    kind, words = CASES[case]
    monkeypatch.setitem(registry._components["mechanisms"], "own", kind)
    command = ["run", "--mechanism", "own", "--machines", "2", "--rounds", "5", "--output"]
    assert main([*command, str(tmp_path / "a.h5")]) == 2
    assert f"error: mechanism = own states {words}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class Plain(GaussianMechanism):
    """Holds for what a mechanism holds for that does not say."""

    supports = classmethod(Mechanism.supports.__func__)


@pytest.mark.parametrize(("batch", "holds"), [(None, True), (600, False), (100, True)])
def test_by_default_the_messages_of_a_sample_follow_each_other(batch, holds):
    """As those of full batches do, and of one pass; not those of several."""
    method, problem = make_task(
        "dp-gd", machines=2, classes=3, features=5, samples=1000, rho=1.0, options={"batch": batch}
    )
    assert Plain.supports(method.released_sums(problem, method.batching(problem, 9))) == holds
