"""Data sets of which every sample is one of two by a coin, as far apart as increments can be."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.partition import machine_rows
from mu2mpi.data.source import Labels, Samples, Source, Which
from mu2mpi.federation.machine import HostedSamples, Supply
from mu2mpi.federation.samples import make_supply
from mu2mpi.federation.schedule import Schedule
from mu2mpi.problem.base import Array

FEATURE_TYPE = np.uint8
"""As in the data sets whose kernels are likely to be compiled already."""

Kinds = NDArray[np.bool_]
"""Whether each canary is of the second kind: shape (canaries,), or of many runs (runs, canaries)."""

FAR = 160.0
"""Entries of chosen query points: so large that a model is as sure of every sample as it gets, and so small
that squares of residuals that grow like an exponential are numbers."""


class Numbered(Source):
    """Samples that are all the same but for their labels, which are their row numbers.

    Rows can only be read if there are as many classes as samples.
    """

    name, test_samples, scale = "canary", 1, 1.0

    def __init__(self, samples: int, classes: int, dimension: int = 1) -> None:
        self.training_samples, self.classes, self.dimension = samples, classes, dimension

    def _read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        return Samples(np.ones((len(rows), self.dimension), FEATURE_TYPE), rows.astype(np.int32))


@dataclass(frozen=True)
class WorstCase:
    """Settings and samples with which increments are as long, and as far apart, as the guarantee allows."""

    words: str
    clip_norm: float | None
    diameter: float
    steps: float  # how large they are, relative to the largest that smoothness allows, where rho is 1 or more
    chosen: bool
    """Whether the audit chooses the query points, and samples differ in their feature as well as their class;
    if not they have the feature 1."""

    def label(self, t: int) -> int:
        """Return the class of a sample of round t that is of the first kind; the second has the other."""
        return t % 2 if self.chosen else 0

    def query_point(self, t: int, rows: int) -> Array:
        """Return x_t of one or two rows where the audit chooses it: both kinds of samples change sides."""
        row = FAR * np.array([1.0, -0.5]) * (-1) ** t
        return np.array([-row, row])[-rows:]

    def reach(self, schedule: Schedule, t: int) -> float:
        """Return how far apart increments of both kinds lie in round t, in units of twice the clipping norm.

        Where query points are not chosen, no iterate comes far enough from 0 to matter.
        """
        z = schedule.scaling.samples(np.array([[1], [1 - self.chosen]], FEATURE_TYPE), Numbered.scale)
        x, x_previous = (self.query_point(k, schedule.rows) * self.chosen for k in (t, t - 1))
        ends = []
        for kind, sample in enumerate(z):
            labels = labels_of(np.full(2, self.label(t) ^ kind, np.int32), schedule)
            margins = np.array([x @ sample, x_previous @ sample])
            c, c_previous = schedule.problem.losses_and_residuals(margins, labels)[1]
            if schedule.estimator.lasts:
                c += (t - 1) * (c - c_previous)
            norm = np.linalg.norm(c) * np.linalg.norm(sample)
            ends.append(np.outer(c, sample) * min(1.0, schedule.mechanism.clip_norm / norm))
        return float(np.linalg.norm(ends[0] - ends[1]) / (2 * schedule.mechanism.clip_norm))


CLIPPED = WorstCase("with a clipping norm", 0.01, 100.0, 1.0, chosen=False)
"""Samples of both classes have opposite increments, far longer than the clipping norm. No iterate comes near
the surface of the ball, and x_t tells the sums of the rounds before exactly."""

UNCLIPPED = WorstCase("with the default norm", None, 1.0, 1e-3, chosen=True)
"""S = G + 2 L D is larger than G, and by the third round increments between far query points are longer than
that. The guarantee has to hold for any query points."""


def labels_of(classes: NDArray[np.int32], schedule: Schedule) -> Labels:
    """Return labels of samples of two classes as the loss takes them: numbers are the ends of their range."""
    return classes if schedule.problem.labels == "classes" else 2 * classes.astype(np.float64) - 1


class Canaries:
    """Where the samples are that an audit attacks, and what machines get.

    Of each canary, `machines` says whose it is, from 0, `rounds` the round in which it is used first, from 1,
    and `messages` the rounds of all messages that are seen and tell of it: if it `stays`, of all from then
    on. Where samples are drawn at random there is one canary, and rounds mean nothing. The 32 bytes of
    `dealing` decide which machine gets which sample, and when.
    """

    def __init__(self, schedule: Schedule, case: WorstCase, dealing: bytes) -> None:
        self.schedule, self.case = schedule, case
        count, sampling = schedule.machines, schedule.sampling
        samples = count * sampling.owned
        # These read the numbers of samples; every run reads the same unless they are drawn.
        self._reader = partial(make_supply, Numbered(samples, samples), schedule, dealing)
        self._fixed_reader = cache(lambda hosted: cache(self._reader(hosted)))
        # What the machines of a trusted server send in the last round goes nowhere.
        last = schedule.rounds - (schedule.server == "trusted")
        dealt = machine_rows(samples, count, sampling.owned, dealing, range(count))
        if sampling.chance:
            self.machines, self.rounds = np.array([count - 1]), np.ones(1, np.int64)
        else:
            spent = [t for t in range(1, last + 1) if sampling.used(t) > sampling.used(t - 1)]
            self.machines = np.tile(np.arange(count), len(spent))
            self.rounds = np.repeat(np.array(spent), count)
        places = [sampling.used(t - 1) for t in self.rounds.tolist()]
        taken = sampling.take(bytes(32), range(1), range(1, last + 1))
        used_in = np.repeat(np.arange(1, last + 1), taken.sizes[:, 0])
        self.messages = [used_in[taken.places == place].tolist() for place in places]
        # Noise that is correlated tells of a sample also in rounds after its own.
        self.stays = schedule.estimator.lasts or schedule.mechanism.correlation is not None
        if self.stays:
            self.messages = [list(range(t, last + 1)) for t in self.rounds.tolist()]
        self._rows = dealt[places, self.machines]
        self._labels = np.zeros(dealt.size, np.int32)
        ends = [sampling.used(t) for t in range(1, schedule.rounds + 1)]
        for place, row in enumerate(dealt):
            self._labels[row] = case.label(place + 1 if sampling.chance else bisect_right(ends, place) + 1)

    def __len__(self) -> int:
        return len(self._rows)

    def supply(self, hosted: range, kinds: Kinds, sampling: bytes = bytes(32)) -> Supply:
        """Return what some machines get; 32 bytes of `sampling` decide what they draw, where they do."""
        labels, features = self._labels.copy(), np.ones((len(self._labels), 1), FEATURE_TYPE)
        labels[self._rows] ^= kinds
        if self.case.chosen:
            features[self._rows, 0] = ~kinds
        is_drawn = self.schedule.sampling.chance
        read = self._reader(hosted, sampling_key=sampling) if is_drawn else self._fixed_reader(hosted)

        def supply(t: int) -> HostedSamples:
            numbered = read(t)
            rows = numbered.labels
            return replace(numbered, labels=labels_of(labels[rows], self.schedule), features=features[rows])

        return supply
