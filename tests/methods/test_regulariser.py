"""The regulariser: every method against its reference on the regularised loss."""

import math

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.plain_losses import PLAIN, random_labels
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import ArraySource
from hypothesis import assume, strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.registry import lookup
from mu2mpi.data.partition import iid_rows
from mu2mpi.data.source import Samples
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.plan import RunKeys
from mu2mpi.federation.iterates import Iterates
from mu2mpi.privacy.noise.noise_stream import SERVER_STREAM, derive_key, key_to_uint32, root_key

LOSSES = ["logistic", "squared", "poisson"]
BOXES = {
    "mu2-sgd": ref.trusted_server,
    "parallel-sgd": ref.parallel_sgd,
    "anytime-sgd": ref.anytime_sgd,
    "storm": ref.storm,
}
seeds = st.integers(0, 2**31)


def source_of(loss_function, seed, n, dimension):
    """Return a source of two classes, or of numbers in [0, 2], which are scaled to [-1, 1]."""
    rng = np.random.default_rng(seed)
    sets = [
        Samples(rng.uniform(-1, 1, (size, dimension)), random_labels(rng, loss_function, size, 2))
        for size in (n, 30)
    ]
    source = ArraySource(*sets, 2, 1.0)
    if loss_function.label_kind == "numbers":
        source.label_range = (0.0, 2.0)
    return source


def change_reference(patch, loss_function, experiment, source):
    """Patch the references to minimise the regularised loss, with messages bounded as those of the loss."""
    l2, rows = experiment.l2 or 0.0, loss_function.model_rows(2)
    G, L, *_ = loss_function.constants(source.dimension + 1, experiment.diameter / 2, 2)
    residual = PLAIN[loss_function.name].residual

    def gradient(x, z, label):
        return np.outer(residual(x @ z, label), z) + l2 * x

    patch.setattr(ref, "gradient", gradient)
    patch.setattr(ref, "lipschitz", lambda F: G)
    patch.setattr(ref, "smoothness", lambda F: L + l2)
    patch.setattr(ref, "increment_bound", lambda F, D: G + 2 * L * D)
    # Nothing is clipped but what the regulariser adds, which no message holds.
    patch.setattr(ref, "kept", lambda s, norm, grid_spacing: s)
    # The references take labels for classes.
    patch.setattr(ref, "int", lambda label: label, raising=False)
    return rows


def dealt(experiment, source, T):
    """Return the samples of a run, shape (T, M, F - 1) and (T, M)."""
    M, root = experiment.machines, root_key(experiment.seed)
    rows = iid_rows(source.training_samples, M, T, derive_key(root, "dealing"), range(M))
    samples = source.read_training(rows.ravel())
    return samples.features.reshape(T, M, -1), samples.labels.reshape(T, M)


@pytest.mark.parametrize("method", BOXES)
@pytest.mark.parametrize("loss", LOSSES)
@given(
    st.integers(1, 4), st.integers(2, 20), st.integers(1, 6), st.sampled_from([None, 0.1, 3.0, 200.0]),
    st.sampled_from([2.0, 1e6, math.inf]), st.sampled_from([0.1, 1.5]), seeds, max_examples=6,
)  # fmt: skip
def test_steps_are_those_of_the_regularised_loss(
    loss, method, machines, rounds, dimension, l2, rho, diameter, seed
):
    """Messages are not clipped here, so they may as well include the regulariser."""
    loss_function = lookup("losses", loss)
    # A clipping norm that no increment of STORM reaches in a ball of this size.
    clip_norm = 1e3 if method == "storm" else None
    source = source_of(loss_function, seed, machines * rounds + 2, dimension)
    experiment = Experiment(
        method=method, loss=loss, server="trusted", machines=machines, rounds=rounds, rho=rho, l2=l2,
        diameter=diameter, clip_norm=clip_norm, seed=seed,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    constants, result = simulation.constants, simulation.run()
    assume(result.diagnostics.clipped_share == 0)
    key = key_to_uint32(RunKeys.noise_key(root_key(seed), experiment))
    features, labels = dealt(experiment, source, rounds)

    def noise(t):
        return drawn_noise(constants, key, SERVER_STREAM, 0, t)

    with pytest.MonkeyPatch.context() as patch:
        x1 = np.zeros((change_reference(patch, loss_function, experiment, source), dimension + 1))
        if method == "mu2-sgd":
            found = ref.trusted_server(features, labels, x1, diameter, rho, noise, clip_norm)
        else:
            found = BOXES[method](ref.Setting(features, labels, x1, diameter, rho, True, noise, clip_norm))
    # Messages are rounded to the grid here, and not there: so are all steps, in proportion to the noise.
    steps = sum(constants.step_size(t) for t in range(1, rounds)) * math.sqrt(rounds * constants.problem.d)
    rounded = steps * rounds * constants.mechanism.grid_spacing
    for ours, theirs in zip((result.x, result.w), found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9 * diameter + rounded)


@pytest.mark.parametrize("method", ["dp-sgd", "noisy-minibatch-sgd"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_methods_with_random_batches_are_regularised(monkeypatch, method, loss):
    """All steps are w_{t+1} = proj(w_t - eta (message + l2 w_t)), computed from the messages."""
    loss_function, l2 = lookup("losses", loss), 0.7
    source = source_of(loss_function, 5, 400, 3)
    experiment = Experiment(
        method=method, loss=loss, server="trusted", machines=2, rounds=12, rho=2.0, l2=l2, diameter=1.5,
        seed=5,
    )  # fmt: skip
    simulation, steps = simulation_of(experiment, source), []
    constants = simulation.constants
    iterates = type(Iterates(constants))
    step = iterates.step

    def recorded(self, t, total):
        before, message = self.w.copy(), total.copy()
        step(self, t, total)
        steps.append((t, before, message, self.w.copy()))

    monkeypatch.setattr(iterates, "step", recorded)
    simulation.run()
    assert len(steps) == constants.rounds - 1
    for t, w, total, after in steps:
        size = constants.problem.machines * constants.batching.batch_size(t)
        message = total * constants.mechanism.grid_spacing / size
        expected = ref.project(w - constants.step_size(t) * (message + l2 * w), 0 * w, 0.75)
        np.testing.assert_allclose(after, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_excess_loss_is_relative_to_the_regularised_minimum(loss):
    """The sum is strongly convex, so the excess loss bounds the distance of x to the minimum."""
    loss_function, l2 = lookup("losses", loss), 0.5
    population = Population(3, 2, 0.5, 0.2, 0.0, 3000, 0)
    if loss_function.label_kind == "numbers":
        population.use_classes_as_numbers()
    experiment = Experiment(
        data="population", loss=loss, machines=2, rounds=3000, rho=math.inf, diameter=4.0, l2=l2, seed=1
    )
    result = simulation_of(experiment, population).run()
    z = np.c_[population.support, np.ones(len(population.support))]
    weights, values = population.joint_probabilities(), population.label_values

    def regularised(x):
        loss, gradient = loss_function.expected_loss_and_gradient(x, z, weights, values)
        return loss + l2 * np.sum(x**2) / 2, gradient + l2 * x

    x = np.zeros((1, 4))
    for _ in range(20_000):
        x = x - 0.2 * regularised(x)[1]
    assert np.linalg.norm(x) < 2.0
    assert np.linalg.norm(regularised(x)[1]) < 1e-10
    assert result.theory.minimum_loss == pytest.approx(regularised(x)[0], abs=1e-9)
    excess = regularised(result.x)[0] - regularised(x)[0]
    assert result.theory.excess_loss == pytest.approx(excess, abs=1e-9)
    assert result.theory.final_gradient_norm == pytest.approx(
        np.linalg.norm(regularised(result.x)[1]), rel=1e-9
    )
    assert np.sum((result.x - x) ** 2) <= 2 * result.theory.excess_loss / l2
    assert result.theory.excess_loss < result.theory.excess_loss_bound
