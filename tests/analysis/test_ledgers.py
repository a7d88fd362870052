"""Files whose claims hold, and files that were changed."""

import math
import re
import tomllib

import h5py
import pytest
import reference as ref

from mu2mpi.analysis.ledgers import check_ledgers, contradictions
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
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
    "snowball": {"method": "snowball-sgd", "server": "trusted", "rho": 2.0, "seed": 2},
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


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_writes_holds(made, name):
    text, problems = check_ledgers([made / f"{name}.h5"])
    assert problems == []
    assert "agrees" in text
    assert "MISMATCH" not in text
    assert "/diagnostics" in text
    assert "learns at most this about one sample of one machine (replace-one)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "mechanism"), [("minibatch", "replacement"), ("poisson", "poisson"), ("plain", None)]
)
def test_only_a_rho_has_an_epsilon_by_the_lemma(made, name, mechanism):
    (row,) = (line for line in check_ledgers([made / f"{name}.h5"])[0].splitlines() if "agrees" in line)
    assert (f"({mechanism}) – agrees" in " ".join(row.split())) == bool(mechanism)
    assert ("none" in row.split()) == bool(mechanism)


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


def attributes(**values):
    return lambda file: file["privacy"].attrs.update(values)


def attribute(name, value):
    return attributes(**{name: value})


def spent_by_half(file):
    file["history/rho_spent"][...] = file["history/rho_spent"][()] / 2


def experiment_with(name, value):
    def action(file):
        settings = {"machines": 3, "rounds": 20, **RUNS["plain"], name: value}
        file.attrs["experiment"] = Experiment(**settings).to_toml()

    return action


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (attribute("sigma", 1.0), "rho = 4 is claimed"),
        (attribute("rho", 3.9), "rho = 3.9 is claimed"),
        (attribute("epsilon", 20.0), "epsilon = 20 is claimed"),
        (attribute("epsilon_exact", 20.0), "epsilon_exact = 20 is claimed"),
        (attribute("delta", 1e-6), "delta is 1e-06 in /privacy and 1e-05 in the experiment"),
        (attribute("rounds", 21), "rounds is 21 in /privacy and 20"),
        (attribute("machines", 2), "machines is 2 in /privacy and 3"),
        (attribute("parameters", 5), "parameters is 5"),
        (attribute("noise_recomputable", 0), "noise_recomputable is False in /privacy and True"),
        (attribute("server", "trusted"), "server is trusted"),
        (spent_by_half, "rho_spent by round 1 is 0.4472135955 in /history, and 0.894427191 by the noise"),
        (experiment_with("rho", 2.0), "rho is 4.0 in /privacy and 2.0 in the experiment"),
        (experiment_with("clip_norm", 0.5), "in /privacy and 0.5 in the experiment"),
    ],
)
def test_a_changed_file_is_found_out(made, tmp_path, action, words):
    path = changed(made / "plain.h5", tmp_path / "changed.h5", action)
    text, problems = check_ledgers([made / "plain.h5", path])
    assert "MISMATCH" in text
    assert words in "\n".join(problems)
    assert all(problem.startswith(str(path)) for problem in problems)


@pytest.mark.parametrize(
    ("method", "action", "words"),
    [
        ("minibatch", attribute("sigma", 1.0), "is claimed, but 20 rounds with sigma = 1"),
        ("minibatch", attribute("drawn", 1.0), "drawn is 1.0 in /privacy and 30.0 in the experiment"),
        ("minibatch", attribute("samples", 10_000), "epsilon_exact = 0.99"),
        ("poisson", attribute("sigma", 1.0), "is claimed, but 20 rounds with sigma = 1"),
        ("poisson", attribute("samples", 10_000), "is claimed, but"),
        ("poisson", attribute("drawn", 500.0), "drawn = 500.0 is more than samples = 479"),
        (
            "poisson",
            attribute("sigma", 1e-9),
            "no epsilon is computed for sigma = 1e-09 beside clip_norm = 11.4",
        ),
        (
            "poisson",
            attributes(mechanism="gaussian", rho=0.5, touched=20),
            "mechanism is gaussian in /privacy and poisson in the experiment",
        ),
        (
            "minibatch",
            attributes(mechanism="gaussian", rho=0.5, touched=20),
            "mechanism = gaussian makes method = noisy-minibatch-sgd",
        ),
        ("minibatch", attribute("mechanism", "poisson"), "mechanism = poisson makes method"),
        ("poisson", attribute("mechanism", "replacement"), "mechanism = replacement makes method"),
    ],
)
def test_changed_claims_about_samples_drawn_at_random_are_found_out(made, tmp_path, method, action, words):
    path = changed(made / f"{method}.h5", tmp_path / "changed.h5", action)
    assert words in "\n".join(contradictions(read_result(path)))


def scaled(**factors):
    def action(file):
        for name, factor in factors.items():
            value = file["privacy"].attrs[name]
            file["privacy"].attrs[name] = type(value)(value * factor)

    return action


@pytest.mark.parametrize(
    ("name", "action", "words"),
    [
        ("snowball", scaled(growth=30, sigma=1 / 30), ["growth is", "and rho asks for"]),
        ("snowball", scaled(samples=2), ["samples is 204, and batches have 102"]),
        ("minibatch", scaled(samples=10, sigma=1 / 10), ["samples were used by /history, and 1,800 by"]),
        ("poisson", scaled(samples=2), ["samples were used by /history"]),
        ("plain", scaled(samples=2), ["60 samples were used by /history, and 120 by /privacy"]),
        # All alike, so that the statement agrees with itself.
        ("shuffled", scaled(parts=1.5, sigma=math.sqrt(1.5)), ["parts is 3 in /privacy and 2"]),
        ("shuffled", scaled(coins=1 / 4, sigma=1 / 2), ["rho = 1 is claimed", "give 2"]),
        ("shuffled", scaled(summed=2), ["summed is 40 in /privacy and 20 in the experiment"]),
        ("aggregated", scaled(parts=1.5), ["parts is 3 in /privacy and 2 in the experiment"]),
        ("minibatch", scaled(sigma=1 / 100), ["does not follow"]),
    ],
)
def test_less_noise_for_more_samples_is_found_out(made, tmp_path, name, action, words):
    found = "\n".join(contradictions(read_result(changed(made / f"{name}.h5", tmp_path / "f.h5", action))))
    for word in words:
        assert word in found


def test_a_promised_epsilon_that_is_not_kept_is_found_out(made, tmp_path):
    def promise_more(file):
        settings = {"machines": 3, "rounds": 20, **RUNS["calibrated"], "epsilon": 1.9}
        file.attrs["experiment"] = Experiment(**settings).to_toml()

    path = changed(made / "calibrated.h5", tmp_path / "changed.h5", promise_more)
    (problem,) = contradictions(read_result(path))
    assert "at most 1.9 in the experiment" in problem


def with_experiment(changes):
    """Return what gives a file another experiment; None stands for an option that is left out."""

    def action(file):
        settings = {**tomllib.loads(file.attrs["experiment"].decode()), **changes}
        stated = {name: value for name, value in settings.items() if value is not None}
        file.attrs["experiment"] = Experiment.make(stated).to_toml()

    return action


SWITCHES = {"estimator": None, "query": None, "batch": None}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("plain", {"rounds": 10}, "rounds is 20 in /privacy and 10 in the experiment"),
        ("plain", {"rounds": 2**31}, "rounds is 20 in /privacy and 2147483648 in the experiment"),
        ("plain", {"machines": 5}, "machines is 3 in /privacy and 5 in the experiment"),
        ("plain", {"estimator": "gradient"}, "touched is 20 in /privacy and 1 in the experiment"),
        ("plain", {"method": "parallel-sgd", **SWITCHES}, "S is 17.9"),
        ("plain", {"diameter": 5.0}, "clip_norm is 17.9"),
        ("plain", {"normalize": "unit"}, "clip_norm is 17.9"),
        (
            "plain",
            {"mechanism": "poisson"},
            "mechanism is gaussian in /privacy and poisson in the experiment",
        ),
        ("aggregated", {"colluders": 0}, "parts is 2 in /privacy and 3 in the experiment"),
        ("aggregated", {"server": "trusted", "colluders": None, "masks": None}, "server is aggregated in"),
        ("aggregated", {"masks": "none"}, "noise is protocol in /privacy and unmasked in the experiment"),
        ("unmasked", {"masks": "all"}, "noise is unmasked in /privacy and protocol in the experiment"),
        ("shuffled", {"colluders": 2}, "parts is 2 in /privacy and 1 in the experiment"),
        ("plain", {"noise": "aggregate"}, "noise is protocol in /privacy and aggregate in the experiment"),
        ("plain", {"rho": None, "epsilon": 0.5}, "and at most 0.5 in the experiment"),
        ("plain", {"seed": None}, "noise_recomputable is True in /privacy and False in the experiment"),
        ("minibatch", {"batch": 10}, "drawn is 30.0 in /privacy and 10.0 in the experiment"),
        ("minibatch", {"batch": 10**6}, "there is no run of its experiment: batch = 1000000 is more than"),
        ("minibatch", {"rounds": 2**31}, "rounds is 20 in /privacy and 2147483648 in the experiment"),
        ("minibatch", {"method": "mu2-sgd", **SWITCHES}, "mechanism = replacement makes method"),
        ("minibatch", {"epsilon": 0.5}, "and at most 0.5 in the experiment"),
        ("poisson", {"batch": 1}, "drawn is 85.3"),
        ("poisson", {"rounds": 2**31}, "there is no run of its experiment: 2147483648 rounds are too many"),
        ("poisson", {"rho": 0.25}, "and at most 0.9"),
        ("snowball", {"rounds": 1}, "there is no run of its experiment: the last iterate needs at least 2"),
        ("snowball", {"rounds": 2**31}, "rounds = 2147483648 are too many"),
        ("snowball", {"rho": 0.1}, "rho is 2.0 in /privacy and 0.1 in the experiment"),
        ("snowball", {"machines": 1}, "samples is 102 in /privacy and 288 in the experiment"),
        ("snowball", {"method": "parallel-sgd"}, "mechanism = last-iterate makes method"),
        ("snowball", {"mechanism": "gaussian"}, "mechanism is last-iterate in /privacy and gaussian"),
        ("silent", {"rho": 1.0}, "rho is inf in /privacy and 1.0 in the experiment"),
    ],
)
def test_an_experiment_that_is_not_that_of_the_run_is_found_out(made, tmp_path, name, changes, words):
    path = changed(made / f"{name}.h5", tmp_path / "changed.h5", with_experiment(changes))
    assert words in "\n".join(check_ledgers([path])[1])


def odd_values(value):
    """Return what a program that is wrong, or means ill, may write in place of an attribute."""
    if isinstance(value, str):
        return ["", "x", 5]
    numbers = [0, -1, 2**62, "x", 2.5] if value.dtype.kind in "iu" else [0.0, -1.0, math.nan, math.inf, "x"]
    return [other for other in [*numbers, value / 2, value * 2] if other != value]


def outcome_of(path):
    try:
        return "\n".join(contradictions(read_result(path)))
    except InputError as error:
        return f"refused: {error}"


@pytest.mark.parametrize("name", ["plain", "aggregate", "minibatch", "snowball", "shuffled"])
def test_no_attribute_may_be_another_or_absent(made, tmp_path, name):
    """Neither breaks the check: what is there is contradicted, and what is of no use is named."""
    source, path = made / f"{name}.h5", tmp_path / "changed.h5"
    with h5py.File(source) as file:
        stated = dict(file["privacy"].attrs)
    for attribute_name, value in stated.items():
        for other in odd_values(value):
            changed(source, path, attribute(attribute_name, other))
            outcome = outcome_of(path)
            assert outcome, f"{attribute_name} = {other!r}"
            if outcome.startswith("refused"):
                assert str(path) in outcome
        changed(source, path, lambda file, absent=attribute_name: file["privacy"].attrs.pop(absent))
        with pytest.raises(InputError, match=re.escape(f"{path} cannot be used: ")):
            read_result(path)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            attribute("mechanism", "magic"),
            "no 'magic' among the mechanisms, which are binomial, correlated, gaussian, ",
        ),
        (attribute("mechanism", 7), "mechanism = 7 in its privacy statement is no text"),
        (attribute("rho", 1.0), "rho = 1.0 is claimed, and no rho describes 'poisson'"),
        (attribute("sigma", "large"), "sigma = 'large' in its privacy statement is no number"),
        (attribute("rounds", 20.5), "rounds = 20.5 in its privacy statement is no integer"),
        (attribute("mechanism", "gaussian"), "its privacy statement lacks 'rho'"),
        (attribute("protects", "last iterate"), "does not protect 'last iterate'"),
    ],
)
def test_a_statement_that_cannot_be_read_is_refused(made, tmp_path, capsys, action, words):
    path = changed(made / "poisson.h5", tmp_path / "changed.h5", action)
    assert main(["privacy", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"mu2mpi: error: {path} cannot be used: " in said
    assert words in re.sub(r"np\.\w+\(([^)]*)\)", r"\1", said)


def test_a_mismatch_is_an_error_with_code_1(made, tmp_path, capsys):
    path = changed(made / "plain.h5", tmp_path / "changed.h5", attribute("sigma", 1.0))
    assert main(["privacy", str(made / "plain.h5")]) == 0
    assert main(["privacy", str(path)]) == 1
    assert f"mu2mpi: error: {path}: rho = 4 is claimed" in capsys.readouterr().err


def reversed_rounds(file):
    file["history/round"][...] = file["history/round"][()][::-1]


def no_history(file):
    for name in list(file["history"]):
        values = file[f"history/{name}"][:0]
        del file[f"history/{name}"]
        file[f"history/{name}"] = values


@pytest.mark.parametrize("action", [reversed_rounds, no_history])
def test_a_history_that_does_not_end_with_the_run_is_found_out(made, tmp_path, action):
    path = changed(made / "plain.h5", tmp_path / "changed.h5", action)
    found = "\n".join(contradictions(read_result(path)))
    assert "the rounds of /history do not end with the 20 of the experiment" in found


def test_several_runs_on_the_same_data_add_up(made, tmp_path):
    copy = tmp_path / "copy.h5"
    run(Experiment(machines=3, rounds=20, delta=1e-6, **RUNS["plain"]), output=copy)
    names = ("plain", "clipped", "secret")
    text = " ".join(check_ledgers([*(made / f"{name}.h5" for name in names), copy])[0].split())
    # A run that was repeated with its seed sent nothing new: 4^2 + 1^2 + 0.5^2.
    assert "these 3 runs on digits" in text
    assert "rho = 4.154" in text
    assert "Together" not in check_ledgers([made / "plain.h5"])[0]
    # Where not all have a rho, epsilons and deltas do: 1 + 2 and 1e-5 + 1e-6.
    text = " ".join(check_ledgers([made / "minibatch.h5", made / "calibrated.h5"])[0].split())
    assert "these 2 runs on digits released learns at most epsilon = 2.994 at delta = 1.1e-05" in text


def test_each_remark_is_made_once_and_names_its_files(made):
    text = " ".join(check_ledgers([made])[0].split())
    assert text.count("The noise follows from the seed") == 1
    assert text.count("noise = aggregate") == 1
    assert f"{made / 'silent.h5'}: No noise was added" in text
    assert f"{made / 'aggregate.h5'} and 10 more: The noise follows" in text


def test_nothing_is_passed_over(made, tmp_path):
    (tmp_path / "half.h5").write_bytes((made / "plain.h5").read_bytes()[:3000])
    with pytest.raises(InputError, match=r"half\.h5"):
        check_ledgers([made, tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no results in"):
        check_ledgers([tmp_path / "empty"])
