"""Data source of synthetic samples of a multinomial logistic model, generated row by row on demand."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.data.seed_stream import SeedStream, unit_uniforms
from mu2mpi.data.source import DataSource, Samples, SplitName

SEED_STREAMS = {"true model": 0, "training": 1, "test": 2}  # of the seed
FEATURE_VALUES_PER_BLOCK = 1 << 15  # features in a block of rows, which share a substream
MAX_ROWS_GENERATED_SINGLY = 8  # rows of a block generated one by one: each costs about an eighth of the block
MAX_INFORMATIVE_FEATURES = 256  # features on which labels depend
MAX_TRUE_MODEL_ENTRIES = 1 << 22  # entries of the true model
LABEL_BUFFER_VALUES = 1 << 20  # numbers in each temporary array while labels are drawn


class GeneratedOptions(Options):
    """Options of generated data: numbers of samples, features and classes, and the seed."""

    samples: int = Field(10_000, ge=2, lt=2**32, description="number of training samples")
    features: int = Field(20, ge=1, le=10_000_000, description="number of features per sample")
    classes: int = Field(3, ge=2, le=1_000_000, description="number of classes")
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of the generated data")


@register
class Synthetic(DataSource):
    """Synthetic samples with features z uniform on [-1, 1) and labels drawn from softmax(W z + b).

    The entries of W and b are uniform, and scaled so that each logit has the standard deviation
    ``2 sqrt(2 log classes)``: at most points one class then has a probability well above 1/2, whatever the
    number of classes. W is zero but for the columns of at most 256 evenly spaced features.
    """

    name, summary = "synthetic", "samples of a multinomial logistic model"
    options = GeneratedOptions
    feature_scale, is_generated = 1.0, True

    def __init__(self, samples: int, features: int, classes: int, data_seed: int) -> None:
        self.training_samples, self.test_samples = samples, max(1000, samples // 5)
        self.dimension, self.classes, self._seed = features, classes, data_seed
        self._rows_per_block = max(1, FEATURE_VALUES_PER_BLOCK // features)
        informative = min(features, MAX_INFORMATIVE_FEATURES, max(1, MAX_TRUE_MODEL_ENTRIES // classes))
        self._informative_features = np.arange(informative) * features // informative
        self._weights, self._intercept = _random_model(data_seed, classes, informative)

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        features = np.empty((len(rows), self.dimension), np.float32)
        uniforms = np.empty(len(rows))
        stream = SeedStream(self._seed, SEED_STREAMS[split])
        blocks, offsets = np.divmod(rows, self._rows_per_block)
        order = np.argsort(blocks, kind="stable")
        starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
        for group in np.split(order, starts[1:]) if len(rows) else []:
            block, own_offsets = int(blocks[group[0]]), offsets[group]
            if len(group) > MAX_ROWS_GENERATED_SINGLY:
                block_features, block_uniforms = self._generate_rows(stream, block, 0, self._rows_per_block)
                features[group], uniforms[group] = block_features[own_offsets], block_uniforms[own_offsets]
                continue
            for row, offset in zip(group.tolist(), own_offsets.tolist(), strict=True):
                [features[row]], [uniforms[row]] = self._generate_rows(stream, block, offset, 1)
        return Samples(features, self._random_labels(features, uniforms))

    def _generate_rows(self, stream: SeedStream, block: int, first_row: int, rows: int) -> tuple[Any, Any]:
        """Generate features of consecutive rows of a block, and uniform random numbers for their labels."""
        # A substream has a word for each row's label, then half a word for each feature.
        uniforms = unit_uniforms(stream.integers(block, rows, first_row))
        start, end = first_row * self.dimension, (first_row + rows) * self.dimension
        integers = stream.integers(block, (end + 1) // 2 - start // 2, self._rows_per_block + start // 2)
        half_words = integers.view(np.uint32)[start % 2 :][: end - start]
        # 24 bits of each half word are exact in float32, and so is the shift to [-1, 1).
        features = (half_words >> np.uint32(8)).astype(np.float32)
        features *= np.float32(2.0**-23)
        features -= np.float32(1)
        return features.reshape(rows, self.dimension), uniforms

    def _random_labels(self, features: NDArray[Any], uniforms: FloatArray) -> NDArray[np.int32]:
        labels = np.empty(len(features), np.int32)
        step = max(1, LABEL_BUFFER_VALUES // max(self.classes, len(self._informative_features)))
        for start in range(0, len(features), step):
            rows = slice(start, start + step)
            cumulative = self._cumulative_class_weights(features[rows])
            threshold = uniforms[rows, np.newaxis] * cumulative[:, -1:]
            labels[rows] = (cumulative[:, :-1] <= threshold).sum(axis=1)
        return labels

    def _cumulative_class_weights(self, features: NDArray[np.generic]) -> FloatArray:
        """Cumulative sums of the unnormalised class probabilities of n samples: shape (n, classes)."""
        informative = features[:, self._informative_features].astype(np.float64)
        logits = informative @ self._weights.T + self._intercept
        return np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)


def _random_model(seed: int, classes: int, informative_features: int) -> tuple[NDArray[Any], FloatArray]:
    """Draw weights W, shape (classes, informative_features), and intercept b, on a grid for exact sums."""
    integers = SeedStream(seed, SEED_STREAMS["true model"]).integers(0, classes * (informative_features + 1))
    uniform = 2 * unit_uniforms(integers.reshape(classes, informative_features + 1)) - 1
    logit_std = 2 * math.sqrt(2 * math.log(classes))
    uniform[:, :-1] *= 3 * logit_std / math.sqrt(informative_features)  # product of 2 uniforms: variance 1/9
    uniform[:, -1] *= logit_std / 4
    model = np.rint(uniform * 2.0**12) * 2.0**-12
    return np.ascontiguousarray(model[:, :-1]), model[:, -1].copy()
