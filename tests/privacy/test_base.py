"""Mechanisms of a user's own whose guarantee makes no sense are refused before anything is sent."""

import math

import pytest
from helpers.simulations import make_task

from mu2mpi.cli import main
from mu2mpi.core import registry
from mu2mpi.privacy.accounting.guarantee import Approximate, Gaussian
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianReleases
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


def stating(guarantee_of, spends_what="rho"):
    """Return a mechanism like the Gaussian one, but with this guarantee."""

    class Own(GaussianReleases):
        name, spends = "own", spends_what

        def guarantee(self, rounds=None, draws=1):
            return guarantee_of(super().guarantee(rounds, draws))

    return Own


CASES = {
    "rho is no number": (stating(lambda true: Gaussian(math.nan, true.drawn)), "rho = nan"),
    "rho is negative": (stating(lambda true: Gaussian(-true.rho, true.drawn)), "rho = -4"),
    "epsilon is no number": (
        stating(lambda true: Approximate(lambda delta: math.nan, true.drawn), "epsilon"),
        "epsilon = nan",
    ),
    "epsilon is negative": (
        stating(lambda true: Approximate(lambda delta: -1.0, true.drawn), "epsilon"),
        "epsilon = -",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_guarantee_that_is_nonsense_is_refused(case, monkeypatch, capsys, tmp_path):
    kind, words = CASES[case]
    monkeypatch.setitem(registry._registered["mechanisms"], "own", kind)
    command = ["run", "--mechanism", "own", "--machines", "2", "--rounds", "5", "--output"]
    assert main([*command, str(tmp_path / "a.h5")]) == 2
    assert f"error: mechanism = own states {words}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


class Plain(GaussianReleases):
    """Holds for what a mechanism holds for that does not say."""

    accounts_for = classmethod(Mechanism.accounts_for.__func__)


@pytest.mark.parametrize(("batch", "holds"), [(None, True), (600, False), (100, True)])
def test_by_default_the_messages_of_a_sample_follow_each_other(batch, holds):
    """As those of full batches do, and of one pass; not those of several."""
    method, task = make_task(
        "dp-gd", machines=2, classes=3, features=5, samples=1000, rho=1.0, options={"batch": batch}
    )
    assert Plain.accounts_for(method.release(task, method.sampling(task, 9))) == holds
