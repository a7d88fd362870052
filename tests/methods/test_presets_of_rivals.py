"""Practical preset of every method."""

import math

import pytest
from helpers.simulations import SWITCHED
from helpers.sources import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.methods.presets.practical import round_to_four_digits

SOURCE = random_source(1, 400, 6, 4)
ASKED = {"server": "trusted", "machines": 10, "rho": 4.0, "seed": 1, "evaluations": 1}
QUIET = {method: {"rho": math.inf, "rounds": 300} for method in ("dp-sgd", "noisy-minibatch-sgd")}
"""Of methods whose noise takes long to find."""


LOCAL_NOISE = ("fedavg", "scaffold")
"""Methods with noise in each local step, which only an untrusted server allows."""


def asked(method, **settings):
    return {**ASKED, "server": "untrusted" if method in LOCAL_NOISE else "trusted", **settings}


def planned(method, **settings):
    return resolve_plan(Experiment(method=method, preset="practical", **asked(method, **settings)), SOURCE, 1)


@pytest.mark.parametrize("method", known_names("methods"))
def test_presets_fill_all_settings_that_they_name(method):
    """Chosen settings are in the experiment and its TOML; values given by the user stay."""
    quiet = QUIET.get(method, {})
    experiment = Experiment(method=method, preset="practical", **asked(method, **quiet))
    plan = planned(method, **quiet)
    assert experiment.preset_settings().keys() == plan.experiment.preset_settings(plan.public_facts).keys()
    chosen = {k: v for k, v in plan.experiment.preset_settings(plan.public_facts).items() if k not in quiet}
    assert chosen.items() <= plan.experiment.settings().items()
    assert planned(method, diameter=7.0, **quiet).experiment.diameter == 7.0
    assert planned(method, normalize="none", **quiet).experiment.normalize == "none"


@pytest.mark.parametrize("method", LOCAL_NOISE)
@pytest.mark.parametrize("batch", [None, 10])
@pytest.mark.parametrize("momentum", [None, 0.5])
def test_rounds_of_local_steps_take_the_steps_of_gradient_descent(method, batch, momentum):
    given = {"server": "untrusted", "batch": batch, "rho": 2.0}
    local = planned(method, local_steps=5, momentum=momentum, **given).experiment
    gain = 5 / (1 - (momentum or 0.0))
    plain = planned("dp-gd", momentum=1 - 1 / gain, **given).experiment
    names = "rounds", "eta_scale", "clip_norm", "diameter", "tail"
    assert [local.settings()[n] for n in names] == [plain.settings()[n] for n in names]


def test_messages_of_whole_machines_are_clipped_to_a_quarter():
    given = {"unit": "machine", "server": "trusted", "rho": math.inf, "delta": 1e-5}
    whole, single = planned("fedavg", **given).experiment, planned("dp-gd").experiment
    assert (whole.rounds, whole.clip_norm) == (400, round_to_four_digits(single.clip_norm / 4))
    # A clipping norm of the user's has as much noise.
    noisy, given = {"unit": "machine", "server": "trusted", "rho": 0.2}, {"clip_norm": 2 * whole.clip_norm}
    shortened = planned("fedavg", rounds=20, **noisy, **given).experiment
    steps = planned("fedavg", rounds=20, **noisy).experiment
    assert 2 * shortened.eta_scale == pytest.approx(steps.eta_scale, rel=1e-3)


@pytest.mark.parametrize("batch", [4001, 10**8, 2**32 - 1])
def test_a_batch_beyond_all_samples_is_refused(batch):
    limit = "--batch must be at most 400 "
    with pytest.raises(InputError, match=limit):
        planned("dp-sgd", batch=batch)
    with pytest.raises(InputError, match=limit):
        resolve_plan(Experiment(method="dp-sgd", batch=batch, **ASKED), SOURCE, 1)


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
@pytest.mark.parametrize("rho", [0.05, 0.5])
def test_noise_of_the_output_reaches_its_limit(server, rho):
    """Std 1.5 per coordinate, from the weight of each round in the mean or average of the iterates."""
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


@pytest.mark.parametrize("server", ["trusted", "untrusted"])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
def test_noise_of_newton_steps_reaches_its_limit(server, neighbours):
    """Std 6 / sqrt(rows) per coordinate where curvature is small, since steps are at most eta g."""
    constants = planned("dp-newton", server=server, rho=0.5, neighbours=neighbours).constants
    mechanism, problem, T = constants.mechanism, constants.problem, constants.rounds
    assert mechanism.clip_norm == pytest.approx(math.sqrt(2), rel=1e-3)
    scale = 1 / problem.loss.zero_residual_bound(problem.model_rows)
    noise = mechanism.sigma * math.sqrt(problem.variance_factor) / 400 / scale
    assert constants.eta * math.sqrt(T) * noise == pytest.approx(6 / math.sqrt(problem.model_rows), rel=1e-2)


def test_steps_of_storm_by_hand():
    """The later half adds noise of std 0.05 * 1.5 per weight; with little noise the last step is 1.8 / L."""
    constants = planned("storm", rho=0.5).constants
    T, noise = constants.rounds, constants.mechanism.sigma / 10
    late = noise * math.sqrt(sum(constants.step_size(t) ** 2 for t in range(T // 2 + 1, T + 1)))
    assert late == pytest.approx(0.05 * 1.5, rel=0.05)
    assert 2 * constants.problem.radius == 24
    quiet = planned("storm", rho=math.inf).constants
    assert quiet.step_size(T) * T * quiet.problem.loss.constants(1.0, 1.0, 4).L == pytest.approx(
        1.8, rel=0.05
    )
    # Numbers have margins of at most 1 and little noise: a narrower ball.
    assert _diameter("storm", "squared") == 4.0


def _diameter(method, loss):
    from mu2mpi.data.source import PublicFacts

    asked = Experiment(method=method, preset="practical", loss=loss, normalize="unit", **ASKED)
    return asked.preset_settings(PublicFacts(2, 5.0, 400))["diameter"]


@pytest.mark.parametrize("method", SWITCHED)
def test_switches_select_the_preset_of_the_variant(method):
    chosen = lookup("methods", method)
    switches = {"estimator": chosen.estimator.name, "query": chosen.query_point.name}
    named = Experiment(method=method, preset="practical", **ASKED)
    switched = Experiment(method="mu2-sgd", preset="practical", **switches, **ASKED)
    plans = [resolve_plan(experiment, SOURCE, 1) for experiment in (named, switched)]
    assert plans[0].public_facts == plans[1].public_facts
    assert named.preset_settings(plans[0].public_facts) == switched.preset_settings(plans[0].public_facts)
    assert plans[0].constants.eta == plans[1].constants.eta


# ------------------------------------------------------------------------------------- the sweep


def test_a_sweep_of_all_methods_has_each_that_a_trusted_server_allows_with_its_preset():
    sweep = Sweep({"seed": [1, 2], "methods": "all", "epsilon": 2.0})
    allowed = [name for name in known_names("methods") if name not in LOCAL_NOISE]
    assert [e.method for e in sweep.experiments] == [name for name in allowed for _ in range(2)]
    assert {(e.preset, e.server, e.epsilon) for e in sweep.experiments} == {("practical", "trusted", 2.0)}
    assert sweep.swept_names == ["method", "seed"]
    assert len(sweep.exclusions) == 2
    for name, text in zip(LOCAL_NOISE, sweep.exclusions, strict=True):
        assert text.startswith(f"method = {name} is left out: ")
    assert sweep.file_name(sweep.experiments[0]) == f"{known_names('methods')[0]}_seed-1.h5"
