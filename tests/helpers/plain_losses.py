"""The losses that are built in as plain numpy has them, each from its formula, and in 60 digits."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from helpers.sources import random_samples
from mu2mpi.core.registry import lookup
from mu2mpi.losses.loss import Loss
from mu2mpi.losses.model.scaling import Scaling


@dataclass(frozen=True)
class Plain:
    """Loss and residual of one sample's margins, predictions of margins, and the residual in many digits.

    The last is there for losses that state a bound on rounding errors.
    """

    loss: Callable[..., float]
    residual: Callable[..., Any]
    exact: Callable[..., list[Any]] | None = None
    prediction: Callable[..., Any] = lambda margins: np.clip(margins, -1, 1)


def _sides(count: int, label: int) -> Any:
    return np.array([2.0 * label - 1]) if count == 1 else np.where(np.arange(count) == label, 1.0, -1.0)


def _phi(u: Any) -> Any:
    return np.where(u >= 1, 0.0, np.where(u <= 0, 0.5 - u, (1 - u) ** 2 / 2))


def _softmax_exact(margins: list[float], label: int) -> list[Any]:
    powers = [mpmath.exp(mpmath.mpf(m) - max(margins)) for m in margins]
    return [power / mpmath.fsum(powers) - (k == label) for k, power in enumerate(powers)]


def _within(value: Any, low: Any, high: Any) -> Any:
    return min(high, max(low, value))


PLAIN = {
    "softmax": Plain(
        lambda m, y: float(special.logsumexp(m) - m[y]),
        lambda m, y: special.softmax(m) - np.eye(len(m))[y],
        _softmax_exact,
    ),
    "logistic": Plain(
        lambda m, y: float(-special.log_expit((2 * y - 1) * m[0])),
        lambda m, y: special.expit(m) - y,
        lambda m, y: [1 / (1 + mpmath.exp(-mpmath.mpf(m[0]))) - y],
    ),
    "squared": Plain(
        lambda m, y: float((m[0] - y) ** 2 / 2),
        lambda m, y: m - y,
    ),
    "huber": Plain(
        lambda m, y: float(special.huber(0.25, m[0] - y)),
        lambda m, y: np.clip(m - y, -0.25, 0.25),
        lambda m, y: [_within(mpmath.mpf(m[0]) - y, mpmath.mpf(-0.25), mpmath.mpf(0.25))],
    ),
    "smoothed-hinge": Plain(
        lambda m, y: float(np.sum(_phi(_sides(len(m), y) * m))),
        lambda m, y: -_sides(len(m), y) * np.clip(1 - _sides(len(m), y) * m, 0, 1),
        lambda m, y: [
            -s * _within(1 - s * mpmath.mpf(a), 0, 1)
            for a, s in zip(m, _sides(len(m), y).tolist(), strict=True)
        ],
    ),
    "poisson": Plain(
        lambda m, y: float(np.exp(m[0]) - (1 + y) * m[0]),
        lambda m, y: np.exp(m) - (1 + y),
        prediction=lambda margins: np.minimum(1.0, np.exp(margins) - 1),
    ),
}
"""By name."""

LOSSES = pytest.mark.parametrize("loss_function", [lookup("losses", name) for name in PLAIN], ids=list(PLAIN))
TYPES = pytest.mark.parametrize(
    ("dtype", "scale"), [(np.uint8, 1 / 255), (np.float32, 1.0), (np.float64, 0.5)]
)
SCALINGS = Scaling(), Scaling(unit_norm=True), Scaling(max_norm=0.4), Scaling(max_norm=50.0)


def number_of_classes(loss_function: Loss, classes: int) -> int:
    """Return the number of classes of a loss that is asked for some."""
    return 2 if loss_function.name == "logistic" else classes


def stored_samples(loss_function: Loss, shape: tuple[int, int, int], dtype: type, seed: int) -> Any:
    """Return a generator, the number of classes, and features and labels as a source has them."""
    n, classes, dimension = shape
    rng, classes = np.random.default_rng(seed), number_of_classes(loss_function, classes)
    features = random_samples(rng, n, dimension, classes, dtype).features
    return rng, classes, features, random_labels(rng, loss_function, n, classes)


def random_labels(rng: np.random.Generator, loss_function: Loss, n: int, classes: int) -> Any:
    """Return labels of n samples: classes, or numbers that are often at the ends of their range."""
    if loss_function.label_kind == "classes":
        return rng.integers(0, classes, n).astype(np.int32)
    return np.where(rng.uniform(size=n) < 0.5, rng.choice([-1.0, 1.0], n), rng.uniform(-1, 1, n))


def plain_samples(features: Any, scaling: Scaling) -> Any:
    """Return samples with their bias feature from features in [-1, 1]."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    longest = (
        math.sqrt(0.99) if scaling.unit_norm else np.inf if scaling.max_norm is None else scaling.max_norm
    )
    factors = longest / np.maximum(norms, 1e-300)
    factors = np.where(norms > 0, factors, 0.0) if scaling.unit_norm else np.minimum(1.0, factors)
    return np.hstack([features * factors, np.full((len(features), 1), 0.1 if scaling.unit_norm else 1.0)])
