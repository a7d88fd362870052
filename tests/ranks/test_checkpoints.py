"""Processes that are killed, starved of disk or signalled: nothing is lost, and runs go on."""

import contextlib
import functools
import itertools
import os
import subprocess
import sys

import h5py
import pytest
from helpers.assertions import assert_same
from helpers.interrupted_runs import job, signalled
from helpers.launch import mpirun, mu2mpi, run_command
from helpers.slow import slow
from helpers.sources import random_source

from mu2mpi import run
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.registry import known_names
from mu2mpi.execution.evaluation import Evaluator
from mu2mpi.federation.machine import Machines
from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

POINTS = [
    *((os, name) for name in ("open", "fsync", "link", "replace", "unlink")),
    (Machines, "accumulate_increments"),
    (Evaluator, "evaluate"),
]


def killed_at(n, action):
    """Do something in a process that dies at the n-th of `POINTS` that it comes to; return how it ended."""
    child = os.fork()
    if child == 0:
        count = itertools.count(1)

        def killing(real):
            def call(*arguments, **options):
                if next(count) == n:
                    os._exit(9)
                return real(*arguments, **options)

            return call

        for owner, name in POINTS:
            setattr(owner, name, killing(getattr(owner, name)))
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_kills_at_random_points(server, tmp_path, moments, monkeypatch):
    """Every time, the next start goes on to the same bits, whatever it does just then."""
    monkeypatch.setattr("mu2mpi.execution.simulation.DECISION_INTERVAL_SECONDS", 0.0)
    source, experiment = random_source(1, 100, 6, 3), Experiment(machines=4, seed=1, server=server)
    expected = job(every=1e-9).run_to_file(experiment, source, tmp_path / "unbroken.h5")
    path, ends = tmp_path / "a.h5", []
    while ends.count(9) < 15:
        ends.append(
            killed_at(
                moments.randrange(1, 120), lambda: job(every=1e-9).run_to_file(experiment, source, path)
            )
        )
        if ends[-1] != 9 or path.exists():
            assert_same(read_result(path), expected)
            path.unlink()
    assert set(ends) <= {0, 9}
    assert_same(job().run_to_file(experiment, source, path), expected)


@pytest.mark.slow
def test_no_kill_leaves_the_key_behind_once_the_run_has_finished(tmp_path, monkeypatch):
    """Whichever call on the file system or step of the run it comes before."""
    monkeypatch.setattr("mu2mpi.execution.simulation.DECISION_INTERVAL_SECONDS", 0.0)
    experiment, source = Experiment(machines=4, rounds=3), random_source(1, 100, 6, 3)
    job().run_to_file(experiment, source, tmp_path / "compiled.h5")
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        folder.mkdir()
        output, keys = folder / "a.h5", set()
        if killed_at(n, lambda path=output: job(every=1e-9).run_to_file(experiment, source, path)) == 0:
            break
        for path in folder.iterdir():
            with contextlib.suppress(OSError, KeyError), h5py.File(path) as file:
                keys.add(file.attrs["key"])
        was_finished = output.exists()
        if not was_finished:
            job().run_to_file(experiment, source, output)
        # Who sees the result finished sees its checkpoint, too, until that is removed as the last.
        left = [path for path in folder.iterdir() if not was_finished or path.name.startswith(".")]
        assert not [path for path in left if "checkpoint" in path.name]
        contents = [path.read_bytes() for path in left]
        for key in keys:
            assert not any(
                option_syntax in text
                for option_syntax in (key, bytes.fromhex(key.decode()))
                for text in contents
            )
    assert n > 20


LONG = ["--data", "synthetic", "--samples", "900", "--machines", "3", "--seed", "4", "--evaluations", "8"]


@functools.cache
def unbroken(server):
    """Return what comes of `LONG` if nothing happens."""
    settings = {"data": "synthetic", "samples": 900, "machines": 3, "seed": 4, "evaluations": 8}
    return run(Experiment(**settings, server=server))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("server", "rank"),
    [
        ("trusted", 2),
        *slow(("trusted", "all"), *((s, r) for s in known_names("servers") for r in (1, "all"))),
    ],
)
def test_killed_ranks_end_the_job_and_any_ranks_go_on(server, rank, tmp_path, moments):
    path, t = tmp_path / "a.h5", moments.randrange(2, 60)
    arguments = ["run", *LONG, "--server", server, "--output", path]
    assert signalled(3, "SIGKILL", rank, t, *arguments).returncode != 0
    assert not path.exists()
    assert 0 < read_checkpoint(checkpoint_path(path)).rounds_done < t
    resumed = mpirun(2, "-m", "mu2mpi", *arguments)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after round" in resumed.stderr
    assert_same(read_result(path), unbroken(server))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks"), [("SIGINT", 2), *slow(("SIGTERM", 3), ("SIGUSR1", 3), ("SIGUSR2", 3))]
)
def test_a_signal_stops_all_ranks_with_a_checkpoint(name, ranks, tmp_path):
    """Sent to one rank alone: the others agree."""
    path = tmp_path / "a.h5"
    ended = signalled(ranks, name, 1, 20, "run", *LONG, "--output", path)
    assert ended.returncode == 75, ended.stderr
    assert read_checkpoint(checkpoint_path(path)).rounds_done == 20
    assert not path.exists()
    assert mu2mpi("run", *LONG, "--output", path).returncode == 0
    assert_same(read_result(path), unbroken("untrusted"))


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(("ranks", "others"), [(3, 2), *slow((2, 1), (1, 3))])
def test_control_variates_of_all_machines_survive_a_signal_and_a_change_of_ranks(ranks, others, tmp_path):
    """Though each rank holds those of its own machines alone."""
    settings = {"method": "scaffold", "local_steps": 3, "rounds": 30}
    data = {"data": "synthetic", "samples": 900, "machines": 3, "seed": 4, "evaluations": 8}
    path, own = tmp_path / "a.h5", ["--method", "scaffold", "--local-steps", "3", "--rounds", "30"]
    ended = signalled(ranks, "SIGUSR1", ranks - 1, 20, "run", *LONG, *own, "--output", path)
    assert ended.returncode == 75, ended.stderr
    state = read_checkpoint(checkpoint_path(path))
    assert state.rounds_done == 20
    assert len(state.last_messages) == 3
    resumed = mpirun(others, "-m", "mu2mpi", "run", *LONG, *own, "--output", path)
    assert resumed.returncode == 0, resumed.stderr
    assert_same(read_result(path), run(Experiment(**data, **settings)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "code"),
    [
        ("mu2mpi.results.writer", "hdf5_file_bytes", 0),
        *slow(
            ("mu2mpi.execution.simulation", "compile_kernels", 75),
            ("mu2mpi.execution.evaluation", "Evaluator.evaluate", 75),
            ("mu2mpi.execution.job", "open_source_on_ranks", 75),
        ),
    ],
)
def test_a_signal_at_an_awkward_moment(module, name, code, tmp_path):
    """While kernels are compiled, the loss is measured, the result is written, and data are read."""
    script = (
        f"import os, signal, sys, {module} as module, mu2mpi.execution.simulation as watch\n"
        "from mu2mpi.cli import main\n"
        "watch.DECISION_INTERVAL_SECONDS = 0.0\n"
        f"original = module.{name}\n"
        "def signalled(*a, **k):\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "    return original(*a, **k)\n"
        f"module.{name} = signalled\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = tmp_path / "a.h5"
    done = run_command([sys.executable, "-c", script, "run", *LONG, "--output", path], 120, {})
    assert done.returncode == code, done.stderr
    assert path.exists() == (code == 0)
    assert checkpoint_path(path).exists() == (code == 75)
    assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(tmp_path):
    """Mount a file system of 200 kB; a full disk of another kind would need the same rights."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", folder], check=True)


FILLING = """
import sys
from pathlib import Path
import mu2mpi.results.{module} as module
from mu2mpi.cli import main
from mu2mpi.execution import simulation as watch
watch.DECISION_INTERVAL_SECONDS = 0.0
original, spared = module.{name}, [None] * {spared}
def filling(*arguments, **options):
    if spared:
        spared.pop()
        return original(*arguments, **options)
    with open(Path(sys.argv[-1]).parent / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return original(*arguments, **options)
module.{name} = filling
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "spared"),
    [
        ("writer", "write_result", 0),
        ("checkpoint", "write_checkpoint", 0),
        ("checkpoint", "write_checkpoint", 1),
    ],
)
def test_a_disk_that_is_full_at_the_wrong_moment(small_disk, module, name, spared):
    """A result that fails is told, and so is a checkpoint, at once, with the way out.

    All comes back once there is room.
    """
    path = small_disk / "a.h5"
    arguments = ["run", *LONG, "--checkpoint-every", "1e-9", "--output", path]
    script = FILLING.format(module=module, name=name, spared=spared)
    done = run_command([sys.executable, "-c", script, *arguments], 120, {})
    assert done.returncode == 1
    assert "No space left" in done.stderr
    if module == "checkpoint":
        assert "Free space or raise the quota" in done.stderr
        assert "the run continues" not in done.stderr
    if module == "writer":
        assert f"repeat the command to resume from {checkpoint_path(path)}, which is kept" in done.stderr
    assert "Traceback" not in done.stderr
    assert not path.exists()
    (path.parent / "filler").unlink()
    is_first = (name, spared) == ("write_checkpoint", 0)
    assert list(path.parent.iterdir()) == [] if is_first else checkpoint_path(path).exists()
    assert mu2mpi(*arguments).returncode == 0
    assert [p.name for p in path.parent.iterdir()] == ["a.h5"]


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_found_out_before_the_run(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = mu2mpi("run", *LONG, "--output", small_disk / "a.h5")
    assert done.returncode == 2
    assert "round" not in done.stderr
