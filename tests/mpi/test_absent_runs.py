"""Runs with machines that are away or differ, on all ranks of this job against the same runs on one."""

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.simulations import share_result, simulation_of
from helpers.unequal_machines import owned_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator

SIZES = [17, 4, 9, 6, 11]
SETTINGS = [
    {"participation": "uniform:2", "partition": "iid"},
    {"participation": "bernoulli:0.3", "estimator": "gradient", "query": "iterate"},
    {"participation": "by-size", "objective": "machines"},
    {"participation": "by-size", "method": "anytime-dp-mf"},
    {"participation": "uniform:1", "noise_correlation": 0.6, "l2": 0.1},
    {"participation": "uniform:3", "method": "noisy-minibatch-sgd", "rounds": 8, "batch": 2, "epsilon": 3.0},
]


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
def test_absent_machines_have_the_bits_of_one_process(communicator, monkeypatch, server, settings):
    experiment = Experiment(machines=5, server=server, seed=4, clip_norm=1.5, **settings)
    alone = simulation_of(experiment, owned_source(2, SIZES, 13, 5), Communicator()).run()
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 700)
    ours = simulation_of(experiment, owned_source(2, SIZES, 13, 5), communicator).run()
    assert_same(ours, share_result(alone, communicator))
    assert ours.privacy == alone.privacy
    assert ours.accounts.differences(alone.accounts) == []
    np.testing.assert_array_equal(ours.accounts.participation, alone.accounts.participation)
    assert len(set(communicator.allgather(ours.x.tobytes()))) == 1
