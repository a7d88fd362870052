"""Scores of canaries on all ranks of this job against those on one."""

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.sources import random_source

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator


@pytest.mark.parametrize("server", ["untrusted", "trusted", "aggregated"])
@pytest.mark.parametrize("settings", [{}, {"estimator": "gradient"}, {"machines": 1}], ids=str)
def test_scores_equal_those_of_one_process(communicator, server, settings):
    """Of ranks with several machines each, and with none."""
    experiment = Experiment(**{"server": server, "machines": 5, "seed": 2, "canaries": 60, **settings})
    scores, models = [], []
    for ranks in (communicator, Communicator()):
        simulation = simulation_of(experiment, random_source(1, 60, 13, 5), ranks)
        result, gathered = simulation.run(), simulation.gather_canary_scores()
        assert (gathered is None) == (ranks.rank > 0)
        scores.append(simulation.canaries.finished_scores(gathered) if gathered is not None else None)
        models.append(result.x)
    np.testing.assert_array_equal(*models)
    if communicator.rank == 0:
        ours, alone = scores
        np.testing.assert_array_equal(ours.score, alone.score)
        np.testing.assert_array_equal(ours.included, alone.included)
        assert np.mean((ours.score > 0) == ours.included) > 0.3


@pytest.mark.several_ranks
def test_scores_are_shared_among_the_ranks_that_add_noise(communicator):
    """Every rank with machines has a part of an untrusted run's scores, and rank 0 all of a trusted run's."""
    for server in ("untrusted", "trusted"):
        experiment = Experiment(server=server, machines=6, seed=2, canaries=60)
        simulation = simulation_of(experiment, random_source(1, 60, 13, 5), communicator)
        simulation.run()
        counts = communicator.allgather(int(np.count_nonzero(simulation.canaries.scores)))
        assert sum(counts) == 60
        assert (counts[0] == 60) == (server == "trusted")
