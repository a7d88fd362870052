"""Who may see what: options of trust modes, what they do not go with, and what is said of it."""

import pytest
from helpers.simulations import simulation_of
from helpers.sources import random_source

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.privacy.noise.masks import Masks

TINY = ["--data", "synthetic", "--samples", "200", "--features", "3", "--machines", "10", "--rounds", "4"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--server aggregated --colluders 10", "at most 9"),
        ("--server aggregated --colluders -1", "colluders"),
        ("--server trusted --colluders 1", "aggregated or shuffled"),
        ("--server shuffled --masks all", "aggregated"),
        ("--mechanism binomial", "shuffled"),
        ("--mechanism gaussian --server shuffled", "binomial"),
        ("--server aggregated --participation uniform:3", "aggregated"),
        ("--server aggregated --noise aggregate", "untrusted"),
        ("--server shuffled --method noisy-minibatch-sgd", "another --server"),
        ("--server aggregated --method objective-perturbation", "output alone"),
        ("--server shuffled --noise-correlation 0.5", "got mechanism = binomial. Leave it out"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(words, said, tmp_path, capsys):
    assert main(["run", *TINY, *words.split(), "--output", str(tmp_path / "a.h5")]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("machines", "expected"), [(1, 0), (2, 1), (10, 1), (11, 2), (100, 10)])
@pytest.mark.parametrize("server", ["aggregated", "shuffled"])
def test_a_tenth_may_collude_if_nothing_else_is_said(server, machines, expected):
    source = random_source(1, 5 * machines, 2, 2)
    plan = resolve_plan(Experiment(server=server, machines=machines, rho=1.0), source, 1)
    assert plan.experiment.colluders == expected
    assert plan.constants.problem.noise_shares == plan.constants.mechanism.noise_shares == machines - expected
    named = resolve_plan(Experiment(server=server, machines=machines, rho=1.0, colluders=expected), source, 1)
    assert named.experiment == plan.experiment
    with pytest.raises(InputError, match="Use at most"):
        resolve_plan(Experiment(server=server, machines=machines, rho=1.0, colluders=machines), source, 1)


@pytest.mark.parametrize("server", known_names("servers"))
@pytest.mark.parametrize(("machines", "colluders"), [(1, 0), (9, 0), (10, 3), (10, 9)])
def test_an_average_has_the_noise_that_learning_rates_are_made_for(server, machines, colluders):
    """The variance of the sum is M^2 over the square of `noise_reduction`: M s^2, s^2, or M / (M - c) s^2."""
    trust_mode = lookup("servers", server)
    takes = "colluders" in trust_mode.options.model_fields
    parts = trust_mode.noise_shares(
        trust_mode.options(**({"colluders": colluders} if takes else {})), machines
    )
    assert parts == (machines - colluders if takes else 1)
    draws = {"untrusted": machines, "trusted": 1}.get(server, machines / parts)
    assert trust_mode.variance_factor(machines, parts) == pytest.approx(draws)
    assert trust_mode.noise_reduction(machines, parts) == pytest.approx(machines / draws**0.5)


def test_with_nobody_who_colludes_rates_are_those_of_a_trusted_server():
    source = random_source(1, 100, 4, 3)
    settings = {"machines": 10, "rho": 1.0}
    trusted = resolve_plan(Experiment(server="trusted", **settings), source, 1).constants
    aggregated = resolve_plan(Experiment(server="aggregated", colluders=0, **settings), source, 1).constants
    assert aggregated.eta == trusted.eta
    assert aggregated.excess_loss_bound == trusted.excess_loss_bound
    halved = resolve_plan(Experiment(server="aggregated", colluders=5, **settings), source, 1).constants
    assert halved.eta == pytest.approx(trusted.eta * 0.5**0.5)


def test_one_rank_alone_computes_no_mask_unless_it_is_asked_for_all(monkeypatch):
    calls = []
    monkeypatch.setattr(Masks, "add", lambda self, masked, t: calls.append(t))
    results = {
        masks: simulation_of(
            Experiment(server="aggregated", machines=4, seed=1, masks=masks), random_source(1, 40, 3, 2)
        ).run()
        for masks in ("crossing", "none", "all")
    }
    # Before the first round, that of kernels apart.
    assert [t for t in calls if calls.count(t) == 1 and t > 1] == list(range(2, 11))
    assert len({result.x.tobytes() for result in results.values()}) == 1


@pytest.mark.parametrize("server", ["aggregated", "shuffled"])
def test_without_noise_the_sums_are_those_of_a_trusted_server(server):
    results = [
        simulation_of(
            Experiment(server=name, machines=4, seed=1, rho=float("inf"), clip_norm=1.0),
            random_source(1, 40, 3, 2),
        ).run()
        for name in (server, "trusted")
    ]
    assert results[0].x.tobytes() == results[1].x.tobytes()
    assert results[0].privacy.mismatches() == []
