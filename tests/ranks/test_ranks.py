"""Jobs that tests start with mpirun: the same bits on any number of ranks, and ends without hanging."""

import os
import sys
from pathlib import Path

import pytest
from helpers.launch import mpirun, mu2mpi, run_command
from helpers.slow import slow

from mu2mpi.cli import main
from mu2mpi.core.registry import known_names
from mu2mpi.results.reader import read_result

pytestmark = pytest.mark.mpi
RUN = ["run", "--machines", "10", "--seed", "7"]
PLACES_OF_NOISE = [*(("--server", name) for name in known_names("servers")), ("--noise", "aggregate")]

# The command line several times in one start.
COMMANDS = f"""
import sys
from mu2mpi.cli import main
folder, *names = sys.argv[1:]
for name, options in zip(names, {PLACES_OF_NOISE}):
    if main([*{RUN}, *options, "--output", folder + "/" + name]):
        sys.exit(1)
"""


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


def results_on_ranks(ranks: int, folder: Path, python: str = sys.executable) -> list[Path]:
    names = [options[1] for options in PLACES_OF_NOISE]
    job = mpirun(ranks, "-c", COMMANDS, folder, *names, python=python)
    assert job.returncode == 0, job.stderr
    return [folder / name for name in names]


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """Return the results of one process, by the place of the noise."""
    paths = [tmp_path_factory.mktemp("serial") / options[1] for options in PLACES_OF_NOISE]
    for options, path in zip(PLACES_OF_NOISE, paths, strict=True):
        assert main([*RUN, *options, "--output", str(path)]) == 0
    return paths


@pytest.mark.parametrize(("ranks", "library"), [(2, "this"), *slow((3, "this"), (10, "this"), (2, "other"))])
def test_the_same_bits_on_any_number_of_ranks_with_any_library(ranks, library, serial, tmp_path, request):
    python = sys.executable if library == "this" else request.getfixturevalue("other_python")
    for found, expected in zip(results_on_ranks(ranks, tmp_path, python), serial, strict=True):
        libraries = [read_result(path).environment["mpi_library"] for path in (found, expected)]
        assert (libraries[0] == libraries[1]) == (library == "this")
        assert read_result(found).environment["ranks"] == ranks
        assert bits(found) == bits(expected)


FAILING = """
import sys
from mu2mpi import Experiment, run
from mu2mpi.federation.machine import Machines
from mu2mpi.core.parallel import world

observe = Machines.accumulate_increments

def fail_on_one_rank(self, t, *points):
    if world().rank == {rank} and t == 5:
        raise {error}
    observe(self, t, *points)

Machines.accumulate_increments = fail_on_one_rank
run(Experiment(machines=3, server={server!r}), output=sys.argv[1])
"""


@pytest.mark.parametrize(
    ("command", "error", "words", "code"),
    [
        ("-m mu2mpi run --machines 3 --output", "InputError('bad luck')", "bad luck", 2),
        *slow(
            ("-c", "OSError('no luck')", "no luck", 1),
            ("-m mu2mpi run --machines 3 --output", "OSError('no luck')", "no luck", 1),
            ("-c", "InputError('bad luck')", "bad luck", 2),
            ("-c", "KeyboardInterrupt", "", 130),
        ),
    ],
)
def test_an_expected_error_on_one_rank_alone_ends_the_job_too(command, error, words, code, tmp_path):
    """From the command line, and from a script of the user's that calls run()."""
    script = tmp_path / "failing.py"
    text = FAILING.format(rank=1, server="untrusted", error=error)
    if command != "-c":
        text = text.replace("run(Experiment", "from mu2mpi.cli import main\nsys.exit(main(sys.argv[2:]))\n#")
    script.write_text("from mu2mpi import InputError\n" + text)
    path = tmp_path / "a.h5"
    arguments = [path, *command.removeprefix("-m mu2mpi ").split(), path] if command != "-c" else [path]
    job = mpirun(3, script, *arguments, timeout=60)
    assert job.returncode != 0
    if command != "-c":
        assert job.returncode == code
        assert "rank 1: " in job.stderr
    assert words in job.stderr
    assert not path.exists()


@pytest.mark.parametrize(
    ("server", "rank"),
    [
        ("trusted", 0),
        *slow(("untrusted", 0), ("untrusted", 2), ("trusted", 1)),
    ],
)
def test_an_exception_on_one_rank_ends_the_job(server, rank, tmp_path):
    script = tmp_path / "failing.py"
    script.write_text(FAILING.format(rank=rank, server=server, error="MemoryError('no room')"))
    job = mpirun(3, script, tmp_path / "a.h5", timeout=60)
    assert job.returncode != 0
    assert f"rank {rank} of 3 failed" in job.stderr
    assert "MemoryError: no room" in job.stderr
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize(
    "bad",
    [
        ["--machines", "99999"],
        *slow(
            ["--data", "mnist", "--data-dir", "/nonexistent"],
            ["--data", "{}/pipe.csv"],
            ["--data", "{}/labels.csv"],
            ["--nonsense"],
            ["--config", "{}/pipe.csv"],
        ),
    ],
)
def test_bad_input_is_told_once_and_ends_every_rank_with_2(bad, tmp_path, tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    os.mkfifo(data / "pipe.csv")
    (data / "labels.csv").write_text("a,label\n" + "0,a\n1,b\0\n" * 9)
    words = [word.format(data) for word in bad]
    job = mpirun(3, "-m", "mu2mpi", "run", *words, "--output", tmp_path / "a.h5", timeout=60)
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


@pytest.mark.slow
def test_the_other_librarys_mpirun_is_refused(tmp_path, other_python):
    command = [Path(other_python).parent / "mpirun", "-n", "2", sys.executable, "-m", "mu2mpi", *RUN]
    job = run_command([*command, "--output", tmp_path / "a.h5"], 60, {})
    assert job.returncode != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_sweep_and_info_on_ranks(tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text('machines = [1, 3]\nserver = ["untrusted", "trusted"]\nrounds = 5\nseed = 1\n')
    commands = "import sys; from mu2mpi.cli import main; sys.exit(main(sys.argv[1:]) or main(['info']))"
    job = mpirun(3, "-c", commands, "sweep", config, "--output", tmp_path / "3")
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("ranks") == 1
    assert main(["sweep", str(config), "--output", str(tmp_path / "1")]) == 0
    assert len(list((tmp_path / "1").iterdir())) == 4
    assert {p.name: bits(p) for p in (tmp_path / "1").iterdir()} == {
        p.name: bits(p) for p in (tmp_path / "3").iterdir()
    }
