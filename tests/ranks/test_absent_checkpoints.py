"""Machines that are away: runs that stop go on to the same bits, with the same files, and on any ranks."""

import sys

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import found_checkpoint, signalled, simulated, stopped_state
from helpers.launch import mpirun
from helpers.slow import slow
from helpers.unequal_machines import owned_source, write_budgets

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.execution.resume import check_checkpoint_arrays
from mu2mpi.results.checkpoint import write_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

SIZES = [19, 4, 11, 7]
WAYS = [
    {"participation": "uniform:2"},
    {"participation": "by-size"},
    {"participation": "by-size", "noise_correlation": 0.5},
    {"participation": "bernoulli:0.5", "method": "anytime-dp-mf"},
    {"participation": "by-size", "estimator": "gradient"},
]


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("settings", WAYS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_going_on_gives_the_bits_of_an_unbroken_run(server, settings, tmp_path):
    """With noise of every machine that ever was there, whoever is away just then."""
    source, path = owned_source(1, SIZES, 6, 3), tmp_path / "a.h5"
    experiment = Experiment(server=server, seed=9, clip_norm=0.9, **settings)
    unbroken = simulated(experiment, source)
    for t in (1, 2, unbroken.experiment.rounds // 2, unbroken.experiment.rounds):
        write_checkpoint(stopped_state(experiment, source, t), checkpoint_path(path))
        state = found_checkpoint(path, experiment)
        check_checkpoint_arrays(state, resolve_plan(experiment, source, 1), path)
        found = simulated(experiment, source, state)
        assert_same(found, unbroken)
        assert found.accounts.differences(unbroken.accounts) == []
        checkpoint_path(path).unlink()


def write_data(path):
    """Write samples with their owners, of unequal sizes."""
    random, owners = np.random.default_rng(0), np.repeat(["a", "b", "c"], [260, 90, 150])
    np.savez(
        path, features=random.uniform(-1, 1, (500, 4)), labels=random.integers(0, 2, 500), machine=owners
    )


@pytest.mark.parametrize("changed", ["budgets", "trace", "neither"])
def test_a_run_goes_on_only_with_the_files_about_machines_with_which_it_began(changed, tmp_path, capsys):
    """Else what is sent again under the same noise would tell what was changed."""
    data, output = tmp_path / "a.npz", tmp_path / "result.h5"
    write_data(data)
    budgets, trace = tmp_path / "b.toml", tmp_path / "t.csv"
    write_budgets(budgets, rho={"a": 1.0})
    rows = [f"{t},{who}" for t in range(1, 41) for who in "abc" if (t + ord(who)) % 3]
    trace.write_text("\n".join(["round,machine", *rows, ""]))
    words = ["run", "--data", str(data), "--budgets", str(budgets), "--participation", f"trace:{trace}"]
    words += ["--rounds", "40", "-o", str(output)]
    experiment = Experiment(data=str(data), budgets=str(budgets), participation=f"trace:{trace}", rounds=40)
    write_checkpoint(stopped_state(experiment, open_source(experiment), 20), checkpoint_path(output))
    before = checkpoint_path(output).read_bytes()
    if changed == "budgets":
        write_budgets(budgets, rho={"a": 1.5})
    if changed == "trace":
        trace.write_text("\n".join(["round,machine", *rows[:-1], ""]))
    capsys.readouterr()
    code, said = main(words), capsys.readouterr().err
    if changed == "neither":
        assert code == 0, said
        assert read_result(output).accounts.rho_budget.tolist() == [1.0, 4.0, 4.0]
        return
    assert code == 2
    assert "a file about machines" in said
    assert checkpoint_path(output).read_bytes() == before
    assert not output.exists()


RUNS = [
    ["--participation", "uniform:2", "--server", "untrusted"],
    ["--participation", "by-size", "--server", "trusted"],
    ["--participation", "by-size", "--noise-correlation", "0.5"],
]
COMMANDS = f"""
import sys
from mu2mpi.cli import main
data, folder = sys.argv[1:]
for name, words in enumerate({RUNS}):
    output = f"{{folder}}/{{name}}.h5"
    if main(["run", "--data", data, "--seed", "7", *words, "--output", output]):
        sys.exit(1)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the data, and the results of one process."""
    folder = tmp_path_factory.mktemp("alone")
    write_data(folder / "a.npz")
    for name, words in enumerate(RUNS):
        output = folder / f"{name}.h5"
        assert main(["run", "--data", str(folder / "a.npz"), "--seed", "7", *words, "-o", str(output)]) == 0
    return folder / "a.npz", [read_result(folder / f"{name}.h5") for name in range(len(RUNS))]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "library"), [(2, "this"), *slow((3, "this"), (5, "this"), (2, "other"))])
def test_the_same_bits_on_any_number_of_ranks_with_any_library(ranks, library, alone, tmp_path, request):
    data, expected = alone
    python = sys.executable if library == "this" else request.getfixturevalue("other_python")
    job = mpirun(ranks, "-c", COMMANDS, data, tmp_path, python=python)
    assert job.returncode == 0, job.stderr
    for name, result in enumerate(expected):
        assert_same(read_result(tmp_path / f"{name}.h5"), result)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("words", RUNS, ids=lambda words: "-".join(words[1::2]))
def test_of_ranks_of_which_one_is_killed_others_go_on_to_the_same_bits(words, tmp_path, moments):
    arguments = ["--data", "synthetic", "--samples", "600", "--machines", "4", "--seed", "7", *words]
    output, unbroken = tmp_path / "a.h5", tmp_path / "unbroken.h5"
    assert main(["run", *arguments, "--output", str(unbroken)]) == 0
    killed = signalled(3, "SIGKILL", 2, moments.randrange(2, 60), "run", *arguments, "--output", output)
    assert killed.returncode != 0
    resumed = mpirun(2, "-m", "mu2mpi", "run", *arguments, "--output", output)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after round" in resumed.stderr
    assert_same(read_result(output), read_result(unbroken))
