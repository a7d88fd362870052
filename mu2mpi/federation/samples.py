"""The samples that a run needs, read some rounds at a time: memory does not grow with their number."""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.partition import partition_rows
from mu2mpi.data.source import Samples, Source
from mu2mpi.data.sources.population import Population
from mu2mpi.federation.machine import HostedSamples, Supply
from mu2mpi.federation.sampling import users
from mu2mpi.federation.schedule import Schedule

Read = Callable[[NDArray[np.int64], NDArray[np.int64]], Samples]
"""Takes numbers of samples among those of their machines, and of these machines among those hosted."""


def make_supply(
    source: Source,
    schedule: Schedule,
    key: bytes,
    hosted: range,
    partition: str = "iid",
    sampling_key: bytes = bytes(32),
) -> Supply:
    """Return what reads the samples of some machines, in the order of their use; or InputError if too few.

    What a machine gets in a round does not depend on how many rounds are read at once. An InputError there
    says that samples cannot be used.

    Parameters
    ----------
    source, schedule : Source, Schedule
        The training set, or a population of which samples are drawn; and M, T, which samples are used when,
        and whether they are scaled to norm 1.
    key, sampling_key : bytes
        32 bytes that determine the dealing, or the draws; and 32 for which samples are used when, where that
        is left to chance.
    hosted, partition : range, str
        The machines; and how a training set is dealt to all of them, hosted or not.
    """
    sampling, rounds = schedule.sampling, schedule.rounds
    read = _reader(source, schedule, key, hosted, partition)
    at_once = math.inf
    if hosted:
        at_once = source.at_once(round(len(hosted) * sampling.drawn(rounds))) / len(hosted)

    def supply(t: int) -> HostedSamples:
        before, later = sampling.drawn(t - 1), range(t, rounds + 1)
        count = bisect_right(later, at_once, key=lambda last: sampling.drawn(last) - before)
        taken = sampling.take(sampling_key, hosted, later[: 1 if sampling.is_same else max(1, count)])
        samples = read(taken.places, users(taken.sizes))
        scales = schedule.scaling.factors(samples.features, source.scale)
        sizes = taken.sizes
        if sampling.is_same:
            sizes = np.broadcast_to(sizes, (len(later), len(hosted)))
        return HostedSamples(samples.features, samples.labels, scales, sizes, t, schedule.scaling.bias)

    return supply


def _reader(source: Source, schedule: Schedule, key: bytes, hosted: range, partition: str) -> Read:
    """Return what reads a training set, or draws samples as they are needed: no others are stored."""
    if not isinstance(source, Population):
        rows_of = partition_rows(source, partition, schedule.machines, schedule.sampling.owned, key, hosted)
        return lambda places, machines: source.training(rows_of(places, machines))

    def draw(places: NDArray[np.int64], machines: NDArray[np.int64]) -> Samples:
        features = np.empty((len(places), source.dimension), source.points.dtype)
        labels = np.empty(len(places), np.int32)
        order = np.argsort(machines, kind="stable")
        ends = np.cumsum(np.bincount(machines, minlength=len(hosted)))
        # Nothing is left behind the last machine.
        for machine, of in zip(hosted, np.split(order, ends), strict=False):
            drawn = source.draw(key, machine, schedule.machines, places[of])
            features[of], labels[of] = drawn.features, drawn.labels
        return source.labelled(Samples(features, labels))

    return draw
