"""A source of data made of arrays, for problems of any shape."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.source import DataSource, Samples, SplitName
from mu2mpi.data.sources.population import SUPPORT_POINTS, Population
from mu2mpi.federation.machine import HostedSamples


class ArraySource(DataSource):
    """A source whose training and test sets are given."""

    name = "arrays"

    def __init__(self, training: Samples, test: Samples, classes: int, scale: float) -> None:
        self._training, self._test = training, test
        self.classes, self.feature_scale = classes, scale
        self.dimension = training.features.shape[1]
        self.training_samples, self.test_samples = len(training.labels), len(test.labels)

    def read(self, split: SplitName, rows: NDArray[np.int64]) -> Samples:
        samples = self._training if split == "training" else self._test
        return Samples(samples.features[rows], samples.labels[rows])


def random_samples(rng: np.random.Generator, n: int, dimension: int, classes: int, dtype: type) -> Samples:
    """Return n random samples, with pixels for uint8 and uniform features in [-1, 1] otherwise."""
    if dtype is np.uint8:
        features = rng.integers(0, 256, (n, dimension), dtype=np.uint8)
    else:
        features = rng.uniform(-1, 1, (n, dimension)).astype(dtype)
    return Samples(features, rng.integers(0, classes, n).astype(np.int32))


def random_source(seed: int, n: int, dimension: int, classes: int, dtype: type = np.uint8) -> ArraySource:
    """Return a source of n training and 30 test samples."""
    rng = np.random.default_rng(seed)
    scale = 1 / 255 if dtype is np.uint8 else 1.0
    training = random_samples(rng, n, dimension, classes, dtype)
    return ArraySource(training, random_samples(rng, 30, dimension, classes, dtype), classes, scale)


def one_a_round(features: NDArray[np.generic], labels: NDArray[np.int32], t: int = 1) -> HostedSamples:
    """Return samples of shapes (T, M, F - 1) and (T, M), one for each machine and round from t on."""
    flat = features.reshape(-1, features.shape[-1])
    return HostedSamples(flat, labels.ravel(), np.ones(labels.size), np.ones(labels.shape, np.int64), t)


def probabilities_of(population: Population, machine: int, machines: int) -> NDArray[np.float64]:
    """Return joint probabilities of points and labels for one of M machines: shape (SUPPORT_POINTS, K)."""
    found = population.joint_probabilities()
    sides, classes = population._class_preferences(machine)
    leaning = np.where(sides[:, np.newaxis] ^ classes, 1.0, -1.0)
    has_twin = machine ^ 1 < machines
    leaning *= (
        has_twin * population.heterogeneity * population.label_noise / population.classes / SUPPORT_POINTS
    )
    pairs = found[:, : 2 * len(classes)]
    pairs[:, 1::2] += leaning
    pairs[:, ::2] -= leaning
    return found
