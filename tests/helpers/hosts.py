"""Hosts made of namespaces, which `scripts/hosts.sh` starts once for all tests, and ranks on them."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.launch import SETTINGS
from helpers.requirements import missing

SCRIPT = Path(__file__).parents[2] / "scripts" / "hosts.sh"
FOLDER = Path(tempfile.gettempdir()) / "mu2mpi-hosts"
NEEDED_OF_SLURM = "slurmctld", "slurmd", "munge"

# What Open MPI does not pass on to other hosts unless it is told to.
PASSED_ON = "PYTHONPATH", "NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "MU2MPI_CACHE_DIR", "MU2MPI_DATA_DIR"


class Hosts:
    """The hosts h1 and h2."""

    names = "h1", "h2"
    scratch = FOLDER / "scratch"  # another folder on each host

    def scratch_of(self, host: str) -> Path:
        """Return where the scratch folder of a host is seen from outside."""
        return FOLDER / "scratch-of" / host

    def mpirun(
        self, ranks: int, *arguments: str | Path, python: str = sys.executable, **variables: str
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command, and its environment, that starts so many ranks on each of the two hosts."""
        environment = {**os.environ, **SETTINGS, **variables}
        launcher, ssh = Path(python).parent / "mpirun", FOLDER / "ssh"
        on = ["-launcher-exec", ssh, "-hosts", ",".join(self.names), "-ppn", ranks]
        if (launcher.parent / "prterun").exists():
            slots = ",".join(f"{name}:{ranks}" for name in self.names)
            on = ["--prtemca", "plm_ssh_agent", ssh, "-H", slots, "--map-by", f"ppr:{ranks}:node"]
            for name in PASSED_ON:
                on += ["-x", name] if name in environment else []
        words = [FOLDER / "on", "h1", launcher, *on, "-n", 2 * ranks, python, *arguments]
        return [str(word) for word in words], environment

    def run(
        self, ranks: int, *arguments: str | Path, timeout: float = 120, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python ARGUMENTS`` on so many ranks of each host and return what came of it."""
        command, environment = self.mpirun(ranks, *arguments, **options)
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )

    def processes(self, host: str, words: str = "") -> list[int]:
        """Return the processes on a host, of which the command line contains these words."""
        found = subprocess.run([FOLDER / "pids", host], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split() if words in _command_line(pid)]

    def sent_bytes(self, host: str) -> int:
        """Return the number of bytes that a host has sent over the network."""
        counter = "/sys/class/net/mu2mpi{}/statistics/rx_bytes"
        return int(Path(counter.format(host.removeprefix("h"))).read_text())

    def lose(self, host: str) -> None:
        """Kill all processes on a host at once."""
        subprocess.run([FOLDER / "lose", host], check=False, timeout=20)


class Nodes(Hosts):
    """The hosts as nodes of a SLURM, which answers where SLURM_CONF names `configuration`."""

    configuration = FOLDER / "slurm.conf"

    def bring_back(self, host: str) -> None:
        """Make a host that was lost a node again, and wait until it is idle or a job has started on it."""
        query = ["sinfo", "--noheader", "--partition=normal", "--nodes", host, "--format=%t"]

        def wait_until(*states: str) -> None:
            wait_for(lambda: subprocess.check_output(query, text=True).startswith(states), f"{states} {host}")

        # To a node that is back sooner, SLURM sends the end of the first start of a job during the second.
        wait_until("down")
        subprocess.run([FOLDER / "slurmd", host], check=True, timeout=20)
        wait_until("idle", "mix", "alloc")


def _command_line(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    """Return once a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def hosts() -> Iterator[Hosts]:
    """Return two hosts, which are nodes of a SLURM, too, where there is one."""
    tried = "unshare --net --uts --ipc --mount true && ip link show"
    namespaces = subprocess.run(["sh", "-c", tried], capture_output=True, text=True, check=False)
    if namespaces.returncode != 0:
        missing(f"no namespaces can be made here, as scripts/hosts.sh does: {namespaces.stderr.strip()}")
    slurm = all(shutil.which(name) for name in NEEDED_OF_SLURM)
    environment = {**os.environ, "SLURM": "1" if slurm else ""}
    with open(f"{FOLDER}.lock", "w") as lock:
        # There is one set of hosts on a machine, and perhaps another run of these tests.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            subprocess.run([SCRIPT, "start", FOLDER], env=environment, check=True, timeout=60)
            yield Nodes() if slurm else Hosts()
        finally:
            subprocess.run([SCRIPT, "stop", FOLDER], check=True, timeout=60)


@pytest.fixture
def nodes(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Return two nodes of a SLURM, to which all commands of SLURM then speak."""
    if not isinstance(hosts, Nodes):
        missing(f"no SLURM can be started here: it needs {', '.join(NEEDED_OF_SLURM)}")
    monkeypatch.setenv("SLURM_CONF", str(hosts.configuration))
    for host in hosts.names:
        if not hosts.processes(host, "slurmd"):
            hosts.bring_back(host)
    return hosts
