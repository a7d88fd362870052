"""The samples that a run needs, read some rounds at a time: memory does not grow with their number."""

import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import Samples, Source
from mu2mpi.federation.batching import Sampling, Taken
from mu2mpi.federation.machine import HostedSamples, Supply
from mu2mpi.federation.participants import RunParticipation, rounds_per_chunk
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.subsampling import users

# Takes numbers of samples among those of their machines, and of these machines among those hosted
Read = Callable[[NDArray[np.int64], NDArray[np.int64]], Samples]


def make_supply(
    source: Source,
    constants: RunConstants,
    key: bytes,
    hosted: range,
    partition: str,
    sampling_key: bytes,
) -> Supply:
    """Return what reads the samples of some machines, in the order of their use; or InputError if too few.

    What a machine gets in a round does not depend on how many rounds are read at once. Keys of 32 bytes
    determine how samples are dealt, or drawn of a population, and which are used when.
    """
    sampling, rounds, scaling = constants.sampling, constants.rounds, constants.task.scaling
    plan = constants.task.per_machine
    read = _reader(source, constants, key, hosted, partition)
    at_once = math.inf
    if hosted:
        at_once = source.at_once(round(len(hosted) * sampling.drawn(rounds))) / len(hosted)
    is_same = sampling.is_same and plan is None

    def take(later: range) -> Taken:
        """Return what is used in the first of some rounds: in as many as are read at once."""
        if plan is not None:
            return _attended(plan.participation, sampling, sampling_key, hosted, later, at_once)
        before = sampling.drawn(later.start - 1)
        count = bisect_right(later, at_once, key=lambda last: sampling.drawn(last) - before)
        return sampling.take(sampling_key, hosted, later[: 1 if is_same else max(1, count)])

    def supply(t: int) -> HostedSamples:
        later = range(t, rounds + 1)
        taken = take(later)
        samples = read(taken.places, users(taken.sizes))
        scales = scaling.factors(samples.features, source.scale)
        sizes = taken.sizes
        if is_same:
            sizes = np.broadcast_to(sizes, (len(later), len(hosted)))
        return HostedSamples(samples.features, samples.labels, scales, sizes, t, scaling.bias)

    return supply


def _attended(
    attendance: RunParticipation,
    sampling: Sampling,
    key: bytes,
    machines: range,
    later: range,
    at_once: float,
) -> Taken:
    """Return the k-th samples of machines at their k-th round, for rounds that use `at_once` of each."""
    some = later[: rounds_per_chunk(attendance.machines)]
    present = attendance.participates(some, machines)
    drawn = np.cumsum(present.sum(axis=1)) * sampling.size(1)
    present = present[: max(1, int(np.searchsorted(drawn, at_once * len(machines), side="right")))]
    before = attendance.counts_until(later.start - 1)
    sizes, places, rounds = np.zeros(present.shape, np.int64), [], []
    for column, machine in enumerate(machines):
        there, first = np.flatnonzero(present[:, column]), int(before[machine]) + 1
        own = sampling.take(key, range(machine, machine + 1), range(first, first + len(there)))
        sizes[there, column] = own.sizes[:, 0]
        places.append(own.places)
        rounds.append(np.repeat(there, own.sizes[:, 0]))
    if not places:
        return Taken(np.empty(0, np.int64), sizes)
    order = np.argsort(np.concatenate(rounds), kind="stable")
    return Taken(np.concatenate(places)[order], sizes)


def _reader(source: Source, constants: RunConstants, key: bytes, hosted: range, partition: str) -> Read:
    """Return what reads a training set, or draws samples as they are needed: no others are stored."""
    if not source.draws_fresh:
        machines, owned = constants.task.machines, constants.sampling.owned
        rows = parse_partition(partition).rows(source, machines, owned, key, hosted)
        return lambda places, machines: source.training(rows[places, machines])

    def draw(places: NDArray[np.int64], machines: NDArray[np.int64]) -> Samples:
        features = np.empty((len(places), source.dimension), source.points.dtype)
        labels = np.empty(len(places), np.int32)
        order = np.argsort(machines, kind="stable")
        ends = np.cumsum(np.bincount(machines, minlength=len(hosted)))
        # Nothing is left behind the last machine.
        for machine, of in zip(hosted, np.split(order, ends), strict=False):
            drawn = source.draw(key, machine, constants.task.machines, places[of])
            features[of], labels[of] = drawn.features, drawn.labels
        return source.labelled(Samples(features, labels))

    return draw
