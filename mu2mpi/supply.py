"""The samples that a run needs, read some rounds at a time: memory does not grow with their number."""

from mu2mpi.algorithm.machine import HostedSamples, Supply
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.data.partition import machine_rows
from mu2mpi.data.source import CHUNK_BYTES, Source
from mu2mpi.problem.logistic import bias_feature, sample_scales

__all__ = ["make_supply"]


def make_supply(source: Source, schedule: Schedule, key: bytes, hosted: range) -> Supply:
    """Return what reads the samples of some machines, in the order of their use.

    Parameters
    ----------
    source : Source
        The training set.
    schedule : Schedule
        Its M and T, and whether samples are scaled to norm 1.
    key : bytes
        32 bytes that determine the dealing.
    hosted : range
        The machines.

    Returns
    -------
    callable
        Takes a round t and returns the samples of as many rounds from t on as `CHUNK_BYTES` hold, at
        least one. What a machine gets in a round does not depend on how many are read at once.

    Raises
    ------
    InputError
        If there are not enough samples. The callable raises it for samples that cannot be used.
    """
    rows = machine_rows(source.training_samples, schedule.machines, schedule.rounds, key, hosted)
    at_once = max(1, CHUNK_BYTES // max(1, len(hosted) * source.sample_bytes))

    def supply(t: int) -> HostedSamples:
        chunk = rows[t - 1 : t - 1 + at_once]
        samples = source.training(chunk.ravel())
        features = samples.features.reshape(*chunk.shape, source.dimension)
        scales = sample_scales(samples.features, source.scale, schedule.unit_norm).reshape(chunk.shape)
        bias = bias_feature(schedule.unit_norm)
        return HostedSamples(features, samples.labels.reshape(chunk.shape), scales, t, bias)

    return supply
