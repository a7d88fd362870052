"""Gradient estimates of a run, and all methods with all losses and servers."""

import math

import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.slow import slow

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.registry import known_names
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.plan import open_source


def test_a_run_on_a_population_measures_the_same_errors():
    """The history has the error of d_t before noise against the exact gradient, for any trust mode."""
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
        observe = simulation.machines.accumulate_increments

        def observed(t, x, x_previous, observe=observe, simulation=simulation, errors=errors):
            observe(t, x, x_previous)
            constants = simulation.constants
            d = (
                simulation.machines.message_sum
                * (constants.mechanism.grid_spacing / 2)
                / constants.estimator.gradient_weight(t)
            )
            errors.append(np.sum((d - simulation.evaluator.gradient(x)[1]) ** 2))

        simulation.machines.accumulate_increments = observed
        history = simulation.run().history
        np.testing.assert_allclose(history.estimate_error, np.array(errors)[history.round - 1], rtol=1e-12)


LOSSES = ["logistic", "smoothed-hinge", "squared", "huber", "poisson"]


PARTITIONS = ["iid", "contiguous", "sorted", "dirichlet:0.3", "labels:2"]


REFUSED = {"untrusted": ("dp-sgd", "objective-perturbation"), "trusted": ("fedavg", "scaffold")}
CASES = [
    (method, server)
    for method in known_names("methods")
    for server, refused in REFUSED.items()
    if method not in refused
]


def finished(**settings):
    chosen = {"data": "synthetic", "samples": 300, "features": 5, "machines": 3, "seed": 1, "evaluations": 1}
    experiment = Experiment(**{**chosen, **settings})
    return simulation_of(experiment, open_source(experiment)).run()


@pytest.mark.parametrize(("loss", "classes"), [("squared", 4), *slow(*[(name, 2) for name in LOSSES])])
@pytest.mark.parametrize(("method", "server"), CASES)
def test_methods_run_on_any_partition(loss, classes, method, server):
    own = {"clip_norm": 1.0} if method == "storm" else {}
    if method == "objective-perturbation" and loss in ("squared", "poisson"):
        loss = "huber"  # Gradients of the others are not bounded.
    if method not in ("dp-sgd", "noisy-minibatch-sgd"):
        own["rounds"] = 8
    settings = {"loss": loss, "classes": classes, "method": method, "server": server, **own}
    results = [finished(**settings, partition=partition) for partition in PARTITIONS]
    results.append(finished(**settings, data="population", l2=0.1))
    for result in results:
        assert np.linalg.norm(result.x) <= 0.05 * (1 + 1e-12)
        assert np.all(np.isfinite([result.history.test_loss[-1], *result.metrics.values()]))
        assert claim_contradictions(result) == []
    # Samples in another order are other messages.
    assert len({result.x.tobytes() for result in results}) == len(results)
