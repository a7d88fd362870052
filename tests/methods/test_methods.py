"""What theory says of the pieces: how the errors of estimates fall, and which steps are small enough."""

import math

import numpy as np
from schedules import make_schedule, simulation_of

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.sources.population import Population


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
            schedule = simulation.schedule
            d = simulation.machines.q * (schedule.mechanism.resolution / 2) / schedule.estimator.weight(t)
            errors.append(np.sum((d - simulation.evaluator.gradient(x)[1]) ** 2))

        simulation.machines.observe = observed
        history = simulation.run().history
        np.testing.assert_allclose(history.estimate_error, np.array(errors)[history.round - 1], rtol=1e-12)


def test_steps_of_storm_let_its_potential_fall():
    """b_{t+1} / eta_t >= 28 L^2 eta_t + 1 / eta_t - 1 / eta_{t-1} and eta_t <= 1 / (4 L), for b_t = 1 / t."""
    rounds = 100_001
    storm = make_schedule(
        "storm", machines=1, rounds=rounds, classes=2, features=6, diameter=1.0, rho=math.inf, clip_norm=1.0
    )
    L, base = storm.L, storm.eta
    assert L == 3.0
    t = np.arange(1, rounds)
    # A message of round t estimates t f'(x_t).
    eta, before = np.array([storm.rate(s) * s for s in t.tolist()]), base / np.sqrt(t)
    np.testing.assert_allclose(eta, base / np.sqrt(t + 1), rtol=1e-14)
    assert np.all(eta <= 1 / (4 * L))
    assert np.all(1 / ((t + 1) * eta) >= 28 * L**2 * eta + 1 / eta - 1 / before)
    assert not np.all(1 / ((t + 1) * 2 * eta) >= 28 * L**2 * 2 * eta + (1 / eta - 1 / before) / 2)
