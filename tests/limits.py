"""A test that takes over five seconds and is not marked slow fails the suite.

Another program may have held a processor just then. So a test that took too long is run again at the end,
alone and up to three times, and fails if it never was fast enough; on a machine that is slow, or busy even
then, it may take longer. What the tests of a file share is made once, and counts for none of them.
"""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest

SECONDS = 5.0
CHANCES = 3
LAST_CHANCE = "MU2MPI_TIMES_COUNT"
"""The environment variable that says that no test is timed again."""

WORK = """
import time

def add_up():
    total = 0
    for number in range(5_000_000):
        total += number

began, used = time.perf_counter(), time.process_time()
add_up()
used = time.process_time() - used
print(used, time.perf_counter() - began)
"""

WORK_SECONDS = 0.15
"""Processor time of that work on a core for which limits are meant as they are: 30 ns a turn."""

spent: defaultdict[str, float] = defaultdict(float)
limits: list[float] = []
verdict: list[str] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    if LAST_CHANCE in os.environ:
        limits.append(stretched(SECONDS))


def stretched(seconds: float) -> float:
    """Return how long something may take here and now that takes so many seconds at most on an idle server.

    The work takes more processor time on a slower core, and longer than that when others want the cores. The
    latter is squared, as processes that wait for one another lose their turns one after another.
    """
    command = [sys.executable, "-S", "-c", WORK]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in os.sched_getaffinity(0)]
    times = [tuple(map(float, worker.communicate()[0].split())) for worker in workers]
    return seconds * max(max(1.0, used / WORK_SECONDS) * (wall / used) ** 2 for used, wall in times)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "slow" not in report.keywords:
        spent[report.nodeid] += report.duration


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """Judge before the summary is written, in the one process that hears of all tests."""
    too_long = [name for name, seconds in spent.items() if seconds > SECONDS]
    if too_long and not hasattr(session.config, "workerinput"):
        if LAST_CHANCE in os.environ:
            limit = max(*limits, stretched(SECONDS))
            verdict.extend(f"{name} took {spent[name]:.1f} s" for name in too_long if spent[name] > limit)
        else:
            verdict.extend(_timed_again(session.config, too_long))
        if verdict and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return (yield)


def _timed_again(config: pytest.Config, names: list[str]) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", *names]
    for _ in range(CHANCES):
        again = subprocess.run(
            command,
            cwd=config.rootpath,
            env={**os.environ, LAST_CHANCE: "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if again.returncode == 0:
            return []
    return again.stdout.splitlines()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if verdict:
        terminalreporter.section(f"over {SECONDS:g} s, and not marked slow", red=True)
        for line in verdict:
            terminalreporter.line(line)
