"""Fixtures that every folder of tests may use, their markers, and how they are shared out among processes."""

import os
import random
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from helpers.launch import restore_interrupts
from helpers.requirements import missing

pytest_plugins = ["helpers.shared_memory", "helpers.hosts", "helpers.extensions"]

SEED = "MU2MPI_TEST_SEED"
"""The environment variable that holds the seed of moments drawn at random."""

FUZZ_SEED = "MU2MPI_FUZZ_SEED"
"""The environment variable that holds the seed of input drawn at random: by default the date."""

LONGEST_GROUPS = ("jobs", "ranks")
"""Groups of tests that are started first: those that submit jobs, and those that start ranks."""

COMPILED = "MU2MPI_TEST_COMPILED"
"""The environment variable that names the kernels that were compiled before the first test, if all were."""


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """Return the folder that holds mnist/; only continuous integration must have it."""
    folder = os.environ.get("MU2MPI_DATA_DIR")
    if not folder:
        missing("MU2MPI_DATA_DIR does not name a folder that holds mnist/")
    return Path(folder)


@pytest.fixture
def compiled(tmp_path: Path) -> set[str]:
    """Return the kernels that are compiled before the first test where the cache is empty."""
    from helpers import kernels
    from helpers.launch import run_command

    if COMPILED in os.environ:
        return set(os.environ[COMPILED].split())
    paths = {"PYTHONPATH": str(Path(__file__).parent), "NUMBA_CACHE_DIR": str(tmp_path)}
    done = run_command([sys.executable, kernels.__file__], 120, paths)
    assert done.returncode == 0, done.stderr
    return kernels.cached(tmp_path)


@pytest.fixture
def other_python() -> str:
    """Return the Python of an environment with another MPI library; scripts/test.sh makes one."""
    python = os.environ.get("MU2MPI_OTHER_PYTHON")
    if not python:
        missing("MU2MPI_OTHER_PYTHON does not name the Python of an environment with another MPI library")
    return python


@pytest.fixture(params=["this library", "the other library"])
def python(request) -> str:
    """Return the Python of an environment with MPI, for each of both libraries."""
    return sys.executable if request.param == "this library" else request.getfixturevalue("other_python")


@pytest.fixture
def moments(request: pytest.FixtureRequest) -> random.Random:
    """Return what a test draws the moments of its faults from: others in every run of the suite."""
    return random.Random(f"{os.environ[SEED]} {request.node.name}")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Return what a fuzzer draws its input from: other input every day, and the same all day."""
    return random.Random(f"{os.environ[FUZZ_SEED]} {request.node.name}")


def pytest_configure(config: pytest.Config) -> None:
    restore_interrupts()
    # Processes that run tests side by side inherit it.
    os.environ.setdefault(SEED, str(secrets.randbelow(10**9)))
    os.environ.setdefault(FUZZ_SEED, datetime.now(UTC).date().isoformat())


def pytest_report_header(config: pytest.Config) -> list[str]:
    return [
        f"moments of faults: drawn anew; {SEED}={os.environ[SEED]} repeats them",
        f"input of fuzzers: drawn by the day; {FUZZ_SEED}={os.environ[FUZZ_SEED]} repeats it",
    ]


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("numprocesses", None):
        from helpers.kernels import cached, compile_kernels

        is_first = not cached()
        compile_kernels()
        if is_first:
            os.environ[COMPILED] = " ".join(cached())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, and start with the groups that take longest."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "mnist_dir" in fixtures:
            item.add_marker("mnist")
        if "cluster" in fixtures:
            item.add_marker("slurm")
            item.add_marker("slow")
    items.sort(key=lambda item: [*LONGEST_GROUPS, group_of(item.nodeid)].index(group_of(item.nodeid)))


def group_of(nodeid: str) -> str:
    """Return the group of a test; all tests of a group run one after another, in one process."""
    path = Path(nodeid.partition("::")[0])
    if path.name == "test_blocks_of_pages.py":
        return nodeid if "[" in nodeid else path.name
    return {"ranks": "ranks", "slurm": "jobs", "hosts": "jobs"}.get(path.parent.name, str(path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute groups of tests over processes, in their order."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return GroupScheduling(config, log)
