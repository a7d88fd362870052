"""An experiment: defaults, TOML there and back, messages that say what is allowed, sweeps."""

import math
import pickle
import tomllib

import pytest
import reference as ref
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.config.experiment import Experiment, Sweep, read_toml, result_name
from mu2mpi.errors import InputError
from mu2mpi.execution.plan import Keys

optional_counts = st.none() | st.integers(1, 10**6)
experiments = st.builds(
    Experiment,
    data=st.sampled_from(["digits", "mnist", "synthetic", "population"]),
    server=st.sampled_from(["untrusted", "trusted"]),
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
        ({"delta": 0}, ["delta", "greater than 0"]),
        ({"delta": 1}, ["delta", "less than 1"]),
        ({"diameter": 0}, ["diameter"]),
        ({"diameter": math.inf}, ["diameter"]),
        ({"machines": 0}, ["machines", "greater than or equal to 1"]),
        ({"machines": 2.5}, ["machines"]),
        ({"rounds": 0}, ["rounds"]),
        ({"seed": -1}, ["seed"]),
        ({"evaluations": 0}, ["evaluations"]),
        ({"server": "honest"}, ["server", "honest", "'untrusted' or 'trusted'"]),
        ({"data": "cifar"}, ["data", "cifar", "mnist"]),
        ({"clip_norm": 0}, ["clip_norm"]),
        ({"normalize": "max"}, ["normalize", "'none', 'unit' or 'box'"]),
        ({"diameter": 1e200}, ["diameter"]),
        ({"seed": True}, ["seed", "boolean"]),
        ({"rho": [4.0, 8.0]}, ["rho", "mu2mpi sweep"]),
        ({"machnies": 3}, ["unknown option 'machnies'", "machines", "rho", "seed"]),
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
    assert experiment.difference(Experiment(rho=experiment.rho, delta=1e-6, seed=1)) == (
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


def test_options_at_their_meaning_in_older_files_leave_toml_as_it_was():
    assert Experiment(normalize="none").to_toml() == Experiment().to_toml()
    assert "normalize" not in Experiment().to_toml()
    assert Experiment(normalize="unit").settings()["normalize"] == "unit"


def test_experiments_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Experiment().rho = 3.0  # type: ignore[misc]


def test_first_difference_is_named():
    assert Experiment(rho=4).difference(Experiment(rho=4)) is None
    assert Experiment(rho=4).difference(Experiment(rho=8)) == "rho is 4.0 here and 8.0 there"
    assert "unset" in str(Experiment().difference(Experiment(seed=1)))


def test_sweep_is_the_product_of_its_lists():
    sweep = Sweep({"server": ["untrusted", "trusted"], "rho": [4, 8.0, math.inf], "machines": 3, "seed": [1]})
    assert len(sweep.experiments) == 6
    assert [e.rho for e in sweep.experiments[:3]] == [4, 8, math.inf]
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[0] == "untrusted_rho-4_seed-1.h5"
    assert names[5] == "trusted_rho-inf_seed-1.h5"
    assert len(set(names)) == 6
    assert sweep.choose(5) == [(5, sweep.experiments[5])]


def test_sweep_over_epsilon():
    sweep = Sweep({"epsilon": [0.5, 2], "delta": [1e-5, 1e-6]})
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[:2] == ["epsilon-0.5_delta-1e-05.h5", "epsilon-0.5_delta-1e-06.h5"]
    assert len({e.rho for e in sweep.experiments}) == 4
    with pytest.raises(InputError, match="both given"):
        Sweep({"epsilon": [0.5, 2], "rho": [1, 2]}, "a.toml")


def test_methods_of_a_sweep_are_named_by_what_they_choose():
    parts = [{"method": "dp-sgd"}, {"estimator": ["corrected-momentum", "gradient"], "query": "average"}]
    sweep = Sweep({"server": "trusted", "seed": [1], "part": parts})
    assert [sweep.file_name(experiment) for experiment in sweep.experiments] == [
        "seed-1_dp-sgd.h5",
        "seed-1_mu2-sgd_corrected-momentum_average.h5",
        "seed-1_mu2-sgd_gradient_average.h5",
    ]


def test_close_values_of_a_sweep_get_different_names():
    sweep = Sweep({"rho": [4.0, 4.0000001], "clip_norm": [1e-7, 2e-7]})
    assert len({sweep.file_name(e) for e in sweep.experiments}) == 4


def test_parts_of_a_sweep_are_sweeps_of_their_own():
    settings = {
        "rho": 4.0, "seed": [1, 2],
        "part": [{"machines": [2, 4], "rounds": 10}, {"machines": 2, "rounds": [10, 20], "rho": math.inf}],
    }  # fmt: skip
    sweep = Sweep(settings)
    found = [(e.machines, e.rounds, e.rho, e.seed) for e in sweep.experiments]
    first = [(m, 10, 4.0, s) for s in (1, 2) for m in (2, 4)]
    assert found == first + [(2, t, math.inf, s) for s in (1, 2) for t in (10, 20)]
    assert sweep.swept == ["seed", "machines", "rounds", "rho"]
    assert len({sweep.file_name(e) for e in sweep.experiments}) == 8
    # What two parts share is run once, and an option replaces what any part says.
    once = Sweep(settings, overrides={"rho": 8.0, "machines": 2})
    assert [(e.machines, e.rounds, e.rho, e.seed) for e in once.experiments] == [
        (2, 10, 8.0, 1), (2, 10, 8.0, 2), (2, 20, 8.0, 1), (2, 20, 8.0, 2)
    ]  # fmt: skip
    assert once.swept == ["seed", "rounds"]


@pytest.mark.parametrize("part", [3, [], {"rho": 1}, [1], [{"rhoo": 1}], [{"seed": []}]])
def test_bad_parts(part):
    with pytest.raises(InputError, match=r"a\.toml: "):
        Sweep({"part": part}, "a.toml")


@pytest.mark.parametrize("bad", [[], [1, 1], [[1]]])
def test_bad_lists(bad):
    with pytest.raises(InputError):
        Sweep({"seed": bad}, "a.toml")


@pytest.mark.parametrize("index", [-1, 6])
def test_index_out_of_range(index):
    with pytest.raises(InputError, match=r"0 \.\. 5"):
        Sweep({"seed": [1, 2, 3], "rho": [1, 2]}).choose(index)


def test_default_name():
    experiment = Experiment(machines=2, seed=5)
    assert result_name(experiment) == "digits_untrusted_machines-2_rho-4_seed-5.h5"
    calibrated = Experiment(machines=2, seed=5, epsilon=2)
    assert result_name(calibrated) == "digits_untrusted_machines-2_epsilon-2_seed-5.h5"
    other = Experiment(machines=1, method="snowball-sgd")
    assert result_name(other) == "digits_snowball-sgd_untrusted_machines-1_rho-4.h5"
    switched = Experiment(machines=1, estimator="gradient", query="iterate")
    assert result_name(switched) == "digits_gradient_iterate_untrusted_machines-1_rho-4.h5"


def test_unreadable_configurations(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rho = = 3")
    with pytest.raises(InputError, match=r"bad\.toml is not valid TOML"):
        read_toml(tmp_path / "bad.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary\.toml"):
        read_toml(tmp_path / "binary.toml")
