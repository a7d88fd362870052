"""Data source of populations with known distributions of finite support: expectations are finite sums."""

from typing import Any

from pydantic import Field

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.data.seed_stream import SeedStream, philox_key, unit_uniforms
from mu2mpi.data.source import DataSource, Samples, SplitName
from mu2mpi.data.sources.synthetic import GeneratedOptions

SUPPORT_POINTS = 1024  # size of the support; a power of two, so that a uniform number selects a point exactly
MAX_FEATURES_OR_CLASSES = 1 << 14  # support and joint probabilities then take at most 128 MB
SEED_STREAMS = {"corners": 0, "uniform": 1, "preferences": 2}  # Philox streams of the seed


class PopulationOptions(GeneratedOptions):
    """Options of a population: sizes, class separation, label noise, and heterogeneity of machines."""

    margin: float = Field(0.5, ge=0, le=1, description="separation of the classes, 1 for a point each")
    label_noise: float = Field(0.1, ge=0, le=1, description="share of labels drawn at random")
    heterogeneity: float = Field(0.0, ge=0, le=1, description="difference of random labels between machines")


@register
class Population(DataSource):
    """Population uniform on SUPPORT_POINTS points of the cube [-1, 1]^features, with noisy class labels.

    A point of class c is ``margin * v_c + (1 - margin) * u``, where v_c is a corner of the cube, opposite to
    v_{c+1} for even c, and u is uniform in the cube. The label is the point's class, or with probability
    `label_noise` a random class. Points are equally probable on all machines; random labels are not.

    Machines 2k and 2k + 1 are twins and share a random plane. On each side of it, one class of each pair (0
    and 1, 2 and 3, ...) has the probability (1 + heterogeneity) / K among the random labels, and its partner
    (1 - heterogeneity) / K. Twins prefer opposite classes; a machine without a twin prefers none.

    `support`, shape (SUPPORT_POINTS, features), holds multiples of 2^-12: their sums are exact in any order.
    """

    name, summary = "population", "known distributions, one per machine, with known minimal loss"
    options = PopulationOptions
    feature_scale = 1.0
    is_generated = has_known_distribution = True

    def __init__(
        self,
        features: int,
        classes: int,
        margin: float,
        label_noise: float,
        heterogeneity: float,
        samples: int,
        data_seed: int,
    ) -> None:
        if max(features, classes) > MAX_FEATURES_OR_CLASSES:
            limit = f"--features and --classes must be at most {MAX_FEATURES_OR_CLASSES}"
            raise InputError(f"{limit}; or use --data synthetic")
        self.dimension, self.classes, self._seed = features, classes, data_seed
        self.label_noise, self.heterogeneity = label_noise, heterogeneity
        self.training_samples, self.test_samples = samples, SUPPORT_POINTS
        self.point_classes = (np.arange(SUPPORT_POINTS) % classes).astype(np.int32)
        pairs = (min(classes, SUPPORT_POINTS) + 1) // 2
        corners = np.repeat(_random_signs(data_seed, "corners", 0, (pairs, features)), 2, axis=0)
        corners[1::2] *= -1
        integers = SeedStream(data_seed, SEED_STREAMS["uniform"]).integers(0, SUPPORT_POINTS * features)
        uniform_points = (2 * unit_uniforms(integers) - 1).reshape(SUPPORT_POINTS, features)
        exact = margin * corners[self.point_classes] + (1 - margin) * uniform_points
        self.support = np.rint(exact * 2.0**12) * 2.0**-12

    @classmethod
    def check_experiment(cls, experiment: Any, options: Any) -> None:
        super().check_experiment(experiment, options)
        if experiment.partition is not None:
            raise InputError("partition needs a fixed data set, and a population has none. Leave it out.")

    def joint_probabilities(self) -> FloatArray:
        labels = np.full((SUPPORT_POINTS, self.classes), self.label_noise / self.classes)
        labels[np.arange(SUPPORT_POINTS), self.point_classes] += 1 - self.label_noise
        return labels / SUPPORT_POINTS

    def generate_samples(self, key: bytes, machine: int, machines: int, sample_numbers: IntArray) -> Samples:
        first, end = (sample_numbers.min(), sample_numbers.max() + 1) if sample_numbers.size else (0, 0)
        stream = SeedStream(philox_key(key, "fresh samples"))
        integers = stream.integers(machine, int(end - first), int(first))
        scaled = SUPPORT_POINTS * unit_uniforms(integers)[sample_numbers - first]
        points = scaled.astype(np.int64)
        labels, uniforms = self.point_classes[points], scaled - points
        noisy = np.flatnonzero(uniforms < self.label_noise)
        scaled_class = uniforms[noisy] * (self.classes / self.label_noise) if noisy.size else uniforms[noisy]
        classes = np.minimum(scaled_class.astype(np.int32), self.classes - 1)
        if machine ^ 1 < machines and self.heterogeneity > 0:  # It has a twin.
            sides, preferred = self._class_preferences(machine)
            pairs = np.minimum(classes // 2, len(preferred) - 1)
            is_partner = (sides[points[noisy]] ^ preferred[pairs]) != (classes % 2 == 1)
            has_partner = classes < 2 * len(preferred)
            is_changed = is_partner & has_partner & (scaled_class - classes < self.heterogeneity)
            classes ^= is_changed.astype(np.int32)
        labels[noisy] = classes
        return Samples(self.support[points], labels)

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        raise TypeError("a population has no rows: samples are drawn, and expectations are finite sums")

    def _class_preferences(self, machine: int) -> tuple[BoolArray, BoolArray]:
        """Side of the machine's hyperplane of each support point, and its likelier class of each pair."""
        pairs = self.classes // 2
        random = _random_signs(self._seed, "preferences", machine // 2, (self.dimension + 1 + pairs,))
        plane, signs = random[:-pairs], random[-pairs:]
        return self.support @ plane[:-1] + plane[-1] < 0, (signs < 0) ^ (machine % 2 == 1)


def _random_signs(seed: int, stream: str, substream: int, shape: tuple[int, ...]) -> FloatArray:
    bits = SeedStream(seed, SEED_STREAMS[stream]).integers(substream, int(np.prod(shape))) >> np.uint64(63)
    return 1 - 2 * bits.reshape(shape).astype(np.float64)
