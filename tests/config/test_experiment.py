"""An experiment: defaults, TOML there and back, messages that say what is allowed, options of methods."""

import math
import pickle
import re
import tomllib

import pytest
from helpers import reference as ref
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment, first_different_setting
from mu2mpi.config.sweep import result_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names
from mu2mpi.execution.plan import RunKeys

optional_counts = st.none() | st.integers(1, 10**6)
experiments = st.builds(
    Experiment,
    data=st.sampled_from(["digits", "mnist", "synthetic", "population"]),
    server=st.sampled_from(known_names("servers")),
    machines=optional_counts,
    rounds=optional_counts,
    rho=st.floats(1e-6, 1e6) | st.just(math.inf),
    delta=st.floats(1e-300, 0.99),
    diameter=st.floats(1e-6, 1e6),
    clip_norm=st.none() | st.floats(1e-6, 1e6),
    normalize=st.sampled_from(["none", "unit"]),
    preset=st.sampled_from([None, "practical"]),
    eta_scale=st.none() | st.floats(1e-6, 1e6),
    seed=st.none() | st.integers(0, 2**63 - 1),
    evaluations=optional_counts,
)


@given(experiments)
def test_toml_repeats_the_experiment(experiment):
    assert Experiment.from_settings(tomllib.loads(experiment.to_toml())) == experiment


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"rho": 0}, "rho"),
        ({"rho": "nan"}, "rho"),
        ({"rho": "four"}, "rho"),
        ({"rho": 9e-101}, "rho"),
        ({"rho": 10**400}, "rho"),
        ({"epsilon": 1.1e100}, "epsilon"),
        ({"epsilon": 2, "rho": 4.0}, "rho and epsilon"),
        ({"delta": 5e-324}, "delta"),
        ({"delta": 1}, "delta"),
        ({"diameter": math.inf}, "diameter"),
        ({"machines": 2.5}, "machines"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"evaluations": 2**32}, "evaluations"),
        ({"data": "synthetic", "samples": 2**70}, "samples"),
        ({"partition": "labels:1" + 5000 * "0"}, "partition"),
        ({"partition": "dirichlet:0." + 400 * "0" + "1"}, "partition"),
        ({"server": "honest"}, "aggregated, shuffled, trusted, untrusted"),
        ({"data": "cifar"}, "mnist"),
        ({"rho": [4.0, 8.0]}, "mu2mpi sweep"),
        ({"machnies": 3}, "machines"),
        ({"quux": 1}, "`mu2mpi run --help all`"),
        ({"data": "mnist", "classes": 5}, "population or synthetic"),
        ({"batch": 3}, "dp-sgd"),
        ({"method": "anytime-sgd", "estimator": "gradient"}, "mu2-sgd"),
        ({"estimator": "momentum"}, "corrected-momentum"),
        ({"method": "dp-sgd", "server": "trusted", "batch": 0}, "batch"),
        ({"mechanism": "laplace"}, "gaussian"),
        ({"method": "dp-sgd"}, "trusted"),
        ({"query": "iterate"}, "Give --clip-norm"),
    ],
)
def test_bad_settings_are_named_with_what_is_allowed(settings, name):
    with pytest.raises(InputError, match=name) as caught:
        Experiment.from_settings(settings, "a.toml")
    assert str(caught.value).startswith("a.toml: ")


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-5), (1e-6, 1e-300), (1e4, 1e-12), (0.1, 0.01)])
def test_epsilon_gives_the_largest_rho_in_eight_digits(epsilon, delta):
    experiment = Experiment(epsilon=epsilon, delta=delta)
    # A 512th of both is left to what the draws of the noise add.
    left, delta = epsilon * 511 / 512, delta * 511 / 512
    assert ref.gaussian_delta(left, experiment.rho) <= delta
    assert ref.gaussian_delta(left, experiment.rho * (1 + 2e-7)) > delta
    assert len(f"{experiment.rho!r}".split("e")[0].replace(".", "").strip("0")) <= 8


@pytest.mark.parametrize("end", [1e-100, 1e100])
@pytest.mark.parametrize("name", ["rho", "epsilon"])
@pytest.mark.parametrize("delta", [1e-300, 1 - 2**-53])
def test_ends_of_ranges_give_numbers(name, end, delta):
    experiment = Experiment.from_settings({name: end, "delta": delta})
    assert 0 < experiment.rho < math.inf
    assert 0 <= experiment.target_epsilon < math.inf


def test_infinite_epsilon_is_no_noise():
    assert Experiment(epsilon=math.inf).rho == math.inf


def test_epsilon_is_what_is_kept_and_rho_follows():
    experiment = Experiment(epsilon=2.0, delta=1e-6, seed=1)
    toml = tomllib.loads(experiment.to_toml())
    assert toml["epsilon"] == 2.0
    assert "rho" not in toml
    assert Experiment.from_settings(toml) == experiment
    assert experiment.settings()["rho"] == experiment.rho
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    assert experiment.model_copy(update={"machines": 3}).rho == experiment.rho
    assert (
        len({experiment, Experiment(epsilon=2.0, delta=1e-6, seed=1), Experiment(epsilon=2.0, seed=1)}) == 2
    )
    assert first_different_setting(experiment, Experiment(rho=experiment.rho, delta=1e-6, seed=1)) == (
        "epsilon is 2.0 here and unset there"
    )


def test_noise_is_that_of_the_rho_which_epsilon_gives():
    """And differs wherever rho does: a difference of messages must not be without noise."""
    whole = {"machines": 2, "rounds": 5}
    calibrated = Experiment(epsilon=2.0, **whole)
    key = RunKeys.noise_key(bytes(32), calibrated)
    assert key == RunKeys.noise_key(bytes(32), Experiment(rho=calibrated.rho, **whole))
    assert key != RunKeys.noise_key(bytes(32), Experiment(epsilon=2.0, delta=1e-6, **whole))
    assert key != RunKeys.noise_key(bytes(32), Experiment(epsilon=2.5, **whole))


def test_toml_states_defaults_and_leaves_out_what_is_unset():
    toml = tomllib.loads(Experiment().to_toml())
    assert {name: toml[name] for name in ("loss", "method", "estimator", "query", "normalize")} == {
        "loss": "softmax",
        "method": "mu2-sgd",
        "estimator": "corrected-momentum",
        "query": "average",
        "normalize": "none",
    }
    assert not {"machines", "seed", "clip_norm", "preset", "mechanism", "batch", "samples"} & toml.keys()
    assert Experiment(normalize="none").to_toml() == Experiment().to_toml()
    assert Experiment(normalize="unit").settings()["normalize"] == "unit"
    assert not {"estimator", "query"} & tomllib.loads(Experiment(method="anytime-sgd").to_toml()).keys()


def test_a_change_is_checked():
    experiment = Experiment(machines=3, rho=2.0, seed=1)
    for change in ({"rho": -5}, {"machines": 0}, {"rhoo": 1}, {"batch": 3}, {"method": "dp-sgd"}):
        with pytest.raises(InputError):
            experiment.replace(**change)
        with pytest.raises(InputError):
            experiment.model_copy(update=change)
    assert experiment.model_copy() == experiment
    assert experiment.replace(seed=None) == Experiment(machines=3, rho=2.0)
    # Of rho and epsilon, the later takes the place of the earlier.
    assert experiment.replace(epsilon=1.0) == Experiment(machines=3, epsilon=1.0, seed=1)
    assert experiment.replace(epsilon=1.0).replace(rho=2.0) == experiment
    switched = experiment.replace(method="dp-sgd", server="trusted", batch=5)
    assert (switched.batch, switched.estimator) == (5, None)
    assert pickle.loads(pickle.dumps(switched)) == switched
    assert len({switched, experiment, switched.replace(batch=5), switched.replace(batch=6)}) == 3


def test_what_is_given_is_known():
    experiment = Experiment(rho=4.0, estimator="gradient")
    assert experiment.explicit_settings == {"rho", "estimator"}
    assert experiment.chosen_method.name == "anytime-sgd"
    assert experiment.chosen_mechanism == "gaussian"
    assert Experiment(method="dp-sgd", server="trusted").chosen_mechanism == "poisson"
    assert Experiment(mechanism="replacement-exact").chosen_mechanism == "replacement-exact"


def test_default_name():
    experiment = Experiment(machines=2, seed=5)
    assert result_name(experiment) == "digits_untrusted_machines-2_rho-4_seed-5.h5"
    calibrated = Experiment(machines=2, seed=5, epsilon=2)
    assert result_name(calibrated) == "digits_untrusted_machines-2_epsilon-2_seed-5.h5"
    other = Experiment(machines=1, method="objective-perturbation")
    assert result_name(other) == "digits_objective-perturbation_untrusted_machines-1_rho-4.h5"
    switched = Experiment(machines=1, estimator="gradient", query="iterate")
    assert result_name(switched) == "digits_gradient_iterate_untrusted_machines-1_rho-4.h5"


GIVEN = {
    "participation": "uniform:2", "objective": "samples", "partition": "dirichlet:0.3", "rounds": 20,
    "participation_seed": 3, "clip_norm": 2.0, "noise": "aggregate", "normalize": "unit", "l2": 0.1,
    "delta": 1e-6, "evaluations": 5, "diameter": 0.2, "eta_scale": 0.5, "epsilon": 2.0, "loss": "huber",
    "mechanism": "correlated", "server": "trusted", "seed": 1, "method": "dp-sgd", "batch": 4,
}  # fmt: skip


def test_a_default_name_tells_all_that_was_given():
    found = Experiment(
        data="x/people.csv", machines=4, budgets="/etc/budgets.toml", participation="bernoulli:0.5", l2=0.1
    )
    assert re.fullmatch(
        r"people\.csv_untrusted_machines-4_rho-4_bernoulli-0\.5_budgets-budgets\.toml_l2-0\.1_[0-9a-f]{8}\.h5",
        result_name(found),
    )
    here = Experiment(data="people.csv", machines=4, label_range="0:1", loss="squared", data_is_public=True)
    assert result_name(here) == (
        "people.csv_squared_untrusted_machines-4_rho-4_label-range-0-1_data-is-public.h5"
    )
    aggregated = Experiment(machines=4, server="aggregated", colluders=2)
    assert result_name(aggregated) == "digits_aggregated_machines-4_rho-4_colluders-2.h5"


few_settings = st.lists(st.sampled_from(sorted(GIVEN)), unique=True, max_size=3)


@given(few_settings, few_settings)
def test_no_two_experiments_have_the_same_default_name(some, others):
    made = []
    for chosen in (some, others):
        try:
            made.append(Experiment(machines=4, **{name: GIVEN[name] for name in chosen}))
        except InputError:
            made.append(Experiment(machines=4, seed=len(chosen)))
    one, other = made
    assert (result_name(one) == result_name(other)) == (one == other)


def test_a_method_of_none_leaves_the_choice_to_the_preset():
    assert Experiment(preset="practical", method=None) == Experiment(preset="practical")
