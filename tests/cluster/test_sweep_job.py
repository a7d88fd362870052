"""Number of tasks and summary of jobs, with stand-ins for SLURM commands."""

import math

import pytest

from mu2mpi import cli
from mu2mpi.cluster.sweep_job import TASK_STARTUP_SECONDS, RunCost, choose_task_count, task_seconds

MINUTE = 60.0
SMALL = 'data = "synthetic"\nsamples = 60\nfeatures = 2\nmachines = 2\n'
MANY = f"{SMALL}seed = {list(range(1, 1101))}\n"


def equal(count, seconds, machines=100):
    return [RunCost(seconds, machines)] * count


@pytest.mark.parametrize(
    ("costs", "ranks", "minutes", "max_tasks", "tasks"),
    [
        (equal(1, 9999), 1, 1, 1001, 1),
        (equal(60, 6), 1, 60, 1001, 1),
        (equal(120, 6), 1, 60, 1001, 2),
        (equal(120, 6), 2, 60, 1001, 1),
        (equal(10, 100), 1, 10, 1001, 10),
        (equal(10, 100), 1, math.inf, 1001, 1),
        (equal(5000, 1), 1, 0.1, 1001, 1001),
        (equal(5000, 1), 1, 0.1, 0, 1),
        # A run of one machine takes as long on four ranks as on one.
        (equal(8, 30, machines=4), 4, 10, 1001, 1),
        (equal(8, 70, machines=1), 4, 10, 1001, 8),
    ],
)
def test_number_of_tasks(costs, ranks, minutes, max_tasks, tasks):
    assert choose_task_count(costs, ranks, minutes * MINUTE, max_tasks) == tasks


def test_no_task_of_unequal_runs_exceeds_a_tenth_of_the_limit():
    # Every fourth run is long, so with four tasks one task would have all long runs.
    costs = [RunCost(20.0 if k % 4 == 0 else 1.0, 8) for k in range(400)]
    tasks = choose_task_count(costs, 2, 20 * MINUTE, 1001)
    assert max(task_seconds(costs, tasks, 2)) <= TASK_STARTUP_SECONDS + 2 * MINUTE
    assert tasks <= 2 * sum(run.seconds for run in costs) / 2 / (2 * MINUTE)


def invoke(capsys, *words):
    code = cli.main(["job", *map(str, words)])
    return code, *capsys.readouterr()


def test_a_long_sweep_is_an_array_within_the_limit_of_slurm(capsys, tmp_path, command):
    (tmp_path / "short.toml").write_text(f"{SMALL}seed = [1, 2, 3]\nrho = [1.0, 2.0]\n")
    code, out, err = invoke(capsys, tmp_path / "short.toml")
    assert code == 0
    assert "tasks: 1; runs per task: 6; ranks: 2; remaining runs: 6 of 6\n" in err
    assert "--array" not in out
    (tmp_path / "a.toml").write_text(MANY)
    command("scontrol", "MaxArraySize = 8\n")
    code, out, err = invoke(
        capsys, tmp_path / "a.toml", "--time=0:10", "--signal-seconds=9", "--array-limit=3"
    )
    assert code == 0
    assert "#SBATCH --array=0-7%3\n" in out
    assert out.endswith('--part "$SLURM_ARRAY_TASK_ID/8"\n')
    assert "warning" in err


@pytest.mark.parametrize(
    "text", ["rounds = [4000, 5000]", 'data = "mnist"\nseed = [1, 2]', "rho = -1", 'data = "absent.csv"']
)
def test_invalid_runs_have_no_script(capsys, tmp_path, text):
    more = SMALL if "data" not in text else ""
    (tmp_path / "a.toml").write_text(f"{more}{text}\n")
    away = ("--data-dir", tmp_path / "nowhere")
    assert invoke(capsys, tmp_path / "a.toml", "-o", tmp_path / "runs", *away)[:2] == (2, "")
    assert not (tmp_path / "runs").exists()


def test_refused_runs_are_named_and_the_others_have_a_script(capsys, tmp_path):
    (tmp_path / "a.toml").write_text(f"{SMALL}rounds = [4, 10, 4000]\n")
    code, out, err = invoke(capsys, tmp_path / "a.toml", "-o", tmp_path / "runs")
    assert (code, out.splitlines()[0]) == (0, "#!/bin/bash")
    assert "1 of 3 runs are refused" in err
    assert "\n  rounds-4000.h5\n" in err
    assert "remaining runs: 2 of 2" in err


def test_the_summary_has_the_runs_without_a_result_and_refuses_results_of_others(capsys, tmp_path):
    config, runs = tmp_path / "a.toml", tmp_path / "runs"
    config.write_text(f"{SMALL}rho = [4.0, 2.0, 1.0]\nseed = [1, 2]\n")
    # A tenth of the limit of two seconds, on two ranks, fits three runs.
    words = (config, "-o", runs, "--time=0:02", "--signal-seconds=9", "--cpus-per-task=3")
    code, out, err = invoke(capsys, *words)
    assert code == 0
    assert "#SBATCH --array=0-1\n" in out
    assert "tasks: 2; runs per task: 3; ranks: 2; remaining runs: 6 of 6\n" in err
    assert not runs.exists()
    assert cli.main(["sweep", str(config), "-o", str(runs), "--index", "2"]) == 0
    capsys.readouterr()
    assert "remaining runs: 5 of 6\n" in invoke(capsys, *words)[2]
    config.write_text(f"{SMALL}rho = [4.0, 2.0, 1.0]\nseed = [1, 2]\nrounds = 3\n")
    code, out, err = invoke(capsys, *words)
    assert (code, out) == (2, "")
    assert "holds another experiment: rounds" in err


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--time=2"], ["--time 2", "--signal-seconds 120"]),
        (["--time=10", "--signal-seconds=590"], ["--time 10"]),
    ],
)
def test_jobs_that_cannot_succeed_are_refused(capsys, tmp_path, options, names):
    (tmp_path / "a.toml").write_text(SMALL)
    code, out, err = invoke(capsys, tmp_path / "a.toml", "-o", tmp_path / "a.h5", *options)
    assert (code, out) == (2, "")
    assert all(name in err for name in names)
