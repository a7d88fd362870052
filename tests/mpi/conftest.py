"""Tests in this folder run under mpirun: one verdict for all ranks, told by rank 0."""

from collections.abc import Generator

import pytest

from mu2mpi.core.parallel import Communicator, world


@pytest.fixture
def communicator(request: pytest.FixtureRequest) -> Communicator:
    if request.node.get_closest_marker("several_ranks") and world().size < 2:
        pytest.fail("this test needs several ranks: run it with mpirun -n 2 or more")
    return world()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a phase of a test fail on every rank if it failed on any."""
    report = yield
    failures = world().allgather(str(report.longrepr) if report.failed else None)
    told = [f"rank {rank}:\n{text}" for rank, text in enumerate(failures) if text is not None]
    if told:
        report.outcome, report.longrepr = "failed", "\n\n".join(told)
    return report
