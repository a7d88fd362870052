"""Ranks on two hosts that share some folders: the same bits, work done once a node, hosts that are lost."""

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from helpers.hosts import wait_for
from helpers.launch import mu2mpi

from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

SMALL = ["run", "--machines", "10", "--seed", "7", "--rounds", "50"]
LONG = ["run", "--data", "synthetic", "--samples", "6000", "--machines", "4", "--seed", "4"]

# Runs the command line, but takes some seconds for it.
SLOWED = """
import sys, time
from mu2mpi.cli import main
from mu2mpi.federation.machine import Machines

observe = Machines.accumulate_increments

def slowly(self, t, *points):
    time.sleep(0.003)
    observe(self, t, *points)

Machines.accumulate_increments = slowly
sys.exit(main(sys.argv[1:]))
"""

# Runs the command line, and writes down which kernels this rank has compiled and which files it has written.
WATCHED = """
import gc, json, sys
from pathlib import Path

written = []

def note(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[2] & 0o100:
        written.append(arguments[0])

sys.addaudithook(note)

from numba.core.dispatcher import Dispatcher
from mu2mpi.cli import main
from mu2mpi.core.parallel import world

code = main(sys.argv[2:])
kernels = [thing for thing in gc.get_objects() if isinstance(thing, Dispatcher) and thing.stats.cache_path]
compiled = [f"{kernel.__name__}{types}" for kernel in kernels for types in kernel.stats.cache_misses]
facts = {"host": world().host, "compiled": compiled, "written": written}
Path(sys.argv[1], f"rank-{world().rank}.json").write_text(json.dumps(facts))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return what comes of a command in one process, as often as it is asked for."""
    found = {}

    def result(*arguments):
        if arguments not in found:
            path = tmp_path_factory.mktemp("alone") / "a.h5"
            done = mu2mpi(*arguments, "--output", path)
            assert done.returncode == 0, done.stderr
            found[arguments] = read_result(path)
        return found[arguments]

    return result


def assert_same(path, expected):
    found = read_result(path)
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.w.tobytes() == expected.w.tobytes()
    for name in set(found.history.column_names()) - {"elapsed_seconds"}:
        assert getattr(found.history, name).tobytes() == getattr(expected.history, name).tobytes(), name


def watched(hosts, folder, *arguments, **options):
    """Run a command on two ranks of each host; return what each rank says of itself."""
    (folder / "watched.py").write_text(WATCHED)
    done = hosts.run(2, folder / "watched.py", folder, *arguments, **options)
    assert done.returncode == 0, done.stderr
    public_facts = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]
    assert [of["host"] for of in public_facts] == ["h1", "h1", "h2", "h2"]
    return public_facts


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_same_bits_on_several_hosts(server, hosts, python, alone, tmp_path):
    """Messages of 650 numbers are sent over the network, and not through memory that hosts do not share."""
    arguments, before = [*SMALL, "--server", server], hosts.sent_bytes("h2")
    done = hosts.run(2, "-m", "mu2mpi", *arguments, "--output", tmp_path / "a.h5", python=python)
    assert done.returncode == 0, done.stderr
    assert hosts.sent_bytes("h2") - before >= 50 * 650 * 8
    assert read_result(tmp_path / "a.h5").environment["hosts"] == "h1 (2), h2 (2)"
    assert_same(tmp_path / "a.h5", alone(*arguments))


def test_each_kernel_is_compiled_once_a_node(hosts, tmp_path):
    """Into folders that the nodes do not share; and the second time by nobody."""
    cache = str(hosts.scratch / "kernels")
    arguments = [*SMALL, "--output", tmp_path / "a.h5", "--overwrite"]
    public_facts = watched(hosts, tmp_path, *arguments, NUMBA_CACHE_DIR=cache)
    for host in hosts.names:
        compiled = Counter(kernel for of in public_facts if of["host"] == host for kernel in of["compiled"])
        assert any(kernel.startswith("add_noise") for kernel in compiled)
        assert set(compiled.values()) == {1}, compiled
    public_facts = watched(hosts, tmp_path, *arguments, NUMBA_CACHE_DIR=cache)
    assert [of["compiled"] for of in public_facts] == [[], [], [], []]


def unpacked_files(hosts, folder, cache, data, **options):
    """Return how many files each rank unpacks into a cache folder."""
    words = ["run", "--data", "mnist", "--data-dir", data, "--rounds", "3", "--machines", "4", "--overwrite"]
    options["MU2MPI_CACHE_DIR"] = str(cache)
    public_facts = watched(hosts, folder, *words, "--output", folder / "a.h5", **options)
    return [sum(f"{cache}/unpacked/" in path for path in of["written"]) for of in public_facts]


def test_data_are_unpacked_once_a_node_or_into_one_folder(hosts, python, mnist_dir, tmp_path):
    cache = hosts.scratch / f"cache of {Path(python).parents[1].name}"
    assert unpacked_files(hosts, tmp_path, cache, mnist_dir, python=python) == [4, 0, 4, 0]
    assert unpacked_files(hosts, tmp_path, tmp_path / "cache", mnist_dir) == [4, 0, 0, 0]


@pytest.mark.parametrize("lost", ["a rank", "h1", "h2"])
def test_a_rank_or_a_host_is_lost_in_mid_run(lost, hosts, python, alone, tmp_path, moments):
    """All else ends, also where the launcher was lost, and the same command goes on from the checkpoint."""
    path, script = tmp_path / "a.h5", tmp_path / "slowed.py"
    script.write_text(SLOWED)
    arguments = [*LONG, "--output", path]
    command, environment = hosts.mpirun(1, script, *arguments, "--checkpoint-every", "0.2", python=python)

    def has_ended():
        left = [pid for host in hosts.names for pid in hosts.processes(host, str(path))]
        return job.poll() is not None and not left

    with open(tmp_path / "log", "w") as log:
        job = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for(checkpoint_path(path).exists, "a checkpoint")
        wait_for(lambda: read_checkpoint(checkpoint_path(path)).rounds_done > 0, "one that holds rounds")
        time.sleep(moments.random() * 0.5)
        if lost == "a rank":
            os.kill(max(hosts.processes("h2", str(script))), signal.SIGKILL)
        else:
            hosts.lose(lost)
        wait_for(has_ended, "the end of all ranks")
    finally:
        if not has_ended():
            hosts.lose("h1")
            hosts.lose("h2")
            job.wait(timeout=20)
    # The mpirun of Open MPI ends with code 0 where it loses a host.
    assert job.returncode != 0 or lost == "h2"
    assert not path.exists()
    again = hosts.run(1, "-m", "mu2mpi", *arguments, python=python)
    assert again.returncode == 0, again.stderr
    assert_same(path, alone(*LONG))
