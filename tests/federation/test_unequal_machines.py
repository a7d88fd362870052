"""What machines that differ do and spend: against formulas, and the history against brute force."""

import math

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.slow import slow
from helpers.unequal_machines import OwnedSource, owned_source, write_budgets

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.results.reader import read_result

SIZES = [11, 4, 7, 5]
KINDS = ["uniform:2", "bernoulli:0.5", "by-size"]
RHO = np.array([4.0, 0.5, 4.0, 9.0])
SERVERS = pytest.mark.parametrize("server", ["untrusted", "trusted"])


@pytest.fixture
def source() -> OwnedSource:
    return owned_source(5, SIZES, 4, 3)


@pytest.fixture
def budgets(tmp_path) -> str:
    return write_budgets(tmp_path / "budgets.toml", rho={"b": 0.5}, epsilon={"d": epsilon_exact(9.0, 1e-5)})


def sensitivities(constants, accounts):
    """Return what one sample of each machine moves in a message, at most: twice its weighted norm."""
    C = constants.S
    assert accounts.clip_norm == pytest.approx(accounts.weight * C * (accounts.rounds > 0))
    return 2 * accounts.weight * C


def releases(method, server, accounts, rounds):
    """Return in how many releases a sample of each machine is."""
    is_cumulative = method.get("estimator") != "gradient" and method.get("method") != "dp-gd"
    if is_cumulative and server == "trusted":
        return np.full(len(SIZES), rounds)
    if is_cumulative:
        return accounts.rounds
    if method.get("method") == "dp-gd":
        # In passes of two samples a round over the first four.
        return -(-2 * accounts.rounds // 4)
    return np.ones(len(SIZES), int)


@SERVERS
@pytest.mark.parametrize("participation", ["uniform:2", "bernoulli:0.5", None, "by-size"])
@pytest.mark.parametrize(
    "method",
    [{}, {"estimator": "gradient", "query": "average"}, {"method": "dp-gd", "batch": 2, "rounds": 9}],
)
def test_each_machine_has_the_noise_of_its_own_rounds_weight_and_budget(
    server, participation, method, source, budgets
):
    experiment = Experiment(server=server, participation=participation, budgets=budgets, seed=3, **method)
    if participation == "by-size" and "method" in method:
        with pytest.raises(InputError, match="needs a method with a fresh sample per round"):
            resolve_plan(experiment, source, 1)
        return
    constants = resolve_plan(experiment, source, 1).constants
    accounts = constants.problem.per_machine_plan.accounts(1e-5)
    touched = releases(method, server, accounts, constants.rounds)
    moved = np.where(accounts.rounds > 0, sensitivities(constants, accounts) * np.sqrt(touched), 0.0)
    allowed = accounts.rho_budget
    np.testing.assert_allclose(allowed, RHO, rtol=0.01)
    if server == "untrusted":
        np.testing.assert_allclose(accounts.sigma, moved / allowed, rtol=1e-12)
    else:
        there = accounts.rounds > 0
        np.testing.assert_allclose(accounts.sigma[there], (moved / allowed).max(), rtol=1e-12)
        assert np.all(accounts.sigma[~there] == 0)
    spent = np.divide(moved, accounts.sigma, out=np.zeros(len(SIZES)), where=accounts.sigma > 0)
    np.testing.assert_allclose(accounts.rho, spent, rtol=1e-9)
    assert np.all(accounts.rho <= allowed * (1 + 1e-12))
    epsilon = [epsilon_exact(rho, 1e-5) if rho else 0.0 for rho in spent.tolist()]
    np.testing.assert_allclose(accounts.epsilon, epsilon, rtol=3e-3)
    # It states what is told of the sample of which most is told.
    assert constants.mechanism.stated_rho == accounts.rho.max()
    assert all(
        kind.grid_spacing == constants.mechanism.grid_spacing
        for kind in constants.problem.per_machine_plan.mechanisms
    )


@SERVERS
@pytest.mark.parametrize("settings", [{"method": "anytime-dp-mf"}, {"noise_correlation": 0.6}])
def test_one_strategy_hides_all_machines_in_proportion_to_their_budgets(server, settings, source, budgets):
    experiment = Experiment(server=server, participation="by-size", budgets=budgets, seed=3, **settings)
    constants = resolve_plan(experiment, source, 1).constants
    accounts, kinds = (
        constants.problem.per_machine_plan.accounts(1e-5),
        constants.problem.per_machine_plan.mechanisms,
    )
    assert {kind.rounds for kind in kinds} == {11}
    assert len({kind.correlation for kind in kinds}) == 1
    strategy = kinds[0].correlation.sensitivity * (1 + 2.0**-14)
    moved = sensitivities(constants, accounts) * strategy
    wanted = moved / accounts.rho_budget
    wanted = np.full(4, wanted.max()) if server == "trusted" else wanted
    np.testing.assert_allclose(accounts.sigma, wanted, rtol=1e-12)
    np.testing.assert_allclose(accounts.rho, moved / accounts.sigma, rtol=1e-9)
    assert np.all(accounts.rho <= accounts.rho_budget * (1 + 1e-12))


@SERVERS
@pytest.mark.parametrize("participation", KINDS)
@pytest.mark.parametrize("method", [{}, {"estimator": "gradient", "query": "iterate"}])
def test_the_history_counts_who_was_there(server, participation, method, source, budgets):
    experiment = Experiment(
        server=server, participation=participation, budgets=budgets, seed=3, evaluations=1000, **method
    )
    result = simulation_of(experiment, source).run()
    accounts, history, rounds = result.accounts, result.history, result.experiment.rounds
    counts = np.cumsum(accounts.participation, axis=0)
    np.testing.assert_array_equal(history.round, np.arange(1, rounds + 1))
    np.testing.assert_array_equal(history.samples, counts.sum(axis=1))
    gradients = 1 if method else 2
    np.testing.assert_array_equal(history.gradient_evaluations, gradients * counts.sum(axis=1))
    np.testing.assert_array_equal(counts[-1], accounts.rounds)
    spent = []
    for t, of in enumerate(counts, 1):
        if method:
            share = (of > 0).astype(float)
        elif server == "trusted":
            share = (of > 0) * math.sqrt(t / rounds)
        else:
            share = np.sqrt(of / np.maximum(accounts.rounds, 1))
        spent.append((share * accounts.rho).max())
    # Of machines with the same account, what is told of one may count as told of any.
    assert np.all(history.rho_spent >= np.array(spent) * (1 - 1e-12))
    np.testing.assert_allclose(history.rho_spent[-1], spent[-1])
    if server == "untrusted":
        np.testing.assert_allclose(history.rho_spent, spent)
    assert np.all(np.diff(history.rho_spent) >= 0)


def test_samples_of_different_sizes_are_all_used_and_none_twice(source):
    """Each machine's own rows, each once: those of the largest in every round."""
    asked = []
    training = source.read_training
    source.read_training = lambda rows: (asked.append(rows), training(rows))[1]
    result = simulation_of(Experiment(participation="by-size", seed=3), source).run()
    assert sorted(np.concatenate(asked).tolist()) == list(range(sum(SIZES)))
    assert result.experiment.rounds == max(SIZES)
    assert result.accounts.rounds.tolist() == SIZES


SUPPORTED = [
    name for name in known_names("methods") if lookup("methods", name).supports_partial_participation
]


def settings_of(method):
    own = {"clip_norm": 1.0, "method": method}
    return own | {
        "storm": {"method": "mu2-sgd", "query": "iterate"},
        "anytime-sgd": {"method": "mu2-sgd", "estimator": "gradient"},
        "parallel-sgd": {"method": "mu2-sgd", "estimator": "gradient", "query": "iterate"},
        "dp-sgd": {"method": method, "server": "trusted", "batch": 3},
        "dp-gd": {"method": method, "momentum": 0.5},
    }.get(method, {})


def runs_and_is_found_again(experiment, path):
    """Run it to a file, from which noise, steps and accounts are found again."""
    result = run(experiment, output=path)
    assert np.isfinite(result.x).all()
    found = read_result(path)
    again = found.constants
    assert again.mechanism == found.privacy.mechanism
    assert again.eta == resolve_plan(experiment, open_source(experiment), 1).constants.eta
    assert again.problem.per_machine_plan.accounts(found.experiment.delta).differences(found.accounts) == []
    assert found.accounts.differences(result.accounts) == []


QUICK = [name for name in SUPPORTED if name != "dp-sgd"]
AGAIN = "dp-gd", "noisy-minibatch-sgd"
"""Methods that use samples again, for which by-size means nothing."""

MATRIX = [(name, "uniform:2") for name in QUICK]
MATRIX += slow(*((name, kind) for name in QUICK for kind in ("uniform:5", "bernoulli:0.5")))
MATRIX += slow(*((name, "by-size") for name in QUICK if name not in AGAIN), ("dp-sgd", "bernoulli:0.5"))


@pytest.mark.parametrize(("method", "participation"), MATRIX)
def test_every_method_takes_every_kind(method, participation, tmp_path):
    settings = {"data": "synthetic", "samples": 60, "features": 3, "machines": 5, "rounds": 6, "seed": 2}
    experiment = Experiment(participation=participation, epsilon=2.0, **settings, **settings_of(method))
    runs_and_is_found_again(experiment, tmp_path / "a.h5")
