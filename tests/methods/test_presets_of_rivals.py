"""Every method has a preset of its own, with which it learns more than with the settings of its theory."""

import math

import pytest
from helpers.simulations import SWITCHED
from helpers.sources import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.registry import find, names
from mu2mpi.execution.plan import resolve

SOURCE = random_source(1, 400, 6, 4)
ASKED = {"server": "trusted", "machines": 10, "rho": 4.0, "seed": 1, "evaluations": 1}
QUIET = {method: {"rho": math.inf, "rounds": 300} for method in ("dp-sgd", "noisy-minibatch-sgd")}
"""Of methods whose noise takes long to find."""


def planned(method, **settings):
    return resolve(Experiment(method=method, preset="practical", **{**ASKED, **settings}), SOURCE, 1)


@pytest.mark.parametrize("method", names("methods"))
def test_nothing_is_open_that_a_preset_said_it_would_choose(method):
    """What it chooses is in the experiment, whose TOML repeats it; another value of the user's stays."""
    quiet = QUIET.get(method, {})
    asked = Experiment(method=method, preset="practical", **{**ASKED, **quiet})
    plan = planned(method, **quiet)
    assert asked.by_preset().keys() == plan.experiment.by_preset(plan.facts).keys()
    chosen = {k: v for k, v in plan.experiment.by_preset(plan.facts).items() if k not in quiet}
    assert chosen.items() <= plan.experiment.settings().items()
    assert planned(method, diameter=7.0, **quiet).experiment.diameter == 7.0
    assert planned(method, normalize="none", **quiet).experiment.normalize == "none"


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_the_noise_of_the_output_is_that_which_weights_may_gather(server, rho):
    """1.5 in each, from the weights that each round has in the mean of the iterates, and in their average."""
    constants = planned("parallel-sgd", server=server, rho=rho).constants
    T = constants.rounds
    noise = constants.mechanism.sigma / (10 if server == "trusted" else math.sqrt(10))
    left = [(T - t) / T for t in range(1, T + 1)]
    gathered = noise * math.sqrt(sum((constants.step_size(t) * left[t - 1]) ** 2 for t in range(1, T + 1)))
    assert gathered == pytest.approx(1.5, rel=0.05)
    constants = planned("anytime-sgd", server=server, rho=rho).constants
    left = [1 - t * t / T / T for t in range(1, T + 1)]
    gathered = noise * math.sqrt(sum((constants.step_size(t) * left[t - 1]) ** 2 for t in range(1, T + 1)))
    assert gathered == pytest.approx(1.5, rel=0.05)


def test_steps_of_storm_by_hand():
    """Noise of the later half is 0.05 * 1.5 in each weight; with little noise the last step is 1.8 / L."""
    constants = planned("storm", rho=0.5).constants
    T, noise = constants.rounds, constants.mechanism.sigma / 10
    late = noise * math.sqrt(sum(constants.step_size(t) ** 2 for t in range(T // 2 + 1, T + 1)))
    assert late == pytest.approx(0.05 * 1.5, rel=0.05)
    assert 2 * constants.task.radius == 24
    quiet = planned("storm", rho=math.inf).constants
    assert quiet.step_size(T) * T * quiet.task.problem.constants(1.0, 1.0, 4).L == pytest.approx(
        1.8, rel=0.05
    )
    # Numbers have margins of at most 1 and little noise: a narrower ball.
    assert _diameter("storm", "squared") == 4.0


def _diameter(method, loss):
    from mu2mpi.data.source import PublicFacts

    asked = Experiment(method=method, preset="practical", loss=loss, normalize="unit", **ASKED)
    return asked.by_preset(PublicFacts(2, 5.0, 400))["diameter"]


def test_the_ball_of_snowball_sgd_is_narrow_where_gradients_grow_with_it():
    assert {loss: _diameter("snowball-sgd", loss) for loss in ("softmax", "huber", "squared", "poisson")} == {
        "softmax": 200.0, "huber": 200.0, "squared": 2.0, "poisson": 2.0
    }  # fmt: skip


@pytest.mark.parametrize("method", SWITCHED)
def test_a_preset_is_that_of_what_the_switches_leave(method):
    chosen = find("methods", method)
    switches = {"estimator": chosen.estimator.name, "query": chosen.query.name}
    named = Experiment(method=method, preset="practical", **ASKED)
    switched = Experiment(method="mu2-sgd", preset="practical", **switches, **ASKED)
    plans = [resolve(experiment, SOURCE, 1) for experiment in (named, switched)]
    assert plans[0].facts == plans[1].facts
    assert named.by_preset(plans[0].facts) == switched.by_preset(plans[0].facts)
    assert plans[0].constants.eta == plans[1].constants.eta


# ------------------------------------------------------------------------------------- the sweep


def test_a_sweep_of_all_methods_has_each_with_its_preset_and_a_trusted_server():
    sweep = Sweep({"seed": [1, 2], "methods": "all", "epsilon": 2.0})
    assert [e.method for e in sweep.experiments] == [name for name in names("methods") for _ in range(2)]
    assert {(e.preset, e.server, e.epsilon) for e in sweep.experiments} == {("practical", "trusted", 2.0)}
    assert sweep.swept == ["method", "seed"]
    assert sweep.left_out == []
    assert sweep.file_name(sweep.experiments[0]) == f"{names('methods')[0]}_seed-1.h5"
