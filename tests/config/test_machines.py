"""Settings by which machines differ or are away: what they may be, and what they do not go with."""

import pytest
from helpers.simulations import simulation_of
from helpers.unequal_machines import owned_source, write_budgets

from mu2mpi.config.experiment import Experiment, first_different_setting
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import RunKeys, resolve_plan


def test_all_is_what_is_meant_without_a_word():
    plain, named = Experiment(seed=1), Experiment(seed=1, participation="all")
    assert plain == named
    assert hash(plain) == hash(named)
    assert plain.to_toml() == named.to_toml()
    assert first_different_setting(plain, named) is None
    assert resolve_plan(named, owned_source(1, [9, 9], 3, 2), 1).constants.problem.per_machine_plan is None


@pytest.mark.parametrize(
    "text", ["uniform:1", "uniform:20", "bernoulli:0.2", "bernoulli:.5", "bernoulli:1", "bernoulli:1e-4",
             "by-size", "trace:a.csv", "trace:/far/away: of.h5"]
)  # fmt: skip
def test_ways_to_take_part(text):
    experiment = Experiment(participation=text, participation_seed=3)
    assert experiment.participation == text
    assert experiment == Experiment.from_settings(experiment.settings())


@pytest.mark.parametrize(
    "text", ["", "some", "uniform", "uniform:0", "uniform:-1", "uniform:1.5", "uniform:9999999999",
             "bernoulli:0", "bernoulli:1.01", "bernoulli:1e-5", "bernoulli:nan", "bernoulli:", "by-size:2",
             "trace:", "trace", "ALL", " all", "trace:\ud800.csv", 3, True]
)  # fmt: skip
def test_what_is_no_way_to_take_part(text):
    with pytest.raises(InputError, match="participation"):
        Experiment(participation=text)


def test_a_sweep_may_go_through_them(tmp_path):
    budgets = [write_budgets(tmp_path / f"{name}.toml", rho={"a": 1.0}) for name in "xy"]
    ways = ["all", "uniform:2", "bernoulli:0.5", "by-size"]
    sweep = Sweep(
        {"participation": ways, "objective": ["machines", "samples"], "budgets": budgets, "seed": 1}
    )
    names = {sweep.file_name(experiment) for experiment in sweep.experiments}
    assert len(names) == 16
    assert {experiment.participation for experiment in sweep.experiments} == {None, *ways[1:]}


def test_files_of_the_same_name_have_other_noise_once_they_differ(tmp_path):
    """Else what two runs with one secret seed and other budgets send would give the difference away."""
    source, words = owned_source(1, [10, 6, 4], 3, 2), []
    for rho, last in ((1.0, "c"), (2.0, "c"), (2.0, "b")):
        budgets = write_budgets(tmp_path / "a.toml", rho={"a": rho})
        (tmp_path / "a.csv").write_text(f"round,machine\n1,a\n2,{last}\n")
        experiment = Experiment(budgets=budgets, participation=f"trace:{tmp_path}/a.csv", seed=1)
        words.append(simulation_of(experiment, source).run_keys.noise.tolist())
    assert len(set(map(tuple, words))) == 3


def test_every_option_of_machines_changes_the_noise():
    root = bytes(32)
    ways = [{}, {"participation": "uniform:2"}, {"participation": "uniform:3"}, {"objective": "samples"}]
    ways += [{"participation": "uniform:2", "participation_seed": 5}, {"budgets": "a.toml"}]
    keys = {RunKeys.noise_key(root, Experiment(machines=4, rounds=2, seed=1, **way)) for way in ways}
    assert len(keys) == len(ways)


def test_machines_that_were_never_drawn_do_not_make_steps_longer(tmp_path):
    """One of ten in each of two rounds: its message is that of one, whoever else was drawn."""
    source = owned_source(1, [9] * 10, 3, 2)
    members = resolve_plan(
        Experiment(participation="uniform:1", rounds=2, seed=1), source, 1
    ).constants.problem.per_machine_plan
    assert members.participation.counts.sum() == 2
    assert members.machine_weight_sum == pytest.approx(1.0)
    assert members.effective_machines == pytest.approx(1.0)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_a_machine_with_a_budget_has_noise_where_the_others_have_none(server, tmp_path):
    budgets = write_budgets(tmp_path / "a.toml", rho={"b": 1.0})
    simulation = simulation_of(
        Experiment(budgets=budgets, rho=float("inf"), server=server, seed=1), owned_source(1, [9] * 3, 3, 2)
    )
    machines, constants = simulation.machines, simulation.constants
    accounts = constants.problem.per_machine_plan.accounts(1e-5)
    assert accounts.rho[1] == pytest.approx(1.0)
    machines.accumulate_increments(1, simulation.server.iterates.x, simulation.server.iterates.x_previous)
    if server == "untrusted":
        assert accounts.sigma[0] == 0 < accounts.sigma[1]
        noise = (machines.noised_message(1) - machines.message_sum) * constants.mechanism.grid_spacing
        assert noise.std() == pytest.approx(accounts.sigma[1], rel=0.8)
    else:
        assert constants.mechanism.sigma == accounts.sigma[1] == accounts.sigma[0] > 0
