"""Which mechanisms may hide what a method sends: those whose account speaks of it, and no others."""

from itertools import product

import pytest
from helpers.sources import random_source

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import known_names
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.simulation import Simulation

SOURCE = random_source(1, 2000, 4, 3)
ACCOUNTS = {
    "accelerated-srgd": {"binomial", "gaussian", "correlated"},
    "mu2-sgd": {"binomial", "gaussian", "correlated"},
    "storm": {"binomial", "gaussian", "correlated"},
    "anytime-sgd": {"binomial", "gaussian", "correlated"},
    "anytime-dp-mf": {"binomial", "gaussian", "correlated"},
    "parallel-sgd": {"binomial", "gaussian", "correlated"},
    # A sample is drawn at most once a round, so to be in all of them is the worst that can be.
    "dp-sgd": {"binomial", "gaussian", "poisson"},
    "dp-gd": {"binomial", "gaussian"},
    # Noise in each local step, or in sums of the messages of random machines
    "fedavg": {"gaussian"},
    "fedavg --unit machine": {"poisson-machines"},
    "localized-srgd": {"binomial", "gaussian"},
    "noisy-minibatch-sgd": {"replacement-exact"},
    "objective-perturbation": {"objective-perturbation"},
    "scaffold": {"gaussian"},
    "ada-ssp": {"binomial", "gaussian", "second-moments"},
    "dp-newton": {"binomial", "gaussian", "second-moments"},
}
"""Whose account holds for which method; that of messages also where nobody sees them."""

UNCORRELATED = (
    "binomial", "gaussian", "objective-perturbation", "poisson", "poisson-machines", "replacement-exact",
    "second-moments",
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "mechanism"),
    # Other noise for objective perturbation is refused earlier.
    [
        pair
        for pair in product(ACCOUNTS, UNCORRELATED)
        if pair[0] != "objective-perturbation" or len(set(pair)) == 1
    ],
)
def test_only_an_account_that_holds_is_taken(method, mechanism):
    batches = {"dp-gd": 600, "dp-sgd": 40, "noisy-minibatch-sgd": 1}
    name, _, unit = method.partition(" --unit ")
    server = "untrusted" if not unit and name in ("fedavg", "scaffold") else "trusted"
    settings = {
        "method": name, "mechanism": mechanism, "machines": 2, "rounds": 9, "rho": 1.0, "evaluations": 1,
        "server": "shuffled" if mechanism == "binomial" else server,
        "clip_norm": 1.0 if method == "storm" else None,
        "batch": batches.get(method),
        "unit": unit or None,
    }  # fmt: skip
    if mechanism in ACCOUNTS[method]:
        plan = resolve_plan(Experiment(**settings), SOURCE, 1)
        assert plan.constants.mechanism.name == mechanism
        assert plan.experiment.mechanism == mechanism
        assert claim_contradictions(Simulation(plan, Communicator()).run()) == []
        return
    with pytest.raises(InputError):
        resolve_plan(Experiment(**settings), SOURCE, 1)


def test_no_mechanism_is_left_out():
    assert {mechanism for known in ACCOUNTS.values() for mechanism in known} == set(known_names("mechanisms"))
    assert {method.split()[0] for method in ACCOUNTS} == set(known_names("methods"))
