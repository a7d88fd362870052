"""The samples that a run needs, read some rounds at a time: memory does not grow with their number."""

import numpy as np

from mu2mpi.algorithm.machine import HostedSamples, Supply
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.data.partition import partition_rows
from mu2mpi.data.population import Population
from mu2mpi.data.source import Source
from mu2mpi.problem.logistic import bias_feature, sample_scales

__all__ = ["make_supply"]


def make_supply(
    source: Source, schedule: Schedule, key: bytes, hosted: range, partition: str = "iid"
) -> Supply:
    """Return what reads the samples of some machines, in the order of their use.

    Parameters
    ----------
    source : Source
        The training set, or a population of which samples are drawn.
    schedule : Schedule
        Its M and T, and whether samples are scaled to norm 1.
    key : bytes
        32 bytes that determine the dealing, or the draws.
    hosted : range
        The machines.
    partition : str, optional
        How a training set is dealt to all machines.

    Returns
    -------
    callable
        Takes a round t and returns the samples of as many rounds from t on as are read at once, at
        least one. What a machine gets in a round does not depend on how many are read at once.

    Raises
    ------
    InputError
        If there are not enough samples. The callable raises it for samples that cannot be used.
    """
    if isinstance(source, Population):
        return _fresh(source, schedule, key, hosted)
    rows_of = partition_rows(source, partition, schedule.machines, schedule.rounds, key, hosted)
    at_once = _rounds_at_once(source, schedule, hosted)

    def supply(t: int) -> HostedSamples:
        rows = rows_of(range(t, min(t + at_once, schedule.rounds + 1)))
        samples = source.training(rows.ravel())
        features = samples.features.reshape(*rows.shape, source.dimension)
        scales = sample_scales(samples.features, source.scale, schedule.unit_norm).reshape(rows.shape)
        bias = bias_feature(schedule.unit_norm)
        return HostedSamples(features, samples.labels.reshape(rows.shape), scales, t, bias)

    return supply


def _fresh(population: Population, schedule: Schedule, key: bytes, hosted: range) -> Supply:
    """Return what draws samples as they are needed: nothing is stored but the chunk in use."""
    at_once = _rounds_at_once(population, schedule, hosted)

    def supply(t: int) -> HostedSamples:
        rounds = range(t - 1, min(t - 1 + at_once, schedule.rounds))
        features = np.empty((len(rounds), len(hosted), population.dimension), population.points.dtype)
        labels = np.empty((len(rounds), len(hosted)), np.int32)
        for column, machine in enumerate(hosted):
            drawn = population.draw(key, machine, schedule.machines, rounds)
            features[:, column], labels[:, column] = drawn.features, drawn.labels
        flat = features.reshape(-1, population.dimension)
        scales = sample_scales(flat, population.scale, schedule.unit_norm).reshape(labels.shape)
        return HostedSamples(features, labels, scales, t, bias_feature(schedule.unit_norm))

    return supply


def _rounds_at_once(source: Source, schedule: Schedule, hosted: range) -> int:
    if not hosted:
        return schedule.rounds
    return max(1, source.at_once(len(hosted) * schedule.rounds) // len(hosted))
