"""When ranks save a run and when they stop it: all of them before the same round, and none left behind."""

import threading

import numpy as np
import pytest

from mu2mpi.core.parallel import Communicator
from mu2mpi.core.signals import StopRequests
from mu2mpi.execution import simulation as module
from mu2mpi.execution.simulation import (
    DECISION_INTERVAL_SECONDS,
    MAX_STRIDE_GROWTH,
    CheckpointAction,
    PeriodicCheckpoints,
)


class Clock:
    """A clock that goes on by the time that a round takes whenever a round is taken."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)


class Counted(Communicator):
    """One rank that counts how often the ranks ask each other."""

    def __init__(self):
        self.asked = 0

    def allreduce(self, send, receive):
        self.asked += 1
        return send


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def verdicts(watch, clock, rounds, seconds):
    """Return what is said before each round, if rounds take so many seconds each."""
    said = []
    for t in range(1, rounds + 1):
        said.append(watch.decide(t))
        clock.now += seconds
    return said


def test_the_first_checkpoints_are_close_together(clock):
    watch = PeriodicCheckpoints(Communicator(), lambda: False, 60.0)
    said = verdicts(watch, clock, 300, 1.0)
    saved = [t - 1 for t, verdict in enumerate(said, 1) if verdict is CheckpointAction.SAVE]
    assert saved == [5, 15, 35, 75, 135, 195, 255]


@pytest.mark.parametrize("seconds", [1e-4, 0.03, 5.0])
def test_a_request_stops_it_within_the_time_between_two_looks(clock, seconds):
    requests = StopRequests()
    watch = PeriodicCheckpoints(Communicator(), lambda: requests.pending, 1e9)
    verdicts(watch, clock, 20_000, seconds)
    requests(10, None)
    asked = clock.now
    for t in range(20_001, 40_000):
        if watch.decide(t) is CheckpointAction.SAVE_AND_STOP:
            break
        clock.now += seconds
    assert clock.now - asked <= DECISION_INTERVAL_SECONDS + seconds


def test_stopping_comes_before_saving(clock):
    requests = StopRequests()
    watch = PeriodicCheckpoints(Communicator(), lambda: requests.pending, 1e-9)
    requests.pending = True
    clock.now += 1
    assert watch.decide(1) is CheckpointAction.SAVE_AND_STOP


def test_fast_rounds_are_not_held_up_by_questions(clock):
    """Ranks ask about every 0.2 seconds once they know how long rounds take, which takes them few."""
    communicator = Counted()
    watch = PeriodicCheckpoints(communicator, lambda: False, 1e9)
    verdicts(watch, clock, 100_000, 1e-4)
    asked = 100_000 * 1e-4 / DECISION_INTERVAL_SECONDS
    assert (
        asked
        <= communicator.asked
        <= asked + np.log(DECISION_INTERVAL_SECONDS / 1e-4) / np.log(MAX_STRIDE_GROWTH) + 2
    )


def test_slower_rounds_are_noticed_at_the_next_look(clock):
    """So that the number of rounds between two looks grows by a factor at most, whatever the clock says."""
    communicator = Counted()
    watch = PeriodicCheckpoints(communicator, lambda: False, 1e9)
    t, looks = 1, []
    while t < 10_000:
        before = communicator.asked
        watch.decide(t)
        if communicator.asked > before:
            looks.append(t)
        t += 1
    strides = np.diff(looks)
    assert strides[0] <= MAX_STRIDE_GROWTH
    assert np.all(strides[1:] <= MAX_STRIDE_GROWTH * strides[:-1])
    # From here on each round takes as long as many did: the next look is one round later.
    before = communicator.asked
    while communicator.asked == before:
        watch.decide(t)
        t, clock.now = t + 1, clock.now + 1.0
    watch.decide(t)
    assert communicator.asked == before + 2


class Shared(Communicator):
    """One of some ranks in threads, which sum up what they are asked."""

    def __init__(self, rank, barrier, sent):
        self.rank, self.size = rank, barrier.parties
        self._barrier, self._sent = barrier, sent

    def allreduce(self, send, receive):
        self._sent[self.rank] = send.copy()
        self._barrier.wait(10)
        total = np.sum(self._sent, axis=0)
        self._barrier.wait(10)
        return total


@pytest.mark.parametrize("saves", [True, False])
def test_all_ranks_save_and_stop_before_the_same_round(saves, monkeypatch):
    """One alone is asked to stop, and by the clock of the first alone they save."""
    monkeypatch.setattr(module, "FIRST_CHECKPOINT_SECONDS", 1e9)
    barrier, sent, said = threading.Barrier(3), [None] * 3, [[] for _ in range(3)]

    def take_rounds(rank):
        requests = StopRequests()
        watch = PeriodicCheckpoints(
            Shared(rank, barrier, sent), lambda: requests.pending, 0.0 if (rank == 0) == saves else 1e9
        )
        wait = threading.Event()
        for t in range(1, 5000):
            requests.pending = rank == 2 and t > 100
            said[rank].append(watch.decide(t))
            if said[rank][-1] is CheckpointAction.SAVE_AND_STOP:
                return
            wait.wait(0.001 * rank)

    threads = [threading.Thread(target=take_rounds, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert said[0] == said[1] == said[2]
    assert said[0].count(CheckpointAction.SAVE_AND_STOP) == 1
    assert (CheckpointAction.SAVE in said[0]) == saves
    assert len(said[0]) > 100
