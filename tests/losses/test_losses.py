"""Built-in losses against plain NumPy, finite differences, their constants G and L, and 60 digits."""

import math

import mpmath
import numpy as np
import pytest
from helpers.plain_losses import LOSSES, PLAIN, number_of_classes, random_labels
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.core.registry import known_names, lookup
from mu2mpi.losses.model.scaling import Scaling

seeds = st.integers(0, 2**31)
sizes = st.sampled_from([1e-3, 1.0, 30.0])


def random_case(loss_function, rng, n):
    """Return a number of classes and random labels of n samples, often at the ends of their range."""
    classes = number_of_classes(loss_function, int(rng.integers(2, 7)))
    return classes, random_labels(rng, loss_function, n, classes)


def random_model(rng, rows, features, radius):
    """Return a random model in the ball, half of the time on its surface."""
    x = rng.standard_normal((rows, features))
    return x * (radius / np.linalg.norm(x) * rng.choice([1.0, rng.uniform()]))


def random_sample(rng, features, square):
    """Return a random sample, half of the time of the largest norm."""
    z = rng.standard_normal(features)
    return z * (math.sqrt(square) / np.linalg.norm(z) * rng.choice([1.0, rng.uniform()]))


def residual_of(loss_function, margins, label):
    labels = np.array([label], np.float64 if loss_function.label_kind == "numbers" else np.int32)
    return loss_function.losses_and_residuals(np.atleast_2d(margins), labels)[1][0]


@LOSSES
@given(seeds, sizes, max_examples=60)
def test_losses_and_residuals_agree_with_plain_numpy(loss_function, seed, size):
    rng = np.random.default_rng(seed)
    classes, labels = random_case(loss_function, rng, 9)
    margins = size * rng.standard_normal((9, loss_function.model_rows(classes)))
    losses, residuals = loss_function.losses_and_residuals(margins, labels)
    plain = PLAIN[loss_function.name]
    for m, label, value, residual in zip(margins, labels, losses, residuals, strict=True):
        assert value == pytest.approx(plain.loss(m, label), rel=1e-12, abs=1e-13)
        np.testing.assert_allclose(residual, plain.residual(m, label), rtol=1e-12, atol=1e-13)


@LOSSES
@given(seeds, st.sampled_from([0.01, 1.0, 8.0]), max_examples=60)
def test_residuals_are_the_derivatives_of_losses(loss_function, seed, size):
    """Central differences; where the second derivative jumps they are off by its jump times the step."""
    rng = np.random.default_rng(seed)
    classes, labels = random_case(loss_function, rng, 6)
    margins = size * rng.standard_normal((6, loss_function.model_rows(classes)))
    _, residuals = loss_function.losses_and_residuals(margins, labels)
    step = 1e-6
    for k in range(margins.shape[1]):
        ahead, behind = margins.copy(), margins.copy()
        ahead[:, k] += step
        behind[:, k] -= step
        losses = [loss_function.losses_and_residuals(moved, labels)[0] for moved in (ahead, behind)]
        slopes = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(slopes, residuals[:, k], rtol=2e-6, atol=2e-6)


@LOSSES
@given(seeds, sizes, st.floats(0, 1), max_examples=60)
def test_losses_are_convex_and_residuals_monotone(loss_function, seed, size, share):
    rng = np.random.default_rng(seed)
    classes, labels = random_case(loss_function, rng, 8)
    ends = size * rng.standard_normal((2, 8, loss_function.model_rows(classes)))
    (at, r), (of, s) = (loss_function.losses_and_residuals(end, labels) for end in ends)
    between, _ = loss_function.losses_and_residuals(share * ends[0] + (1 - share) * ends[1], labels)
    rounding = 1e-12 * (1 + np.abs(at) + np.abs(of))
    assert np.all(between <= share * at + (1 - share) * of + rounding)
    assert np.all(np.sum((r - s) * (ends[0] - ends[1]), axis=1) >= -rounding)


@LOSSES
@given(
    seeds, st.sampled_from([0.01, 0.5, 1.0, 3.0]), st.sampled_from([0.25, 1.0, 2.0, 30.0]), max_examples=150
)
def test_gradients_keep_to_their_constants(loss_function, seed, radius, square):
    rng = np.random.default_rng(seed)
    classes, labels = random_case(loss_function, rng, 1)
    rows, features = loss_function.model_rows(classes), int(rng.integers(1, 6))
    G, L, *_ = loss_function.constants(square, radius, classes)
    z = random_sample(rng, features, square)
    x, y = (random_model(rng, rows, features, radius) for _ in range(2))
    y = x + rng.choice([1.0, 1e-3]) * (y - x)
    r, s = (residual_of(loss_function, model @ z, labels[0]) for model in (x, y))
    length = np.linalg.norm(z)
    assert np.linalg.norm(r) * length <= G * (1 + 1e-12)
    assert np.linalg.norm(r - s) * length <= L * np.linalg.norm(x - y) * (1 + 1e-6) + 1e-12 * G


@LOSSES
@pytest.mark.parametrize(("square", "radius"), [(1.0, 0.4), (5.0, 0.05), (2.0, 60.0)])
def test_constants_are_attained(loss_function, square, radius):
    """Along the sample, from one end of the ball to the other; the bounds for classes hold for any ball."""
    z, classes = math.sqrt(square), 2
    G, L, *_ = loss_function.constants(square, radius, classes)
    labels = (-1.0, 0.0, 1.0) if loss_function.label_kind == "numbers" else (0, 1)
    far, step = radius * z, 1e-7 * radius
    direction = np.array([-1.0, 1.0])[-loss_function.model_rows(classes) :] / math.sqrt(
        loss_function.model_rows(classes)
    )
    longest, fastest = 0.0, 0.0
    for label in labels:
        for place in np.append(np.linspace(-far, far - step, 400), [0.0, far - step]):
            r, s = (residual_of(loss_function, direction * m, label) for m in (place, place + step))
            longest = max(longest, np.linalg.norm(r) * z, np.linalg.norm(s) * z)
            fastest = max(fastest, np.linalg.norm(r - s) / step * square)
    # The residual of a class that is believed in half is 1/2.
    assert longest > G * (0.99 if far > 5 or loss_function.name not in ("softmax", "logistic") else 0.49)
    assert longest <= G * (1 + 1e-12)
    assert L * 0.98 < fastest < L * (1 + 1e-6)


@LOSSES
@pytest.mark.parametrize("size", [0.0, 1e-300, 700.0, 1e6, 1e300])
def test_nothing_overflows_at_huge_margins(loss_function, size):
    if loss_function.name == "poisson":
        # No ball is allowed on which margins are larger.
        size = min(size, 300.0)
    for label in (-1.0, 1.0) if loss_function.label_kind == "numbers" else (0, 1):
        for sign in (-1, 1):
            margins = np.linspace(sign, -sign, 2)[: loss_function.model_rows(2)] * size
            labels = np.array([label], np.float64 if loss_function.label_kind == "numbers" else np.int32)
            with np.errstate(all="raise", under="ignore"):
                losses, residuals = loss_function.losses_and_residuals(margins[np.newaxis], labels)
                loss_function.class_scores(margins[np.newaxis])
                loss_function.predict_numbers(margins[np.newaxis])
            assert np.all(np.isfinite(residuals))
            assert np.isfinite(losses[0]) or (loss_function.name == "squared" and size > 1e150)


@pytest.mark.parametrize(
    "loss_function", [lookup("losses", name) for name, plain in PLAIN.items() if plain.exact]
)
@given(seeds, st.sampled_from([1e-3, 0.3, 4.0, 30.0]), max_examples=120)
def test_rounding_errors_of_gradients_keep_to_their_bound(loss_function, seed, radius):
    """Margins are taken as exact; tests/federation covers their rounding errors."""
    rng = np.random.default_rng(seed)
    classes, labels = random_case(loss_function, rng, 1)
    z = rng.uniform(-1, 1, 3)
    square = float(z @ z)
    margins = random_model(rng, loss_function.model_rows(classes), 1, radius * math.sqrt(square))[:, 0]
    found = residual_of(loss_function, margins, labels[0])
    with mpmath.workdps(60):
        exact = PLAIN[loss_function.name].exact(margins.tolist(), labels[0].item())
        errors = [
            (mpmath.mpf(float(a * v)) - b * mpmath.mpf(v)) ** 2
            for a, b in zip(found.tolist(), exact, strict=True)
            for v in z.tolist()
        ]
        error = float(mpmath.sqrt(mpmath.fsum(errors)))
    G, _, roundoffs, *_ = loss_function.constants(square, radius, classes)
    assert error <= roundoffs * 2.0**-53 * G


def test_every_loss_has_a_plain_numpy_version():
    assert sorted(PLAIN) == known_names("losses")


def test_constants_of_softmax_are_those_of_the_paper():
    G, L, *_ = lookup("losses", "softmax").constants(Scaling().max_squared_norm(784), 0.05, 10)
    assert pytest.approx(39.6, abs=0.05) == G
    assert L == 392.5
