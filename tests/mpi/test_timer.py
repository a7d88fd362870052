"""What a result says of where the time went, on all ranks of this job."""

import os
import time

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.sources import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.execution import environment
from mu2mpi.federation.machine import Machines

ROUNDS, LATE, RUNS = 30, 0.04, 3


def simulation(communicator):
    source = random_source(1, 40 * ROUNDS, 4, 3)
    experiment = Experiment(machines=8, rounds=ROUNDS, seed=1, evaluations=1)
    return simulation_of(experiment, source, communicator)


@pytest.mark.several_ranks
@pytest.mark.parametrize("in_turn", [False, True], ids=["the last rank is late", "each is late in its turn"])
def test_waiting_for_the_slowest_is_told_from_moving(communicator, monkeypatch, in_turn):
    ranks, observe = communicator.size, Machines.accumulate_increments
    arrivals = []

    def late(machines, t, *arguments):
        observe(machines, t, *arguments)
        if communicator.rank == (t % ranks if in_turn else ranks - 1):
            time.sleep(LATE)
        arrivals.append(time.time())

    monkeypatch.setattr(Machines, "accumulate_increments", late)
    errors, communication = [], []
    for _ in range(RUNS):
        timing = simulation(communicator).run().timing
        by_rank = np.array(communicator.allgather(arrivals[-ROUNDS:]))
        waits = (by_rank.max(axis=0) - by_rank).sum(axis=1)
        assert waits[0] > ROUNDS * LATE / 4
        errors.append(np.abs(timing["waiting"] - waits) / waits.max())
        communication.append(timing["communication"])
    # Other processes may delay a rank after its arrival, but hardly in all runs for a tenth of its sleep.
    assert np.all(np.min(errors, axis=0) < 0.1)
    assert np.all(np.min(communication, axis=0) < 0.25 * ROUNDS * LATE)


def test_data_that_are_read_between_rounds_have_a_phase_of_their_own(communicator, monkeypatch):
    assert not simulation(communicator).run().timing["data"].any()
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 250)
    reading = simulation(communicator)
    supply, late = reading.machines._reader, []

    def slow(t):
        late.append(t)
        time.sleep(LATE)
        return supply(t)

    reading.machines._reader = slow
    timing = reading.run().timing
    reads = np.array(communicator.allgather(len(late)))
    assert np.all(reads > 3)
    assert np.all(timing["data"] > reads * LATE)
    assert np.all(timing["compute"] < reads * LATE / 2)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_cores_are_those_that_any_rank_may_use(communicator):
    allowed = sorted(os.sched_getaffinity(0))
    assert environment.describe_environment(communicator)["cores"] == len(allowed)
    try:
        os.sched_setaffinity(0, {allowed[communicator.rank % len(allowed)]})
        bound = environment.describe_environment(communicator)["cores"]
    finally:
        os.sched_setaffinity(0, allowed)
    assert bound == min(communicator.size, len(allowed))
