"""Jobs that tests start with mpirun: the same bits on any number of ranks, and ends without hanging."""

import os
import time
from pathlib import Path

import pytest
from launch import mpirun, mu2mpi
from missing import missing

from mu2mpi.results.reader import read_result

pytestmark = pytest.mark.mpi
RUN = ["-m", "mu2mpi", "run", "--machines", "10", "--seed", "7"]


@pytest.fixture
def other_python() -> str:
    """Return the Python of an environment with another MPI library; scripts/test.sh makes one."""
    python = os.environ.get("MU2MPI_OTHER_PYTHON")
    if not python:
        missing("MU2MPI_OTHER_PYTHON does not name the Python of an environment with another MPI library")
    return python


def bits(path: Path) -> tuple[bytes, ...]:
    result = read_result(path)
    history = result.history
    return (
        result.x.tobytes(),
        result.w.tobytes(),
        history.test_loss.tobytes(),
        history.test_accuracy.tobytes(),
        history.message_norm.tobytes(),
        repr(result.theory).encode(),
    )


@pytest.mark.parametrize(
    "options",
    [("--server", "untrusted"), ("--server", "trusted"), ("--noise", "aggregate")],
    ids=lambda options: options[1],
)
def test_the_same_bits_on_any_number_of_ranks(options, tmp_path):
    found = set()
    for ranks in (1, 2, 3, 5, 10):
        path = tmp_path / f"{ranks}.h5"
        job = mpirun(ranks, *RUN, *options, "--output", path)
        assert job.returncode == 0, job.stderr
        assert read_result(path).environment["ranks"] == ranks
        found.add(bits(path))
    path = tmp_path / "serial.h5"
    assert mu2mpi(*RUN[2:], *options, "--output", path).returncode == 0
    assert found == {bits(path)}


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_same_bits_with_another_mpi_library(server, tmp_path, other_python):
    for name, python in (("ours", None), ("other", other_python)):
        arguments = [*RUN, "--server", server, "--output", tmp_path / name]
        job = mpirun(2, *arguments, **({"python": python} if python else {}))
        assert job.returncode == 0, job.stderr
    ours, other = read_result(tmp_path / "ours"), read_result(tmp_path / "other")
    assert ours.environment["mpi_library"] != other.environment["mpi_library"]
    assert bits(tmp_path / "ours") == bits(tmp_path / "other")


FAILING = """
import sys
from mu2mpi import Experiment, run
from mu2mpi.algorithm.machine import Machines
from mu2mpi.parallel import world

observe = Machines.observe

def fail_on_one_rank(self, t, *points):
    if world().rank == {rank} and t == 5:
        raise {error}
    observe(self, t, *points)

Machines.observe = fail_on_one_rank
run(Experiment(machines=3, server={server!r}), output=sys.argv[1])
"""


@pytest.mark.parametrize("command", ["-m mu2mpi run --machines 3 --output", "-c"])
@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        ("InputError('bad luck')", "bad luck", 2),
        ("OSError('no luck')", "no luck", 1),
        ("KeyboardInterrupt", "", 130),
    ],
)
def test_an_expected_error_on_one_rank_alone_ends_the_job_too(error, words, code, command, tmp_path):
    """From the command line, and from a script of the user's that calls run()."""
    script = tmp_path / "failing.py"
    text = FAILING.format(rank=1, server="untrusted", error=error)
    if command != "-c":
        text = text.replace("run(Experiment", "from mu2mpi.cli import main\nsys.exit(main(sys.argv[2:]))\n#")
    script.write_text("from mu2mpi import InputError\n" + text)
    path = tmp_path / "a.h5"
    arguments = [path, *command.removeprefix("-m mu2mpi ").split(), path] if command != "-c" else [path]
    started = time.monotonic()
    job = mpirun(3, script, *arguments, timeout=60)
    assert time.monotonic() - started < 10
    assert job.returncode != 0
    if command != "-c":
        assert job.returncode == code
        assert "rank 1: " in job.stderr
    assert words in job.stderr
    assert not path.exists()


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_an_exception_on_one_rank_ends_the_job(server, rank, tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(rank=rank, server=server, error="MemoryError('no room')"))
    started = time.monotonic()
    job = mpirun(3, script, tmp_path / "a.h5", timeout=60)
    assert time.monotonic() - started < 10
    assert job.returncode != 0
    assert f"rank {rank} of 3 failed" in job.stderr
    assert "MemoryError: no room" in job.stderr
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize(
    "bad",
    [
        ["--machines", "99999"],
        ["--nonsense"],
        ["--rho", "0"],
        ["--config", "/nonexistent.toml"],
        ["--data", "mnist", "--data-dir", "/nonexistent"],
    ],
)
def test_bad_input_is_told_once_and_ends_every_rank_with_2(bad, tmp_path):
    job = mpirun(3, "-m", "mu2mpi", "run", *bad, "--output", tmp_path / "a.h5", timeout=60)
    assert job.returncode == 2
    assert job.stderr.count("mu2mpi: error:") == 1
    assert "Traceback" not in job.stderr
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_do_not_find_each_other_are_refused(tmp_path):
    """Processes that a launcher started with a foreign MPI library: each would run alone."""
    job = mu2mpi("run", "--output", tmp_path / "a.h5", SLURM_STEP_NUM_TASKS="4")
    assert job.returncode == 2
    assert "started 4 processes" in job.stderr
    assert "srun --mpi=pmi2" in job.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_other_librarys_mpirun_is_refused(tmp_path, other_python):
    from launch import run_command

    launcher = Path(other_python).parent / "mpirun"
    import sys

    job = run_command([launcher, "-n", "2", sys.executable, *RUN, "--output", tmp_path / "a.h5"], 60, {})
    assert job.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_sweep_and_info_on_ranks(tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text('machines = [1, 3]\nserver = ["untrusted", "trusted"]\nrounds = 5\nseed = 1\n')
    for ranks in (2, 3):
        job = mpirun(ranks, "-m", "mu2mpi", "sweep", config, "--output", tmp_path / str(ranks))
        assert job.returncode == 0, job.stderr
    assert {p.name: bits(p) for p in (tmp_path / "2").iterdir()} == {
        p.name: bits(p) for p in (tmp_path / "3").iterdir()
    }
    job = mpirun(2, "-m", "mu2mpi", "info")
    assert job.returncode == 0
    assert job.stdout.count("ranks") == 1
