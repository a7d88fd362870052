"""Methods with second moments in plain NumPy: sums of samples, and the model that minimises a surrogate."""

import math

import numpy as np

from helpers.plain_losses import PLAIN, random_labels
from helpers.sources import ArraySource
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import Samples

CURVATURE = {"squared": 1.0, "logistic": 1 / 4, "softmax": 1 / 3, "smoothed-hinge": 1.0, "huber": 1.0}
RESIDUAL = {"squared": 1.0, "logistic": 1 / 2, "softmax": math.sqrt(2 / 3), "smoothed-hinge": math.sqrt(3)}
RESIDUAL |= {"huber": 1 / 4, "poisson": 1.0}


def source_for(loss, seed, n, dimension):
    """Return a source of uniform features with labels as a loss has them."""
    rng, loss_function = np.random.default_rng(seed), lookup("losses", loss)
    classes = 2 if loss == "logistic" else 3
    sizes = n, 30
    sets = [
        Samples(rng.uniform(-1, 1, (size, dimension)), random_labels(rng, loss_function, size, classes))
        for size in sizes
    ]
    source = ArraySource(*sets, classes, 1.0)
    if loss_function.label_kind == "numbers":
        source.label_range = (-1.0, 1.0)
    return source


def plain_moments(loss, z, labels, C, x):
    """Return the sums of w z z^T and w r z^T over samples with C = sqrt(2) B^2, and the factor B / R."""
    S, b, B2 = np.zeros((z.shape[1],) * 2), np.zeros(x.shape), C / math.sqrt(2)
    for sample, label in zip(z, labels, strict=True):
        w, r = min(1.0, B2 / (sample @ sample)), PLAIN[loss].residual(x @ sample, label)
        S += w * np.outer(sample, sample)
        b += w * np.outer(r / max(1.0, np.linalg.norm(r) / RESIDUAL[loss]), sample)
    return S, b, math.sqrt(B2) / RESIDUAL[loss]


def plain_minimum(S, b, level):
    """Return -f(S) b with f(s) = (s + m) / (s^2 + m s + m^2), by eigenvalues."""
    s, V = np.linalg.eigh(S)
    return -(b @ V) * ((s + level) / (s**2 + level * s + level**2)) @ V.T
