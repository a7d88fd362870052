"""A population whose true model is a multinomial logistic regression, generated row by row on demand."""

from __future__ import annotations

import math

from pydantic import Field

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import register
from mu2mpi.data.seed_stream import SeedStream, unit_uniforms
from mu2mpi.data.source import Samples, Source, Which

TRUTH, STREAMS = 0, {"training": 1, "test": 2}  # streams of one seed
# Values in a block of rows, which share a part of the stream. Up to so many rows of a block are generated one
# by one: each costs about an eighth of a block.
BLOCK_VALUES, FEW = 1 << 15, 8
MAX_INFORMATIVE, MAX_TRUTH = 256, 1 << 22  # features on which labels depend, entries of the true model
SCRATCH = 1 << 20  # numbers in the arrays that are used while labels are drawn


class GeneratedOptions(Options):
    """Sizes and seed of generated data."""

    samples: int = Field(10_000, ge=2, lt=2**32, description="number of training samples")
    features: int = Field(20, ge=1, le=10_000_000, description="how many features a sample has")
    classes: int = Field(3, ge=2, le=1_000_000, description="number of classes")
    data_seed: int = Field(0, ge=0, lt=2**63, description="seed of what is made up")


@register
class Synthetic(Source):
    """Features uniform on [-1, 1), and labels drawn from softmax(W z + b) of them.

    The entries of W and b are uniform, and scaled so that before the softmax each class's value has a
    standard deviation of ``2 sqrt(2 log classes)``: at most points one class is then well above 1/2, whatever
    the number of classes. Only the columns of W of at most 256 features, evenly spaced, differ from 0.

    Any row is a function of the seed, its own number, and the numbers of features and classes alone.
    """

    name, summary = "synthetic", "samples of a multinomial logistic model"
    options = GeneratedOptions
    scale, made_up = 1.0, True

    def __init__(self, samples: int, features: int, classes: int, data_seed: int) -> None:
        self.training_samples, self.test_samples = samples, max(1000, samples // 5)
        self.dimension, self.classes = features, classes
        self._seed = data_seed
        self._block = max(1, BLOCK_VALUES // features)
        informative = min(features, MAX_INFORMATIVE, max(1, MAX_TRUTH // classes))
        self._columns = np.arange(informative) * features // informative
        self._weights, self._intercept = _draw_truth(data_seed, classes, informative)

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        features = np.empty((len(rows), self.dimension), np.float32)
        uniforms = np.empty(len(rows))
        stream = SeedStream(self._seed, STREAMS[which])
        blocks, offsets = np.divmod(rows, self._block)
        # Grouped by block, so that each block is generated once.
        order = np.argsort(blocks, kind="stable")
        starts = np.flatnonzero(np.diff(blocks[order], prepend=-1))
        for group in np.split(order, starts[1:]) if len(rows) else []:
            block, among = int(blocks[group[0]]), offsets[group]
            if len(group) > FEW:
                whole = self._generate(stream, block, 0, self._block)
                features[group], uniforms[group] = whole[0][among], whole[1][among]
                continue
            for row, offset in zip(group.tolist(), among.tolist(), strict=True):
                here = slice(row, row + 1)
                features[here], uniforms[here] = self._generate(stream, block, offset, 1)
        return Samples(features, self._draw_labels(features, uniforms))

    def _generate(
        self, stream: SeedStream, block: int, first: int, rows: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """Return the features of consecutive rows of a block, and the uniform numbers that decide labels."""
        # A block begins with a word for each row's label; then each feature takes half a word.
        uniforms = unit_uniforms(stream.words(block, rows, first))
        start, end = first * self.dimension, (first + rows) * self.dimension
        words = stream.words(block, (end + 1) // 2 - start // 2, self._block + start // 2)
        halves = words.view(np.uint32)[start % 2 :][: end - start]
        # 24 bits of each half word: exact in float32, and so is the shift to [-1, 1).
        features = (halves >> np.uint32(8)).astype(np.float32)
        features *= np.float32(2.0**-23)
        features -= np.float32(1)
        return features.reshape(rows, self.dimension), uniforms

    def _draw_labels(self, features: NDArray[np.float32], uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
        labels = np.empty(len(features), np.int32)
        step = max(1, SCRATCH // max(self.classes, len(self._columns)))
        for start in range(0, len(features), step):
            part = slice(start, start + step)
            cumulative = self._cumulative(features[part])
            threshold = uniforms[part, np.newaxis] * cumulative[:, -1:]
            labels[part] = (cumulative[:, :-1] <= threshold).sum(axis=1)
        return labels

    def _cumulative(self, features: NDArray[np.generic]) -> NDArray[np.float64]:
        """Return the running sums over classes of numbers proportional to the probabilities."""
        logits = features[:, self._columns].astype(np.float64) @ self._weights.T + self._intercept
        return np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)


def _draw_truth(seed: int, classes: int, informative: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return W, shape (classes, informative), and b, shape (classes,), rounded to multiples of 2**-12.

    Features are multiples of 2**-23, so that every sum in W z + b is exact in float64: a label does not
    depend on the order in which a library of linear algebra sums, nor on its number of threads.
    """
    raw = SeedStream(seed, TRUTH).words(0, classes * (informative + 1)).reshape(classes, informative + 1)
    uniform = 2 * unit_uniforms(raw) - 1
    spread = 2 * math.sqrt(2 * math.log(classes))
    # The variance of a product of two numbers uniform on [-1, 1] is 1/9.
    uniform[:, :-1] *= 3 * spread / math.sqrt(informative)
    uniform[:, -1] *= spread / 4
    truth = np.rint(uniform * 2.0**12) * 2.0**-12
    return np.ascontiguousarray(truth[:, :-1]), truth[:, -1].copy()
