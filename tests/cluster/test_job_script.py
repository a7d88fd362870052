"""The scripts of a job, and what it asks for, without a scheduler to run it."""

import datetime
import math
import subprocess
from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.cluster.job_script import Request, limit_seconds, render_job

PROJECT = Path(__file__).parents[2]
SWEEP = ["sweep", "a b.toml", "--output", "my runs"]


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """Return where a site file may be put; nobody else's counts."""
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("MU2MPI_SITE", raising=False)
    return tmp_path / "site" / "site.toml"


def of(**asked):
    """Return what options ask for, without the environment that is active."""
    return Request.make({"environment": "/a b", **{name.replace("_", "-"): v for name, v in asked.items()}})


def directives(script):
    """Return the lines that sbatch reads as its options."""
    return [line for line in script.splitlines() if line.startswith("#SBATCH")]


def test_the_shipped_script_is_what_the_command_prints():
    """jobs/run.sbatch is the golden file."""
    arguments = ["run", "--config", "jobs/experiment.toml", "--output", "runs/experiment.h5"]
    rendered = render_job("experiment", arguments, Request())
    assert rendered == (PROJECT / "jobs" / "run.sbatch").read_text()


def test_the_script_for_pbs_is_the_golden_one():
    request = of(
        scheduler="pbs", nodes=2, ntasks_per_node=4, cpus_per_task=2, mem_per_cpu="1500", time="1-6",
        partition="workq", array_limit=5, setup=["module load gcc"], checkpoint_every=60,
    )  # fmt: skip
    golden = Path(__file__).with_name("golden.pbs")
    assert render_job("my sweep", SWEEP, request, 20) == golden.read_text()


def test_every_option_is_in_the_script():
    request = of(
        nodes="2", ntasks="16", ntasks_per_node="8", cpus_per_task="3", mem_per_cpu="2G", time="02:00:00",
        partition="short", account="physics", qos="high", constraint="[a|b]", array_limit="20",
        signal_seconds="60", requeues="0", checkpoint_every="1.5", data_dir="/my data", after_table=True,
        setup=["module load gcc", "ulimit -l unlimited"], sbatch=["exclusive", "mail-user=ab", "comment=x y"],
    )  # fmt: skip
    script = render_job("my sweep", SWEEP, request, 90)
    assert {line.removeprefix("#SBATCH --") for line in directives(script)} == {
        "job-name=my-sweep", "nodes=2", "ntasks=16", "ntasks-per-node=8", "cpus-per-task=3", "mem-per-cpu=2G",
        "time=02:00:00", "array=0-89%20", "output=%x-%A_%a.log", "open-mode=append", "signal=B:USR1@60",
        "requeue", "partition=short", "account=physics", "qos=high", "constraint='[a|b]'", "exclusive",
        "mail-user=ab", "comment='x y'",
    }  # fmt: skip
    assert "--wrap='mu2mpi table '\"'\"'my runs'\"'\"''" in script
    assert "\nmodule load gcc\nulimit -l unlimited\n# shellcheck" in script
    assert "source '/a b/bin/activate'" in script
    assert script.endswith(
        "\nexec mu2mpi launch --requeues 0 sweep 'a b.toml' --output 'my runs' --checkpoint-every 1.5 "
        "--data-dir '/my data' --part \"$SLURM_ARRAY_TASK_ID/90\"\n"
    )


@pytest.mark.parametrize(
    "directive", ["ntasks=7", "time=1-0", "output=logs/%j", "job-name=x", "partition=long"]
)
def test_a_directive_of_ones_own_replaces_that_of_the_script(directive):
    script = render_job("a", SWEEP, of(sbatch=[directive], ntasks=2, partition="short"), 3)
    name = directive.partition("=")[0]
    assert [line for line in directives(script) if f" --{name}=" in line] == [f"#SBATCH --{directive}"]


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("90", 5400),
        ("01:30", 90),
        ("1:02:03", 3723),
        ("2-12", 216_000),
        ("2-12:30:15", 217_815),
        ("0", math.inf),
    ],
)
def test_time_limits_as_sbatch_takes_them(limit, seconds):
    assert limit_seconds(limit) == seconds
    assert of(time=limit).time == limit


def test_a_site_file_has_defaults_which_options_replace_or_follow(site, monkeypatch):
    site.write_text(
        'ntasks = 8\ntime = 02:00:00\naccount = 1234\nsetup = ["module purge", "module load gcc"]\n'
        'sbatch = ["mail-type=END", "partition=short"]\nafter-table = true\n'
    )
    monkeypatch.setenv("MU2MPI_SITE", str(site))
    request = of(time="30", setup=["ulimit -l unlimited"], sbatch=["mail-type=FAIL"])
    assert (request.ntasks, request.time, request.account) == (8, "30", "1234")
    assert (request.partition, request.after_table) == ("short", True)
    assert request.setup == ("module purge", "module load gcc", "ulimit -l unlimited")
    script = render_job("a", SWEEP, request)
    assert [line for line in directives(script) if "mail" in line] == ["#SBATCH --mail-type=FAIL"]
    assert of().time == str(datetime.time(2))


def job(capsys, folder, *words):
    """Return the code of `mu2mpi job` on a small file, and what it prints."""
    (folder / "a.toml").write_text("rho = 1.0\n")
    code = cli.main(["job", str(folder / "a.toml"), *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("text", ["ntask = 2", "ntasks = 0", "ntasks = [", 'sbatch = ["array=0-5"]', None])
def test_a_wrong_site_file_is_named(capsys, tmp_path, site, monkeypatch, text):
    monkeypatch.setenv("MU2MPI_SITE", str(site))
    if text is not None:
        site.write_text(text)
    code, out, err = job(capsys, tmp_path)
    assert (code, out) == (2, "")
    assert str(site) in err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ntasks", "0"),
        ("--nodes", "2-4"),
        ("--requeues", "-1"),
        ("--checkpoint-every", "0"),
        ("--time", "1:0\n#SBATCH --x"),
        *(
            ("--time", limit)
            for limit in ("", "tomorrow", "1:2:3:4", "1-", "1-2-3", "1-2:3:4:5", "1.5", "1\n")
        ),
        ("--account", "a b"),
        ("--mem-per-cpu", "much"),
        ("--sbatch", "a=b\n#SBATCH --x"),
        ("--sbatch", "--exclusive"),
        ("--sbatch", "array=0-3"),
        ("--sbatch", "signal=USR1"),
        ("--setup", "a\nb"),
        ("--scheduler", "lsf"),
    ],
)
def test_what_cannot_stand_in_a_script_makes_none(capsys, tmp_path, option, value):
    code, out, err = job(capsys, tmp_path, f"{option}={value}")
    assert (code, out) == (2, "")
    assert option in err


@pytest.mark.parametrize("option", ["--qos=a", "--sbatch=exclusive", "--time=UNLIMITED", "--submit"])
def test_what_pbs_has_no_words_for_makes_no_script(capsys, tmp_path, option):
    code, out, err = job(capsys, tmp_path, "--scheduler=pbs", option)
    assert (code, out) == (2, "")
    assert option.partition("=")[0] in err


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
