"""How runs are packed into tasks, and how far these are: with stand-ins for the commands of a SLURM."""

import math

import pytest

from mu2mpi import cli
from mu2mpi.cluster.submission import START_SECONDS, Load, pack, task_seconds

MINUTE = 60.0
SMALL = 'data = "synthetic"\nsamples = 60\nfeatures = 2\nmachines = 2\n'
MANY = f"{SMALL}seed = {list(range(1, 1101))}\n"


def equal(count, seconds, machines=100):
    return [Load(seconds, machines)] * count


@pytest.mark.parametrize(
    ("loads", "ranks", "minutes", "most", "parts"),
    [
        (equal(1, 9999), 1, 1, 1001, 1),
        (equal(60, 6), 1, 60, 1001, 1),
        (equal(120, 6), 1, 60, 1001, 2),
        (equal(120, 6), 2, 60, 1001, 1),
        (equal(10, 100), 1, 10, 1001, 10),
        (equal(10, 100), 1, math.inf, 1001, 1),
        (equal(5000, 1), 1, 0.1, 1001, 1001),
        (equal(5000, 1), 1, 0.1, 0, 1),
        # On four ranks, a run of one machine takes as long as on one.
        (equal(8, 30, machines=4), 4, 10, 1001, 1),
        (equal(8, 70, machines=1), 4, 10, 1001, 8),
    ],
)
def test_into_how_many_parts_runs_are_packed(loads, ranks, minutes, most, parts):
    assert pack(loads, ranks, minutes * MINUTE, most) == parts


def test_no_part_of_unequal_runs_takes_more_than_its_share():
    # Every fourth run is the long one, so four parts would have all of these in one.
    loads = [Load(20.0 if k % 4 == 0 else 1.0, 8) for k in range(400)]
    parts = pack(loads, 2, 20 * MINUTE, 1001)
    assert max(task_seconds(loads, parts, 2)) <= START_SECONDS + 2 * MINUTE
    assert parts <= 2 * sum(load.seconds for load in loads) / 2 / (2 * MINUTE)


def invoke(capsys, *words):
    code = cli.main(["job", *map(str, words)])
    return code, *capsys.readouterr()


def test_a_long_sweep_is_an_array_within_what_slurm_allows(capsys, tmp_path, command):
    (tmp_path / "short.toml").write_text(f"{SMALL}seed = [1, 2, 3]\nrho = [1.0, 2.0]\n")
    code, out, err = invoke(capsys, tmp_path / "short.toml")
    assert (code, err) == (0, "")
    assert "--array" not in out
    (tmp_path / "a.toml").write_text(MANY)
    command("scontrol", "MaxArraySize = 8\n")
    code, out, err = invoke(capsys, tmp_path / "a.toml", "--time=0:10", "--array-limit=3")
    assert code == 0
    assert "#SBATCH --array=0-7%3\n" in out
    assert out.endswith('--part "$SLURM_ARRAY_TASK_ID/8"\n')
    assert "warning" in err


@pytest.mark.parametrize(
    "text", ["rounds = [4, 10, 4000]", 'data = "mnist"\nseed = [1, 2]', "rho = -1", 'data = "absent.csv"']
)
def test_what_cannot_be_run_is_not_submitted(capsys, tmp_path, command, text):
    more = SMALL if "data" not in text else ""
    (tmp_path / "a.toml").write_text(f"{more}{text}\n")
    script = command("sbatch", "Submitted batch job 7\n")
    away = ("--data-dir", tmp_path / "nowhere")
    code, out, _ = invoke(capsys, tmp_path / "a.toml", "-o", tmp_path / "runs", *away, "--submit")
    assert (code, out) == (2, "")
    assert not script.exists()
    assert not (tmp_path / "runs").exists()


def test_a_script_is_printed_also_where_the_data_are_not(capsys, tmp_path, command):
    (tmp_path / "a.toml").write_text('data = "mnist"\nmachines = 2\nrounds = 5\nseed = [1, 2, 3]\n')
    code, out, err = invoke(capsys, tmp_path / "a.toml", "--data-dir", tmp_path / "nowhere")
    assert code == 0
    assert out.endswith('--part "$SLURM_ARRAY_TASK_ID/3"\n')
    assert "train-images" in err


def test_submission_and_status(capsys, tmp_path, command):
    config, runs = tmp_path / "a.toml", tmp_path / "runs"
    config.write_text(f"{SMALL}rho = [4.0, 2.0, 1.0]\nseed = [1, 2]\n")
    status = (config, "-o", runs, "--status")
    # Nothing was submitted, so SLURM is not asked.
    assert invoke(capsys, *status)[:2] == (0, f"{runs}: 0 done, 0 running, 6 left, 0 failed\n")
    script = command("sbatch", "Hello!\nSubmitted batch job 7\n")
    # A tenth of two seconds, on two ranks: three runs.
    code, out, err = invoke(capsys, config, "-o", runs, "--submit", "--time=0:02", "--cpus-per-task=3")
    assert (code, out) == (0, "Submitted batch job 7\n")
    assert "#SBATCH --array=0-1\n" in script.read_text()
    assert "a-7_*.log" in err
    assert invoke(capsys, *status)[0] == 2
    command("squeue", "7 0 RUNNING\n7 1 PENDING\n9 N/A RUNNING\n")
    assert "0 done, 0 running, 6 left, 0 failed" in invoke(capsys, *status)[1]
    # The runs of part 0 are 0, 2 and 4: with seed 1.
    assert cli.main(["sweep", str(config), "-o", str(runs), "--index", "2"]) == 0
    for name in ("rho-4_seed-1.h5", "rho-1_seed-2.h5"):
        (runs / f"{name}.checkpoint").touch()
    (runs / "rho-4_seed-2.h5").write_text("not a result")
    assert "1 done, 1 running, 4 left, 0 failed" in invoke(capsys, *status)[1]
    command("squeue", "7 1 RUNNING\n")
    out = invoke(capsys, *status)[1]
    assert "1 done, 1 running, 2 left, 2 failed" in out
    assert "rho-4_seed-1.h5 and rho-1_seed-1.h5" in out
    # What another submission will do is not failed, and a result with other settings is none of this sweep's.
    (runs / "rho-4_seed-2.h5").unlink()
    command("sbatch", "Submitted batch job 8 on cluster x\n")
    assert invoke(capsys, config, "-o", runs, "--submit")[:2] == (0, "Submitted batch job 8\n")
    command("squeue", "8 N/A PENDING\n")
    assert "1 done, 0 running, 5 left, 0 failed" in invoke(capsys, *status)[1]
    command("squeue", "")
    assert "1 done, 0 running, 0 left, 5 failed" in invoke(capsys, *status)[1]
    config.write_text(f"{SMALL}rounds = 3\nrho = [4.0, 2.0, 1.0]\nseed = [1, 2]\n")
    assert "0 done, 0 running, 0 left, 6 failed" in invoke(capsys, *status)[1]
    assert invoke(capsys, config, "-o", runs, "--submit")[0] == 2


def test_what_is_done_is_not_submitted_nor_noted_what_sbatch_does_not_take(capsys, tmp_path, command):
    config, result = tmp_path / "one.toml", tmp_path / "one.h5"
    config.write_text(f"{SMALL}seed = 1\n")
    assert invoke(capsys, config, "-o", result, "--submit")[:2] == (2, "")
    assert not (tmp_path / ".one.h5.jobs.toml").exists()
    script = command("sbatch", "Submitted batch job 7\n")
    assert cli.main(["run", "--config", str(config), "-o", str(result)]) == 0
    assert invoke(capsys, config, "-o", result, "--submit")[0] == 0
    assert not script.exists()
    assert "1 done" in invoke(capsys, config, "-o", result, "--status")[1]
