"""Methods of the base class `Loss`, on a loss of an extension: a squared hinge for many classes."""

import importlib
import math

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import random_samples
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline
from mu2mpi.core.registry import lookup, register
from mu2mpi.data.sources.population import Population
from mu2mpi.losses.loss import Loss, LossConstants
from mu2mpi.losses.model.linear import sum_losses

SOFTMAX = lookup("losses", "softmax")
seeds = st.integers(0, 2**31)
shapes = st.tuples(st.integers(1, 9), st.integers(2, 6), st.integers(1, 8))


@inline
def _hinge(margins, label):
    """Return half the sum of (1 + m_k - m_label)_+^2 over other classes, and if the label is predicted."""
    total, best = 0.0, 0
    for k in range(margins.size):
        if margins[k] > margins[best]:
            best = k
        if k != label:
            total += max(0.0, 1.0 + margins[k] - margins[label]) ** 2 / 2
    return total, best == label


@inline
def _slopes(margins, label):
    right, total = margins[label], 0.0
    for k in range(margins.size):
        margins[k] = max(0.0, 1.0 + margins[k] - right)
        if k != label:
            total += margins[k]
    margins[label] = -total


class SquaredHinge(Loss):
    name = "squared-hinge"
    residual_kernel, loss_kernel = staticmethod(_slopes), staticmethod(_hinge)

    def constants(self, square, radius, classes):
        """Of two classes: r = (1 + m) (1, -1) with |m| <= sqrt 2 radius ||z||."""
        z = math.sqrt(square)
        return LossConstants(math.sqrt(2) * (1 + math.sqrt(2) * radius * z) * z, 2 * square)


HINGE = SquaredHinge()


def plain_hinge(x, z, label):
    """Return the loss at one sample in plain numpy."""
    lacks = np.maximum(0, 1 + x @ z - (x @ z)[label])
    return (np.sum(lacks**2) - lacks[label] ** 2) / 2


def made_up(shape, seed, size=1.0):
    """Return a model, samples with their labels, and a direction."""
    n, classes, features = shape
    rng = np.random.default_rng(seed)
    samples = random_samples(rng, n, features, classes, np.float64)
    x, direction = rng.standard_normal((2, classes, features))
    return size * x, samples.features, samples.labels, direction


@pytest.mark.parametrize("loss_function", [SOFTMAX, HINGE], ids=["softmax", "hinge"])
@given(shapes, seeds, max_examples=50)
def test_gradients_are_the_derivatives_of_losses(loss_function, shape, seed):
    """Finite differences; second derivatives of the hinge jump, so few of its digits agree."""
    x, z, labels, direction = made_up(shape, seed)
    weights = np.random.default_rng(seed).uniform(0, 1, (len(z), len(x)))
    step, classes = 1e-5, np.arange(len(x), dtype=np.int32)
    for of in (
        lambda y: loss_function.loss_and_gradient(y, z, labels),
        lambda y: Loss.loss_and_gradient(loss_function, y, z, labels),
        lambda y: loss_function.expected_loss_and_gradient(y, z, weights, classes),
        lambda y: Loss.expected_loss_and_gradient(loss_function, y, z, weights, classes),
    ):
        slope = (of(x + step * direction)[0] - of(x - step * direction)[0]) / (2 * step)
        assert np.vdot(of(x)[1], direction) == pytest.approx(slope, rel=1e-4, abs=1e-3)


@given(shapes, seeds, max_examples=50)
def test_an_expected_loss_is_that_of_each_sample_with_each_class(shape, seed):
    x, z, labels, _ = made_up(shape, seed)
    weights = np.random.default_rng(seed).uniform(0, 1, (len(z), len(x)))
    table = np.array([[plain_hinge(x, row, k) for k in range(len(x))] for row in z])
    classes = np.arange(len(x), dtype=np.int32)
    loss, gradient = HINGE.expected_loss_and_gradient(x, z, weights, classes)
    assert loss == pytest.approx(np.sum(weights * table), rel=1e-12)
    certain = np.zeros(weights.shape)
    certain[np.arange(len(z)), labels] = 1.0
    loss, gradient = HINGE.loss_and_gradient(x, z, labels)
    assert loss == pytest.approx(np.sum(certain * table), rel=1e-12)
    np.testing.assert_allclose(
        HINGE.expected_loss_and_gradient(x, z, certain, classes)[1], gradient, rtol=0, atol=1e-12
    )
    np.testing.assert_array_equal(HINGE.predict_classes(z @ x.T), [np.argmax(x @ row) for row in z])


def test_the_same_source_in_another_module_has_kernels_of_its_own(tmp_path, monkeypatch):
    """Those in the cache import the module that they were compiled in, which may be gone."""
    source = "from mu2mpi.losses.loss import Loss\n\n\nclass Own(Loss):\n    name = 'any'\n"
    source += "    residual_kernel = loss_kernel = staticmethod(len)\n    constants = None\n"
    monkeypatch.syspath_prepend(tmp_path)
    names = []
    for module in ("a_loss_in_a_script", "a_loss_in_a_package"):
        (tmp_path / f"{module}.py").write_text(source)
        names.append(importlib.import_module(module).Own().compile_kernel(sum_losses).py_func.__qualname__)
    assert names[0] != names[1]


@pytest.mark.slow
@pytest.mark.usefixtures("restored_registry")
@pytest.mark.parametrize("estimator", ["gradient", "corrected-momentum"])
def test_a_run_minimises_a_loss_of_the_users_own(estimator):
    """Without noise, and with the learning rate of its theory, it comes closer to the minimum over K."""
    with pytest.raises(InputError, match=r"loss = 'squared-hinge' should be .*softmax"):
        Experiment(loss="squared-hinge")
    register(HINGE)
    population = Population(4, 2, 0.5, 0.1, 0.0, 2000, 0)
    z = np.c_[population.support, np.ones(len(population.support))]
    excess = []
    for rounds in (10, 100, 2000):
        experiment = Experiment(
            data="population", loss="squared-hinge", estimator=estimator, machines=2, rounds=rounds,
            rho=math.inf, diameter=1.0, seed=1,
        )  # fmt: skip
        result = simulation_of(experiment, population).run()
        # No gradient is longer than G says, so no increment is longer than S.
        assert result.diagnostics.clipped_share == 0
        assert result.theory.minimum_gap <= 1e-12
        table = np.array([[plain_hinge(result.x, row, label) for label in (0, 1)] for row in z])
        loss = np.sum(population.joint_probabilities() * table)
        assert result.history.test_loss[-1] == pytest.approx(loss, rel=1e-12)
        excess.append(result.theory.excess_loss)
    assert excess[0] > 2 * excess[1] > 4 * excess[2] > 0
