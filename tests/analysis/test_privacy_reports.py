"""Claims of valid and of edited result files."""

import math
import re
import tomllib

import h5py
import pytest
from helpers import reference as ref

from mu2mpi.analysis.description import KEY_DISCARDED_NOTE, describe_result
from mu2mpi.analysis.privacy_reports import check_privacy_claims, claim_contradictions
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

RUNS = {
    "plain": {"server": "untrusted", "rho": 4.0, "seed": 1},
    "secret": {"server": "trusted", "rho": 0.5},
    "calibrated": {"server": "trusted", "epsilon": 2.0, "delta": 1e-6, "seed": 1},
    "clipped": {"server": "untrusted", "rho": 1.0, "clip_norm": 1.5, "seed": 2},
    "practical": {"server": "trusted", "epsilon": 1.0, "preset": "practical", "seed": 2},
    "aggregate": {"server": "untrusted", "rho": 1.0, "noise": "aggregate", "seed": 2},
    "minibatch": {"method": "noisy-minibatch-sgd", "epsilon": 1.0, "batch": 30, "seed": 2},
    "poisson": {"method": "dp-sgd", "server": "trusted", "rho": 0.5, "seed": 2},
    "objective": {"method": "objective-perturbation", "server": "trusted", "epsilon": 2.0, "seed": 2},
    "silent": {"server": "untrusted", "rho": float("inf"), "seed": 3},
    "aggregated": {"server": "aggregated", "rho": 1.0, "seed": 3},
    "unmasked": {"server": "aggregated", "masks": "none", "rho": 1.0, "seed": 3},
    "shuffled": {"server": "shuffled", "rho": 1.0, "seed": 3},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a real result of each kind."""
    folder = tmp_path_factory.mktemp("ledgers")
    for name, settings in RUNS.items():
        run(Experiment(machines=3, rounds=20, **settings), output=folder / f"{name}.h5")
    return folder


def contradicted(path):
    return "\n".join(claim_contradictions(read_result(path)))


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_writes_holds(made, name):
    text, problems = check_privacy_claims([made / f"{name}.h5"])
    assert problems == []
    (row,) = (line.split() for line in text.splitlines() if "agrees" in line)
    # Only a rho has an epsilon by the lemma.
    assert ("none" in row) == ("–" in row) == (name in ("minibatch", "poisson", "objective"))


def test_an_experiment_with_epsilon_keeps_its_promise(made):
    privacy = read_result(made / "calibrated.h5").privacy
    assert 2 * (1 - 1 / 400) < privacy.epsilon_exact <= 2
    assert ref.gaussian_delta(2.0, privacy.rho) <= 1e-6


def changed(source, target, action):
    """Copy a file and change it as another program would."""
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+") as file:
        action(file)
    return target


def attribute(**values):
    return lambda file: file["privacy"].attrs.update(values)


def scaled(**factors):
    def action(file):
        for name, factor in factors.items():
            value = file["privacy"].attrs[name]
            file["privacy"].attrs[name] = type(value)(value * factor)

    return action


def spent_by_half(file):
    file["history/rho_spent"][...] = file["history/rho_spent"][()] / 2


def reversed_rounds(file):
    file["history/round"][...] = file["history/round"][()][::-1]


def no_history(file):
    for name in list(file["history"]):
        values = file[f"history/{name}"][:0]
        del file[f"history/{name}"]
        file[f"history/{name}"] = values


CHANGES = [
    ("plain", spent_by_half, "rho_spent by round 1 is 0.4472135955"),
    ("plain", reversed_rounds, "/history"),
    ("plain", no_history, "/history"),
    ("plain", scaled(samples=2), "60 samples"),
    ("minibatch", attribute(samples=10_000), "epsilon_exact = 0.99"),
    ("minibatch", attribute(mechanism="gaussian", rho=0.5, affected_sums=20), "mechanism = gaussian"),
    ("poisson", attribute(sigma=1.0), "sigma = 1"),
    ("poisson", attribute(mechanism="gaussian", rho=0.5, affected_sums=20), "mechanism is gaussian"),
    # All alike, so that the statement agrees with itself.
    ("minibatch", scaled(samples=10, sigma=1 / 10), "1,800"),
    ("poisson", scaled(samples=2), "/history"),
    ("objective", scaled(regularization=2), "regularization is"),
    ("objective", scaled(samples=2), "2,874 by"),
    ("shuffled", scaled(noise_shares=1.5, sigma=math.sqrt(1.5)), "noise_shares is 3"),
    ("shuffled", scaled(fair_bits=1 / 4, sigma=1 / 2), "rho = 1"),
    ("shuffled", scaled(increments_per_message=2), "increments_per_message is 40"),
    ("aggregated", scaled(noise_shares=1.5), "noise_shares is 3"),
]
"""That of single attributes are below."""


@pytest.mark.parametrize(("name", "action", "named"), CHANGES)
def test_a_changed_file_is_found_out(made, tmp_path, name, action, named):
    assert named in contradicted(changed(made / f"{name}.h5", tmp_path / "changed.h5", action))


def test_what_is_out_of_range_is_refused_with_the_name_of_the_file(made, tmp_path):
    path = changed(made / "poisson.h5", tmp_path / "changed.h5", attribute(batch_size=500.0))
    with pytest.raises(InputError, match=r"changed\.h5.*batch_size = 500\.0"):
        read_result(path)


def with_experiment(changes):
    """Return what gives a file another experiment; None stands for an option that is left out."""

    def action(file):
        settings = {**tomllib.loads(file.attrs["experiment"].decode()), **changes}
        stated = {name: value for name, value in settings.items() if value is not None}
        file.attrs["experiment"] = Experiment.from_settings(stated).to_toml()

    return action


SWITCHES = {"estimator": None, "query": None, "batch": None}


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("plain", {"rounds": 2**31}, "rounds is 20"),
        ("plain", {"estimator": "gradient"}, "affected_sums is 20"),
        ("plain", {"method": "parallel-sgd", **SWITCHES}, "S is 17.9"),
        ("plain", {"diameter": 5.0}, "clip_norm is 17.9"),
        ("plain", {"noise": "aggregate"}, "noise is protocol"),
        ("plain", {"rho": None, "epsilon": 0.5}, "at most 0.5"),
        ("plain", {"seed": None}, "noise_recomputable is True"),
        ("calibrated", {"epsilon": 1.9}, "at most 1.9"),
        ("aggregated", {"server": "trusted", "colluders": None, "masks": None}, "server is aggregated"),
        ("shuffled", {"colluders": 2}, "noise_shares is 2"),
        ("minibatch", {"batch": 10**6}, "--batch must be at most 479"),
        ("minibatch", {"method": "mu2-sgd", **SWITCHES}, "mechanism = replacement-exact"),
        ("poisson", {"batch": 1}, "batch_size is 85.3"),
        ("poisson", {"rounds": 2**31}, "2147483648"),
        ("objective", {"diameter": 5.0}, "regularization is"),
        ("objective", {"method": "parallel-sgd"}, "mechanism = objective-perturbation"),
        ("silent", {"rho": 1.0}, "rho is inf"),
    ],
)
def test_an_experiment_that_is_not_that_of_the_run_is_found_out(made, tmp_path, name, changes, named):
    path = changed(made / f"{name}.h5", tmp_path / "changed.h5", with_experiment(changes))
    assert named in contradicted(path)


def odd_values(value):
    """Return what a program that is wrong, or means ill, may write in place of an attribute."""
    if isinstance(value, str | bytes):
        return ["", "x", 5]
    numbers = [0, -1, 2**62, "x", 2.5] if value.dtype.kind in "iu" else [0.0, -1.0, math.nan, math.inf, "x"]
    return [other for other in [*numbers, value / 2, value * 2] if other != value]


@pytest.mark.parametrize("name", ["plain", "aggregate", "minibatch", "shuffled"])
def test_no_attribute_may_be_another_or_absent(made, tmp_path, name):
    """Neither breaks the check: what is there is contradicted, and what is of no use is named."""
    source, path = made / f"{name}.h5", tmp_path / "changed.h5"
    with h5py.File(source) as file:
        stated = dict(file["privacy"].attrs)
    for attribute_name, value in stated.items():
        for other in odd_values(value):
            changed(source, path, attribute(**{attribute_name: other}))
            try:
                found = contradicted(path)
            except InputError as error:
                found = str(path) in str(error)
            assert found, f"{attribute_name} = {other!r}"
        changed(source, path, lambda file, absent=attribute_name: file["privacy"].attrs.pop(absent))
        with pytest.raises(InputError, match=re.escape(str(path))):
            read_result(path)


@pytest.mark.parametrize(
    "stated",
    [
        {"mechanism": "magic"},
        {"rho": 1.0},
        {"sigma": "large"},
        {"rounds": 20.5},
        {"mechanism": "gaussian"},
        {"protects": "last iterate"},
    ],
)
def test_a_statement_that_cannot_be_read_is_refused(made, tmp_path, stated):
    path = changed(made / "poisson.h5", tmp_path / "changed.h5", attribute(**stated))
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_result(path)


def test_a_mismatch_is_an_error_with_code_1(made, tmp_path, capsys):
    path = changed(made / "plain.h5", tmp_path / "changed.h5", attribute(sigma=1.0))
    assert main(["privacy", str(made / "plain.h5")]) == 0
    capsys.readouterr()
    assert main(["privacy", str(made / "plain.h5"), str(path)]) == 1
    said = capsys.readouterr()
    assert "MISMATCH" in said.out
    assert all(str(path) in line for line in said.err.splitlines() if "claimed" in line)


def test_several_runs_on_the_same_data_add_up_and_remarks_are_made_once(made):
    names = ("plain", "clipped", "secret")
    text = " ".join(check_privacy_claims([made / f"{name}.h5" for name in names])[0].split())
    # 4^2 + 1^2 + 0.5^2
    assert "rho = 4.154" in text
    assert text.count(KEY_DISCARDED_NOTE) == text.count("The noise follows from the seed") == 1
    assert "Composition" not in check_privacy_claims([made / "plain.h5"])[0]
    # Where not all have a rho, epsilons and deltas do: 1 + 2 and 1e-5 + 1e-6.
    text = " ".join(check_privacy_claims([made / "minibatch.h5", made / "calibrated.h5"])[0].split())
    assert "at most epsilon = 2.994 at delta = 1.1e-05" in text


@pytest.mark.parametrize("name", ["plain", "secret", "silent"])
def test_of_a_run_without_a_seed_it_is_said_that_its_key_is_gone(made, name):
    shown = " ".join(describe_result(read_result(made / f"{name}.h5"), made / f"{name}.h5").split())
    assert shown.count(KEY_DISCARDED_NOTE) == (name == "secret")


def test_nothing_is_passed_over(made, tmp_path):
    (tmp_path / "half.h5").write_bytes((made / "plain.h5").read_bytes()[:3000])
    with pytest.raises(InputError, match=r"half\.h5"):
        check_privacy_claims([made, tmp_path])


def flat(text):
    return " ".join(text.split())
