"""What can be told of jobs without a SLURM: the script that is rendered, and the choice of a launcher."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch import SETTINGS

from mu2mpi import cli
from mu2mpi.errors import InputError
from mu2mpi.execution.slurm import find_launcher, render_job

PROJECT = Path(__file__).parents[2]


def test_the_shipped_script_is_what_the_command_prints():
    """jobs/run.sbatch is the golden file."""
    arguments = ["run", "--config", "jobs/experiment.toml", "--output", "runs/experiment.h5"]
    rendered = render_job("experiment", arguments)
    assert rendered == (PROJECT / "jobs" / "run.sbatch").read_text()


def test_every_option_is_in_the_script():
    asked = {"ntasks": 16, "time": "02:00:00", "partition": "short", "account": "physics", "array": 90}
    arguments = ["sweep", "a b.toml", "--index", "$SLURM_ARRAY_TASK_ID"]
    lines = render_job("my sweep", arguments, "/a b", **asked).splitlines()
    for line in (
        "#SBATCH --job-name=my-sweep",
        "#SBATCH --ntasks=16",
        "#SBATCH --time=02:00:00",
        "#SBATCH --partition=short",
        "#SBATCH --account=physics",
        "#SBATCH --array=0-89",
        "#SBATCH --output=%x-%A_%a.log",
        "source '/a b/bin/activate'",
        "exec mu2mpi launch sweep 'a b.toml' --index \"$SLURM_ARRAY_TASK_ID\"",
    ):
        assert line in lines


def test_a_sweep_becomes_an_array(capsys, tmp_path):
    config = tmp_path / "two lists.toml"
    config.write_text("seed = [1, 2, 3]\nrho = [1.0, 2.0]\n")
    assert cli.main(["job", str(config), "--ntasks", "4"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --array=0-5" in out
    assert f"sweep '{config}' --index \"$SLURM_ARRAY_TASK_ID\" --output 'runs/two lists'" in out


def test_a_wrong_configuration_makes_no_script(capsys, tmp_path):
    (tmp_path / "a.toml").write_text("rho = -1\n")
    assert cli.main(["job", str(tmp_path / "a.toml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "rho" in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ntasks", "0"),
        ("--ntasks", "-5"),
        ("--time", "1:0\n#SBATCH --x"),
        ("--partition", ""),
        ("--account", "a b"),
    ],
)
def test_what_cannot_stand_in_a_script_makes_none(capsys, tmp_path, option, value):
    (tmp_path / "a.toml").write_text("rho = 1.0\n")
    assert cli.main(["job", str(tmp_path / "a.toml"), f"{option}={value}"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {option} " in err


@pytest.mark.parametrize(
    "name", [".toml", "..toml", "a\n#SBATCH --x.toml", "$(date) 'ä'.toml", "x" * 200 + ".toml"]
)
def test_odd_names_make_a_script_all_the_same(capsys, tmp_path, name):
    (tmp_path / name).write_text("rho = 1.0\n")
    assert cli.main(["job", str(tmp_path / name)]) == 0
    script = capsys.readouterr().out
    # A shell reads the words as they were meant, and sbatch reads nothing behind the first command.
    head, _, command = script.partition("exec mu2mpi launch ")
    assert "#SBATCH --x" not in head
    said = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True
    )
    words = said.stdout.split("\0")[:-1]
    assert words[:3] == ["run", "--config", str(tmp_path / name)]
    assert not Path(words[-1]).name.startswith(".")


@pytest.mark.mpi
def test_our_own_mpirun_is_found(monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)

    found = find_launcher(2, os.environ)
    assert found == [str(Path(sys.executable).parent / "mpirun"), "-n", "2"]


def test_a_launcher_whose_ranks_are_alone_is_refused(monkeypatch, tmp_path):
    twice = tmp_path / "twice"
    twice.write_text('#!/bin/sh\n"$@"\n"$@"\n')
    twice.chmod(0o755)
    monkeypatch.setenv("MU2MPI_LAUNCHER", str(twice))

    with pytest.raises(InputError, match="its ranks see 1 ranks"):
        find_launcher(2, os.environ)


def test_a_launcher_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("MU2MPI_LAUNCHER", "/nonexistent/srun -n 2")

    with pytest.raises(InputError, match="/nonexistent/srun"):
        find_launcher(2, os.environ)


@pytest.mark.mpi
def test_launch_returns_the_code_of_the_ranks(tmp_path):
    for arguments, code in ((["info"], 0), (["run", "--rho", "0"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "mu2mpi", "launch", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("SLURM_NTASKS", "abc", "SLURM_NTASKS is 'abc', and no number of at least 1"),
        ("SLURM_NTASKS", "0", "SLURM_NTASKS is '0', and no number of at least 1"),
        ("MU2MPI_LAUNCHER", "mpirun 'x", "MU2MPI_LAUNCHER is no command: No closing quotation"),
    ],
)
def test_a_launch_says_what_is_wrong_with_its_environment(variable, value, words, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv(variable, value)
    assert cli.main(["launch", "info"]) == 2
    assert words in capsys.readouterr().err
