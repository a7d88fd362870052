"""Job options and job scripts, without a scheduler."""

import datetime
import math
import subprocess
from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.cluster.job_script import JobOptions, render_job_script, time_limit_seconds

PROJECT = Path(__file__).parents[2]
SWEEP = ["sweep", "a b.toml", "--output", "my runs"]


@pytest.fixture(autouse=True)
def site(tmp_path, monkeypatch):
    """Path of a site file; no other site file is used."""
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("MU2MPI_SITE", raising=False)
    return tmp_path / "site" / "site.toml"


def job_options(**options):
    """Job options with a fixed virtual environment."""
    return JobOptions.with_site_defaults(
        {"environment": "/a b", **{name.replace("_", "-"): v for name, v in options.items()}}
    )


def directives(script):
    """Lines that sbatch reads as its options."""
    return [line for line in script.splitlines() if line.startswith("#SBATCH")]


def test_the_shipped_script_is_what_the_command_prints():
    """The golden file is jobs/run.sbatch."""
    arguments = ["run", "--config", "jobs/experiment.toml", "--output", "runs/experiment.h5"]
    rendered = render_job_script("experiment", arguments, JobOptions())
    assert rendered == (PROJECT / "jobs" / "run.sbatch").read_text()


def test_every_option_is_in_the_script():
    options = job_options(
        nodes="2", ntasks="16", ntasks_per_node="8", cpus_per_task="3", mem_per_cpu="2G", time="02:00:00",
        partition="short", account="physics", qos="high", constraint="[a|b]", array_limit="20", log="logs/%A",
        signal_seconds="60", requeues="0", stall_minutes="5", checkpoint_every="1.5", data_dir="/my data 1.0",
        setup=["module load gcc", "ulimit -l unlimited"], sbatch=["exclusive", "mail-user=ab", "comment=x y"],
    )  # fmt: skip
    script = render_job_script("my sweep", SWEEP, options, 90)
    assert {line.removeprefix("#SBATCH --") for line in directives(script)} == {
        "job-name=my-sweep", "nodes=2", "ntasks=16", "ntasks-per-node=8", "cpus-per-task=3", "mem-per-cpu=2G",
        "time=02:00:00", "array=0-89%20", "output=logs/%A", "open-mode=append", "signal=B:USR1@60",
        "requeue", "partition=short", "account=physics", "qos=high", "constraint='[a|b]'", "exclusive",
        "mail-user=ab", "comment='x y'",
    }  # fmt: skip
    assert "\nmodule load gcc\nulimit -l unlimited\nenvironment='/a b'\n" in script
    assert script.endswith(
        "\nexec mu2mpi launch --requeues 0 --stall-minutes 5 sweep 'a b.toml' --output 'my runs' "
        "--checkpoint-every 1.5 --data-dir '/my data 1.0' --part \"$SLURM_ARRAY_TASK_ID/90\"\n"
    )


@pytest.mark.parametrize(
    "directive", ["ntasks=7", "time=1-0", "output=logs/%j", "job-name=x", "partition=long"]
)
def test_a_given_directive_replaces_that_of_the_script(directive):
    script = render_job_script("a", SWEEP, job_options(sbatch=[directive], ntasks=2, partition="short"), 3)
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
def test_time_limits_in_all_formats_of_sbatch(limit, seconds):
    assert time_limit_seconds(limit) == seconds
    assert job_options(time=limit).time == limit


def test_options_replace_or_extend_the_site_defaults(site, monkeypatch):
    site.write_text(
        'ntasks = 8\ntime = 02:00:00\naccount = 1234\nsetup = ["module purge", "module load gcc"]\n'
        'sbatch = ["mail-type=END", "partition=short"]\n'
    )
    monkeypatch.setenv("MU2MPI_SITE", str(site))
    options = job_options(time="30", setup=["ulimit -l unlimited"], sbatch=["mail-type=FAIL"])
    assert (options.ntasks, options.time, options.account) == (8, "30", "1234")
    assert options.partition == "short"
    assert options.setup == ("module purge", "module load gcc", "ulimit -l unlimited")
    script = render_job_script("a", SWEEP, options)
    assert [line for line in directives(script) if "mail" in line] == ["#SBATCH --mail-type=FAIL"]
    assert job_options().time == str(datetime.time(2))
    # The user's own file is over the one that MU2MPI_SITE names, and options are over both.
    (site.parent / "mu2mpi").mkdir()
    own = site.parent / "mu2mpi" / "site.toml"
    own.write_text('ntasks = 4\naccount = "mine"\ntime = "45"\nsetup = "ulimit -c 0"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(site.parent))
    options = job_options(time="30", setup=["true"])
    assert (options.ntasks, options.time, options.account, options.partition) == (4, "30", "mine", "short")
    assert options.setup == ("module purge", "module load gcc", "ulimit -c 0", "true")
    monkeypatch.setenv("MU2MPI_SITE", str(own))
    assert job_options().setup == ("ulimit -c 0",)


@pytest.mark.parametrize(
    ("resources", "ranks"),
    [
        ({}, 2),
        ({"nodes": 4}, 4),
        ({"nodes": 4, "ntasks_per_node": 3}, 12),
        ({"ntasks_per_node": 3}, 3),
        ({"nodes": 4, "ntasks": 6}, 6),
    ],
)
def test_number_of_ranks(resources, ranks):
    assert job_options(**resources).ranks == ranks


def run_script(folder, **options):
    """Run a job script; only some environments have a mu2mpi, which prints its arguments."""
    for name in ("own", "other"):
        (folder / name / "bin").mkdir(parents=True, exist_ok=True)
        (folder / name / "bin/mu2mpi").write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (folder / name / "bin/mu2mpi").chmod(0o755)
    for name in ("own", "empty"):
        # As the activation scripts of conda, it reads a variable that may be unset.
        (folder / name / "bin").mkdir(parents=True, exist_ok=True)
        (folder / name / "bin/activate").write_text(f"PATH=$PWD/{name}/bin:$PATH$UNSET\n")
    script, path = render_job_script("a", SWEEP, JobOptions(**options)), f"{folder}/other/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["bash"], input=script, cwd=folder, env={"PATH": path}, text=True, capture_output=True, check=False
    )
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("environment", "setup", "succeeds"),
    [
        ("own", "true", True),
        ("own", "false", False),
        ("own", "false | cat", False),
        ("own", "source absent", False),
        ("absent", "true", False),
        ("empty", "true", False),
    ],
)
def test_a_script_fails_without_its_modules_or_environment(tmp_path, environment, setup, succeeds):
    code, out = run_script(tmp_path, environment=environment, setup=[setup])
    assert (code == 0) == succeeds
    assert ("own launch sweep a b.toml --output my runs" in out) == succeeds
    assert not any(line.startswith("other") for line in out)


def job(capsys, folder, *words):
    """Exit code and output of `mu2mpi job` on a small configuration."""
    (folder / "a.toml").write_text("rho = 1.0\n")
    code = cli.main(["job", str(folder / "a.toml"), *words])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("text", ["ntask = 2", "ntasks = 0", "ntasks = [", 'sbatch = ["array=0-5"]', None])
def test_messages_name_an_invalid_site_file(capsys, tmp_path, site, monkeypatch, text):
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
    ],
)
def test_invalid_options_print_no_script(capsys, tmp_path, option, value):
    code, out, err = job(capsys, tmp_path, f"{option}={value}")
    assert (code, out) == (2, "")
    assert option in err


@pytest.mark.parametrize(
    "name", [".toml", "..toml", "a\n#SBATCH --x.toml", "$(date) 'ä'.toml", "x" * 200 + ".toml"]
)
def test_unusual_file_names_are_quoted(capsys, tmp_path, name):
    (tmp_path / name).write_text("rho = 1.0\n")
    assert cli.main(["job", str(tmp_path / name)]) == 0
    script = capsys.readouterr().out
    # The shell parses the arguments as given; sbatch reads no directives after the first command.
    head, _, command = script.partition("exec mu2mpi launch ")
    assert "#SBATCH --x" not in head
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, text=True, check=True
    )
    words = done.stdout.split("\0")[:-1]
    assert words[:3] == ["run", "--config", str(tmp_path / name)]
    assert not Path(words[-1]).name.startswith(".")
