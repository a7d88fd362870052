"""The script of a job, without a scheduler to run it."""

import subprocess
from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.cluster.script import render_job

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
