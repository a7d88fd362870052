"""A run on fewer ranks than there are: the choice, and how all ranks end alike."""

import numpy as np
import pytest
from arrays import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import Interrupted, SharedInputError
from mu2mpi.execution import crew, job
from mu2mpi.execution.crew import fastest_ranks, on_a_part, part_of
from mu2mpi.execution.job import Job
from mu2mpi.execution.plan import resolve
from mu2mpi.execution.simulation import Simulation
from mu2mpi.parallel import Communicator

pytestmark = pytest.mark.several_ranks


def never() -> bool:
    return False


def first(communicator: Communicator) -> int | None:
    """Return the number of a part that rank 0 has alone."""
    return 0 if communicator.rank == 0 else None


def settled(server: str, machines: int, rounds: int = 40):
    source = random_source(1, machines * rounds, 6, 3)
    return resolve(Experiment(server=server, machines=machines, rounds=rounds, seed=9), source, 1)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("count", [1, 2])
def test_any_crew_finds_the_same_bits_and_all_ranks_get_them(communicator, server, count, monkeypatch):
    plan = settled(server, 5)
    expected = Simulation(plan, Communicator()).run()
    monkeypatch.setattr(job, "fastest_ranks", lambda *_: range(count))
    found = Job(communicator, never, False, 1e9).run(plan)
    assert found.x.tobytes() == expected.x.tobytes()
    np.testing.assert_array_equal(found.history.test_loss, expected.history.test_loss)
    assert (found.environment["ranks"], found.environment["ranks_at_work"]) == (communicator.size, count)
    for seconds in found.timing.values():
        assert seconds.shape == (communicator.size,)
        assert not seconds[count:].any()


def test_all_ranks_agree_on_the_choice(communicator, monkeypatch):
    monkeypatch.setattr(crew, "SHORT", 0)
    monkeypatch.setattr(crew, "_cores", lambda communicator: communicator.size)
    for server in ("untrusted", "trusted"):
        ranks = fastest_ranks(settled(server, 4, 500), communicator)
        assert 1 <= len(ranks) <= communicator.size
        assert set(communicator.allgather(ranks)) == {ranks}


@pytest.mark.parametrize(("slow", "expected"), [({2, 3}, 1), ({1, 3}, 2), (set(), None)])
def test_the_fastest_number_is_taken(communicator, slow, expected, monkeypatch):
    """As many as there are if each makes it faster, and fewer if these are as fast."""
    monkeypatch.setattr(crew, "SHORT", 0)
    monkeypatch.setattr(crew, "_cores", lambda communicator: communicator.size)

    def seconds(plan, crew, rounds):
        return 1.0 if crew.size in slow else 0.1 / crew.size

    monkeypatch.setattr(crew, "_seconds_a_round", seconds)
    ranks = fastest_ranks(settled("untrusted", 4, 500), communicator)
    if communicator.size == 3 and expected == 2:
        # Three, half of them and so on: two of three is no number that is tried.
        expected = 1
    assert len(ranks) == (expected or communicator.size)


def test_short_runs_and_single_machines_need_no_trial(communicator, monkeypatch):
    monkeypatch.setattr(crew, "_seconds_a_round", lambda *_: pytest.fail("it is tried"))
    assert fastest_ranks(settled("untrusted", 2, 4), communicator) == range(1)
    monkeypatch.setattr(crew, "SHORT", 0)
    assert fastest_ranks(settled("untrusted", 1, 4), communicator) == range(1)


def test_an_error_of_the_crew_is_one_of_all(communicator):
    def fails(part):
        raise SharedInputError("bad luck")

    with (
        part_of(communicator, first(communicator)) as part,
        pytest.raises(SharedInputError, match="bad luck"),
    ):
        on_a_part(communicator, part, never, fails)


def test_a_rank_that_waits_passes_on_that_it_is_to_stop(communicator):
    last = communicator.rank == communicator.size - 1

    def works(part):
        while not communicator.called():
            pass
        raise Interrupted(7)

    with part_of(communicator, first(communicator)) as part, pytest.raises(Interrupted) as stop:
        on_a_part(communicator, part, lambda: last, works)
    assert stop.value.rounds_done == 7
    assert not communicator.called()


def test_parts_are_given_back(communicator):
    """MPI has a few thousand communicators, and a sweep may have as many runs."""
    for _ in range(5000):
        with part_of(communicator, first(communicator)):
            pass
