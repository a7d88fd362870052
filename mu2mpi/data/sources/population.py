"""Populations of which everything is known: expectations are sums over a finite set."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.seed_stream import SeedStream, philox_key, unit_uniforms
from mu2mpi.data.source import Samples, Source, Which
from mu2mpi.data.sources.synthetic import GeneratedOptions

POINTS = 1024  # a power of two: then a uniform number names a point without rounding
MOST = 1 << 14  # features, or classes: points, and their probabilities, take 128 MB at most
CORNERS, SPREAD, LEANING = range(3)  # streams of the seed


class PopulationOptions(GeneratedOptions):
    """How hard the problem is, and how far machines differ."""

    margin: float = Field(0.5, ge=0, le=1, description="how far apart classes are, 1 for a point each")
    label_noise: float = Field(0.1, ge=0, le=1, description="share of labels that are drawn at random")
    heterogeneity: float = Field(0.0, ge=0, le=1, description="how far random labels differ by machine")


@register
class Population(Source):
    """Points in the cube [-1, 1]^features, each of a class, with labels that are sometimes drawn at random.

    A point of class c is ``margin * v_c + (1 - margin) * u``: v_c is a corner of the cube, opposite to that
    of the next class, and u is uniform in the cube. Points are equally probable for every machine. A label
    is that of the point's class, or with probability `label_noise` a random one.

    Machines 2k and 2k + 1 are twins with a random plane of their own: by the side on which a point lies, one
    class of each pair (0 and 1, 2 and 3, ...) has the probability (1 + heterogeneity) / K among the random
    labels, and its partner the rest. Twins lean to opposite sides, and a machine without a twin not at all.

    `points`, shape (POINTS, features), are multiples of 2^-12: sums of them are exact in any order.
    """

    name, summary = "population", "a distribution of each machine, of which the smallest loss is known"
    options = PopulationOptions
    scale = 1.0
    made_up = draws_fresh = True

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
        if max(features, classes) > MOST:
            raise InputError(f"at most {MOST} --features and --classes; give fewer, or --data synthetic")
        self.dimension, self.classes = features, classes
        self.label_noise, self.heterogeneity = label_noise, heterogeneity
        self.training_samples, self.test_samples = samples, POINTS
        self._seed = data_seed
        self.point_classes = (np.arange(POINTS) % classes).astype(np.int32)
        pairs = (min(classes, POINTS) + 1) // 2
        corners = np.repeat(_signs(data_seed, CORNERS, 0, (pairs, features)), 2, axis=0)
        corners[1::2] *= -1
        spread = 2 * unit_uniforms(SeedStream(data_seed, SPREAD).words(0, POINTS * features)) - 1
        exact = margin * corners[self.point_classes] + (1 - margin) * spread.reshape(POINTS, features)
        self.points = np.rint(exact * 2.0**12) * 2.0**-12

    @classmethod
    def check(cls, asked: Any, options: Any) -> None:
        super().check(asked, options)
        if asked.partition is not None:
            raise InputError("partition deals out given samples, and machines draw their own of a population")

    def probabilities(self) -> NDArray[np.float64]:
        labels = np.full((POINTS, self.classes), self.label_noise / self.classes)
        labels[np.arange(POINTS), self.point_classes] += 1 - self.label_noise
        return labels / POINTS

    def draw(self, key: bytes, machine: int, machines: int, places: NDArray[np.int64]) -> Samples:
        first, last = (int(places.min()), int(places.max())) if places.size else (0, -1)
        words = SeedStream(philox_key(key, "fresh samples")).words(machine, last + 1 - first, first)
        scaled = POINTS * unit_uniforms(words)[places - first]
        points = scaled.astype(np.int64)
        # What is left of a number that names a point is uniform too, and decides on the label.
        labels, uniforms = self.point_classes[points], scaled - points
        noisy = np.flatnonzero(uniforms < self.label_noise)
        chosen = uniforms[noisy] * (self.classes / self.label_noise) if noisy.size else uniforms[noisy]
        drawn = np.minimum(chosen.astype(np.int32), self.classes - 1)
        has_twin = machine ^ 1 < machines
        if has_twin and self.heterogeneity > 0:
            sides, classes = self._own_model(machine)
            pairs = np.minimum(drawn // 2, len(classes) - 1)
            unwanted = (sides[points[noisy]] ^ classes[pairs]) != (drawn % 2 == 1)
            has_partner = drawn < 2 * len(classes)
            drawn ^= (unwanted & has_partner & (chosen - drawn < self.heterogeneity)).astype(np.int32)
        labels[noisy] = drawn
        return Samples(self.points[points], labels)

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        raise TypeError("a population has no rows: samples are drawn, and expectations are sums over points")

    def _own_model(self, machine: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return on which side of a machine's plane each point lies, and a bit for each pair of classes.

        Where the two differ, the machine prefers the second class of the pair, and else the first.
        """
        pairs = self.classes // 2
        own = _signs(self._seed, LEANING, machine // 2, (self.dimension + 1 + pairs,))
        plane, classes = own[:-pairs], own[-pairs:]
        return self.points @ plane[:-1] + plane[-1] < 0, (classes < 0) ^ (machine % 2 == 1)


def _signs(seed: int, stream: int, number: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    bits = SeedStream(seed, stream).words(number, int(np.prod(shape))) >> np.uint64(63)
    return 1 - 2 * bits.reshape(shape).astype(np.float64)
