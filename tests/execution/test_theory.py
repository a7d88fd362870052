"""The theorem's bound by hand, the smallest loss against SciPy, and both in a finished run."""

import math
from pathlib import Path

import numpy as np
import pytest
from helpers import reference as ref
from helpers.simulations import SWITCHED, evaluated_problem, make_schedule, simulation_of
from helpers.slow import slow
from helpers.sources import random_source
from scipy.optimize import minimize

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.evaluation import Evaluator, max_search_gradients
from mu2mpi.execution.job import run
from mu2mpi.losses.model.ball import DUALITY_GAP_TOLERANCE_NATS
from mu2mpi.losses.model.scaling import Scaling


def paper_schedule(server, **changes):
    settings = {"machines": 100, "rounds": 600, "classes": 10, "features": 785, "diameter": 0.1, "rho": 4.0}
    return make_schedule(server=server, **{**settings, **changes})


def test_bound_by_hand():
    # MNIST with M = 100, T = 600, rho = 4: S = sqrt(1570) + 78.5 = 118.1232, sqrt(d) = 88.6002.
    S, root_d = 118.12320, 88.60022
    untrusted = 0.4 * (S / 600 + 2 * S * root_d / (4 * 600 * 10) + S / math.sqrt(60_000))
    trusted = 0.4 * (S / 600 + 2 * S * root_d / (4 * 600 * 100) + S / math.sqrt(60_000))
    assert paper_schedule("untrusted").excess_loss_bound == pytest.approx(untrusted, rel=1e-6)
    assert paper_schedule("trusted").excess_loss_bound == pytest.approx(trusted, rel=1e-6)
    silent = 0.4 * (S / 600 + S / math.sqrt(60_000))
    assert paper_schedule("trusted", rho=math.inf).excess_loss_bound == pytest.approx(silent, rel=1e-6)


def test_no_bound_where_increments_are_clipped_below_their_norm():
    assert math.isnan(paper_schedule("trusted", clip_norm=2.0).excess_loss_bound)
    assert paper_schedule("trusted", clip_norm=1e6).excess_loss_bound > 0


def test_no_bound_with_another_learning_rate():
    assert math.isnan(paper_schedule("trusted", eta_scale=2.0).excess_loss_bound)
    assert paper_schedule("trusted", rho=math.inf, eta_scale=1.0).excess_loss_bound > 0


@pytest.mark.parametrize("method", SWITCHED[1:])
def test_no_bound_of_another_method(method):
    sizes = {"machines": 10, "rounds": 60, "classes": 10, "features": 8, "diameter": 0.1, "rho": 4.0}
    assert math.isnan(make_schedule(method, **sizes, clip_norm=1e6).excess_loss_bound)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_gradient_of_the_evaluation_loss(dtype, unit):
    source = random_source(2, 10, 6, 4, dtype)
    source._test.features[3] = 0
    x = np.random.default_rng(0).standard_normal((4, 7))
    problem = evaluated_problem("softmax", Scaling(unit))
    loss, gradient = Evaluator(source, Communicator(), problem).gradient(x)
    features, labels = source._test.features * np.float64(source.feature_scale), source._test.labels
    z = ref.samples(features, unit)
    expected = np.mean([ref.gradient(x, z[n], labels[n]) for n in range(len(z))], axis=0)
    assert loss == pytest.approx(ref.mean_loss(x, features, labels, unit), rel=1e-12)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


@pytest.mark.parametrize("diameter", [2.0, *slow(0.1, 20.0)])
def test_smallest_loss_in_the_ball_against_scipy(diameter):
    source = random_source(3, 4000, 6, 4)
    experiment = Experiment(machines=2, seed=1, rho=8.0, diameter=diameter, evaluations=3)
    theory = simulation_of(experiment, source).run().theory
    features, labels = source._test.features * source.feature_scale, source._test.labels
    inside = {"type": "ineq", "fun": lambda x: (diameter / 2) ** 2 - x @ x}
    truth = minimize(
        lambda x: ref.mean_loss(x.reshape(4, 7), features, labels), np.zeros(28), constraints=[inside],
        method="SLSQP", options={"ftol": 1e-12, "maxiter": 300},
    )  # fmt: skip
    assert theory.minimum_gap <= DUALITY_GAP_TOLERANCE_NATS
    assert theory.minimum_loss == pytest.approx(truth.fun, abs=3e-6)


def test_a_run_writes_what_it_measured(tmp_path: Path):
    result = run(Experiment(machines=4, rounds=50, server="trusted", seed=1), output=tmp_path / "a.h5")
    theory = result.theory
    assert theory.minimum_gap <= DUALITY_GAP_TOLERANCE_NATS
    assert theory.excess_loss == result.history.test_loss[-1] - theory.minimum_loss
    assert 0 < theory.excess_loss < theory.excess_loss_bound


def test_a_search_never_takes_long():
    for machines in (1, 10, 100):
        constants = paper_schedule("untrusted", machines=machines, rounds=60_000 // machines)
        assert 20 <= max_search_gradients(constants, 10_000) < 100
    assert max_search_gradients(paper_schedule("trusted"), 10**7) == 5
    assert max_search_gradients(paper_schedule("trusted", rounds=10**8, machines=1), 10_000) == 1000


def test_large_models_have_the_bound_alone(monkeypatch):
    monkeypatch.setattr("mu2mpi.execution.evaluation.MAX_OPTIMUM_SEARCH_DIMENSION", 100)
    theory = run(Experiment(machines=2, rounds=5, seed=1)).theory
    assert theory.excess_loss_bound > 0
    assert math.isnan(theory.excess_loss)
    assert math.isnan(theory.minimum_loss)


def test_runs_of_a_sweep_share_the_search(monkeypatch):
    calls = []
    gradient = Evaluator.gradient
    monkeypatch.setattr(Evaluator, "gradient", lambda *where: calls.append(1) or gradient(*where))
    source = random_source(3, 400, 6, 4)
    first = simulation_of(Experiment(machines=2, seed=1), source).run()
    assert len(calls) > 2
    calls.clear()
    second = simulation_of(Experiment(machines=2, seed=2), source).run()
    assert first.theory.minimum_loss == second.theory.minimum_loss
    # Only the gradient at its own output.
    assert len(calls) == 1
    other = simulation_of(Experiment(machines=2, seed=1, diameter=0.3), source).run()
    assert other.theory.minimum_loss < first.theory.minimum_loss
    calls.clear()
    unit = Experiment(machines=2, seed=1, normalize="unit")
    assert simulation_of(unit, source).run().theory.minimum_gap <= DUALITY_GAP_TOLERANCE_NATS
    assert len(calls) > 1


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_message_norm_is_that_of_what_is_released(server):
    """Noise of a known length dominates it: ||q~||^2 = ||q||^2 + ||Y||^2 up to a few percent at d = 650."""
    result = run(Experiment(machines=4, rounds=40, server=server, rho=0.5, seed=1, evaluations=6))
    norms, d = result.history.message_norm, result.x.size
    assert math.isnan(norms[-1])
    draws = 4 if server == "untrusted" else 1
    expected = result.privacy.sigma * math.sqrt(draws * d) / 4
    np.testing.assert_allclose(norms[:-1], expected, rtol=0.15)
    silent = run(Experiment(machines=4, rounds=40, server=server, rho=math.inf, seed=1, evaluations=6))
    # Without noise: the norm of the average of q_{t,i}, which is at most t S.
    rounds = silent.history.round[:-1]
    assert np.all(silent.history.message_norm[:-1] <= rounds * silent.privacy.S)
    assert silent.history.message_norm[0] > 0
