"""What theory says of the pieces: how the errors of estimates fall, and which steps are small enough."""

import math

import numpy as np
from helpers.simulations import simulation_of

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.population import Population


def test_a_run_on_a_population_measures_the_same_errors():
    """What the history holds is d_t before noise, against the exact gradient, whoever adds noise."""
    settings = {
        "data": "population",
        "features": 3,
        "machines": 2,
        "rounds": 20,
        "evaluations": 20,
        "seed": 5,
    }
    population = Population(3, 3, 0.5, 0.1, 0.0, 10_000, 0)
    for estimator in ("corrected-momentum", "gradient"):
        simulation = simulation_of(Experiment(**settings, rho=math.inf, estimator=estimator), population)
        errors = []
        observe = simulation.machines.observe

        def observed(t, x, x_previous, observe=observe, simulation=simulation, errors=errors):
            observe(t, x, x_previous)
            constants = simulation.constants
            d = simulation.machines.q * (constants.mechanism.resolution / 2) / constants.estimator.weight(t)
            errors.append(np.sum((d - simulation.evaluator.gradient(x)[1]) ** 2))

        simulation.machines.observe = observed
        history = simulation.run().history
        np.testing.assert_allclose(history.estimate_error, np.array(errors)[history.round - 1], rtol=1e-12)
