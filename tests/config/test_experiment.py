"""An experiment: defaults, TOML there and back, messages that say what is allowed, options of methods."""

import math
import pickle
import re
import tomllib

import pytest
import reference as ref
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import difference
from mu2mpi.config.options import choices, method_options, option_fields
from mu2mpi.config.sweep import result_name
from mu2mpi.errors import InputError
from mu2mpi.execution.keys import Keys
from mu2mpi.registry import find, names
from mu2mpi.toml import read_toml

optional_counts = st.none() | st.integers(1, 10**6)
experiments = st.builds(
    Experiment,
    data=st.sampled_from(["digits", "mnist", "synthetic", "population"]),
    server=st.sampled_from(names("servers")),
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
    assert Experiment.make(tomllib.loads(experiment.to_toml())) == experiment


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rho": 0}, ["rho", "greater than 0"]),
        ({"rho": -1}, ["rho", "greater than 0"]),
        ({"rho": "nan"}, ["rho", "greater than 0"]),
        ({"rho": "four"}, ["rho", "four", "number"]),
        ({"rho": 9e-101}, ["rho = 9e-101 should lie in 1e-100 .. 1e+100, or be inf for no noise"]),
        ({"rho": 10**400}, ["rho", "valid number"]),
        ({"epsilon": 1.1e100}, ["epsilon = 1.1e+100 should lie in"]),
        ({"delta": 0}, ["delta", "greater than or equal to 1e-300"]),
        ({"delta": 5e-324}, ["delta", "greater than or equal to 1e-300"]),
        ({"delta": 1}, ["delta", "less than 1"]),
        ({"diameter": 0}, ["diameter"]),
        ({"diameter": math.inf}, ["diameter"]),
        ({"machines": 0}, ["machines", "greater than or equal to 1"]),
        ({"machines": 2.5}, ["machines"]),
        ({"rounds": 0}, ["rounds"]),
        ({"seed": -1}, ["seed"]),
        ({"evaluations": 0}, ["evaluations"]),
        ({"evaluations": 2**32}, ["evaluations", "less than 4294967296"]),
        ({"data": "synthetic", "samples": 2**70}, ["samples", "less than 4294967296"]),
        ({"partition": "labels:1" + 5000 * "0"}, ["partition", "labels:2"]),
        ({"partition": "dirichlet:" + 400 * "9"}, ["partition", "dirichlet:0.3"]),
        ({"partition": "dirichlet:0." + 400 * "0" + "1"}, ["partition", "dirichlet:0.3"]),
        ({"server": "honest"}, ["server", "honest", "aggregated, shuffled, trusted, untrusted"]),
        ({"data": "cifar"}, ["data", "cifar", "mnist"]),
        ({"clip_norm": 0}, ["clip_norm"]),
        ({"normalize": "max"}, ["normalize", "'none', 'unit' or 'box'"]),
        ({"diameter": 1e200}, ["diameter"]),
        ({"seed": True}, ["seed", "boolean"]),
        ({"rho": [4.0, 8.0]}, ["rho", "mu2mpi sweep"]),
        ({"machnies": 3}, ["unknown option 'machnies'", "did you mean machines?"]),
        ({"data": "mnist", "classes": 5}, ["classes", "synthetic or population only", "mnist"]),
        ({"rho": 0, "delta": 2}, ["rho", "delta"]),
        ({"epsilon": 0}, ["epsilon", "greater than 0"]),
        ({"epsilon": 2, "rho": 1}, ["rho and epsilon are both given"]),
        ({"epsilon": 2, "rho": 4.0}, ["rho and epsilon are both given"]),
    ],
)
def test_bad_settings_are_named_with_what_is_allowed(settings, words):
    with pytest.raises(InputError) as caught:
        Experiment.make(settings, "a.toml")
    for word in [*words, "a.toml"]:
        assert word in str(caught.value)


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
    experiment = Experiment.make({name: end, "delta": delta})
    assert 0 < experiment.rho < math.inf
    assert 0 <= experiment.target_epsilon < math.inf


def test_infinite_epsilon_is_no_noise():
    assert Experiment(epsilon=math.inf).rho == math.inf


def test_epsilon_is_what_is_kept_and_rho_follows():
    experiment = Experiment(epsilon=2.0, delta=1e-6, seed=1)
    toml = tomllib.loads(experiment.to_toml())
    assert toml["epsilon"] == 2.0
    assert "rho" not in toml
    assert Experiment.make(toml) == experiment
    assert experiment.settings()["rho"] == experiment.rho
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    assert experiment.model_copy(update={"machines": 3}).rho == experiment.rho
    assert (
        len({experiment, Experiment(epsilon=2.0, delta=1e-6, seed=1), Experiment(epsilon=2.0, seed=1)}) == 2
    )
    assert difference(experiment, Experiment(rho=experiment.rho, delta=1e-6, seed=1)) == (
        "epsilon is 2.0 here and unset there"
    )


def test_noise_is_that_of_the_rho_which_epsilon_gives():
    """And differs wherever rho does: a difference of messages must not be without noise."""
    whole = {"machines": 2, "rounds": 5}
    calibrated = Experiment(epsilon=2.0, **whole)
    key = Keys.noise_key(bytes(32), calibrated)
    assert key == Keys.noise_key(bytes(32), Experiment(rho=calibrated.rho, **whole))
    assert key != Keys.noise_key(bytes(32), Experiment(epsilon=2.0, delta=1e-6, **whole))
    assert key != Keys.noise_key(bytes(32), Experiment(epsilon=2.5, **whole))


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


def test_options_are_one_list_with_those_of_methods_behind_the_method():
    listed = list(option_fields())
    assert len(listed) == len(set(listed))
    place = listed.index("method") + 1
    own = list(method_options())
    assert listed[place : place + len(own)] == own
    assert {"estimator", "query", "preset", "batch"} <= set(own)
    assert "batch" in method_options()
    assert set(method_options(presets=False)) == set(own) - {"preset"}
    # An option that several methods have says what it means to each.
    text = option_fields()["batch"].description
    assert option_fields()["batch"].title.startswith("samples ")
    assert text.startswith("accelerated-srgd: ")
    assert "dp-sgd: samples that are expected" in text
    assert "noisy-minibatch-sgd: samples K" in text
    assert choices(option_fields()["estimator"]) == ("corrected-momentum", "gradient")
    assert choices(option_fields()["method"]) == tuple(names("methods"))
    assert choices(option_fields()["rho"]) is None


def test_options_of_other_methods_are_none():
    settings = {"dp-sgd": {"server": "trusted"}, "storm": {"clip_norm": 1.0}}
    for name in names("methods"):
        experiment = Experiment(method=name, **settings.get(name, {}))
        own = find("methods", name).options.model_fields
        for option in method_options():
            expected = own[option].default if option in own else None
            assert getattr(experiment, option) == expected
            assert option in own or option not in experiment.settings()
    with pytest.raises(AttributeError, match="machnies"):
        Experiment().machnies  # noqa: B018


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"batch": 3},
            "batch applies to method = accelerated-srgd or dp-gd or dp-sgd or noisy-minibatch-sgd only, and "
            "method is mu2-sgd",
        ),
        ({"method": "anytime-sgd", "estimator": "gradient"}, "estimator applies to method = mu2-sgd only"),
        (
            {"method": "dp-sgd", "server": "trusted", "query": "average"},
            "query applies to method = mu2-sgd only",
        ),
    ],
)
def test_an_option_of_another_method_is_refused(settings, words):
    with pytest.raises(InputError, match=words):
        Experiment(**settings)
    # What is unset may stand there, as it does in a row of a table.
    unset = {name: None for name in method_options() if name in settings}
    Experiment(**{**settings, **unset})


def test_all_unknown_options_are_named_with_what_they_may_mean_or_all_there_are():
    with pytest.raises(InputError) as caught:
        Experiment(machnies=3, rhoo=1.0)
    lines = str(caught.value).splitlines()
    assert [line.split(";")[0] for line in lines] == ["unknown option 'machnies'", "unknown option 'rhoo'"]
    assert [line.split("; ")[1] for line in lines] == ["did you mean machines?", "did you mean rho?"]
    with pytest.raises(InputError) as caught:
        Experiment(quux=1)
    assert str(caught.value).endswith(f"the options are {', '.join(option_fields())}")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"estimator": "momentum"}, r"estimator = 'momentum' should be 'corrected-momentum' or 'gradient'"),
        ({"method": "dp-sgd", "server": "trusted", "batch": 0}, r"batch = 0 should be greater than or equal"),
        ({"method": "dp-sgd", "server": "trusted", "batch": True}, r"batch = True should be a number"),
        ({"method": "sgd"}, r"method = 'sgd' should be .*mu2-sgd.*snowball-sgd"),
        (
            {"mechanism": "laplace"},
            r"mechanism = 'laplace' should be binomial, correlated, gaussian, last-iterate, poisson",
        ),
        ({"loss": "hinge"}, r"loss = 'hinge' should be .*softmax"),
        ({"method": "dp-sgd"}, r"dp-sgd has noise for the sum .* give --server trusted or aggregated"),
        ({"query": "iterate"}, r"needs a clip_norm"),
    ],
)
def test_methods_say_what_they_need(settings, words):
    with pytest.raises(InputError, match=words):
        Experiment(**settings)


def test_a_change_is_checked():
    experiment = Experiment(machines=3, rho=2.0, seed=1)
    for change in ({"rho": -5}, {"machines": 0}, {"rhoo": 1}, {"batch": 3}, {"method": "dp-sgd"}):
        with pytest.raises(InputError):
            experiment.having(**change)
        with pytest.raises(InputError):
            experiment.model_copy(update=change)
    assert experiment.model_copy() == experiment
    assert experiment.having(seed=None) == Experiment(machines=3, rho=2.0)
    # Of rho and epsilon, the later takes the place of the earlier.
    assert experiment.having(epsilon=1.0) == Experiment(machines=3, epsilon=1.0, seed=1)
    assert experiment.having(epsilon=1.0).having(rho=2.0) == experiment
    switched = experiment.having(method="dp-sgd", server="trusted", batch=5)
    assert (switched.batch, switched.estimator) == (5, None)
    assert pickle.loads(pickle.dumps(switched)) == switched
    assert len({switched, experiment, switched.having(batch=5), switched.having(batch=6)}) == 3


def test_what_is_given_is_known():
    experiment = Experiment(rho=4.0, estimator="gradient")
    assert experiment.given == {"rho", "estimator"}
    assert experiment.chosen_method.name == "anytime-sgd"
    assert experiment.chosen_mechanism == "gaussian"
    assert Experiment(method="dp-sgd", server="trusted").chosen_mechanism == "poisson"
    assert Experiment(mechanism="replacement").chosen_mechanism == "replacement"


def test_experiments_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Experiment().rho = 3.0  # type: ignore[misc]


def test_first_difference_is_named():
    assert difference(Experiment(rho=4), Experiment(rho=4)) is None
    assert difference(Experiment(rho=4), Experiment(rho=8)) == "rho is 4.0 here and 8.0 there"
    assert "unset" in str(difference(Experiment(), Experiment(seed=1)))


def test_default_name():
    experiment = Experiment(machines=2, seed=5)
    assert result_name(experiment) == "digits_untrusted_machines-2_rho-4_seed-5.h5"
    calibrated = Experiment(machines=2, seed=5, epsilon=2)
    assert result_name(calibrated) == "digits_untrusted_machines-2_epsilon-2_seed-5.h5"
    other = Experiment(machines=1, method="snowball-sgd")
    assert result_name(other) == "digits_snowball-sgd_untrusted_machines-1_rho-4.h5"
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


def test_texts_that_a_name_cannot_hold_tell_it_apart_all_the_same():
    texts = ["a", "b/a", "c/a", "a b", "a-b", "a_b", "a" * 60, "a" * 61, "a_features-b"]
    settings = [{"labels": text} for text in texts] + [{"labels": "a", "features": "b"}]
    settings += [{"data": f"{text}.csv"} for text in ("a", "b/a", "/b/a", "a b", "a_b", "a-b")]
    names = {result_name(Experiment(**{"data": "x.csv", "machines": 2, **of_one})) for of_one in settings}
    assert len(names) == len(settings)


def test_unreadable_configurations(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rho = = 3")
    with pytest.raises(InputError, match=r"bad\.toml is not valid TOML"):
        read_toml(tmp_path / "bad.toml")
    for name, text in {"long": 5000 * "9", "deep": 5000 * "["}.items():
        (tmp_path / f"{name}.toml").write_text(f"rho = {text}")
        with pytest.raises(InputError, match=rf"{name}\.toml is not valid TOML"):
            read_toml(tmp_path / f"{name}.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml"):
        read_toml(tmp_path / "binary.toml")
