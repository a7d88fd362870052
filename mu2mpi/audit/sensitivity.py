"""Norm of what one sample adds to a message on real dimensions, for features of each stored type."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import FAR, labels_of
from mu2mpi.audit.check import Check
from mu2mpi.data.source import Samples
from mu2mpi.federation.machine import HostedSamples, Machines
from mu2mpi.federation.schedule import Schedule
from mu2mpi.problem.base import Array

CLASSES, PIXELS = 10, 784
"""Those of MNIST."""

SAMPLES = 7
"""Per machine: more than a batch, and no multiple of it."""

MACHINES = 1, 3
"""With more than two machines, samples are computed in batches."""

GRID_BITS = 24
"""Bits of the clipping norm that the grid resolves."""

ROUND = 2
"""The first with an increment of two gradients."""

Integers = NDArray[np.int64]


def check_sensitivity(schedule: Schedule, root: bytes) -> Check:
    """Compare increments with the clipping norm, with their sum in batches, and between stored types.

    Query points are so far from 0 that increments are longer than the clipping norm before clipping. They and
    the samples follow from the 32 bytes of the root. Faultless code never fails.
    """
    rng = np.random.default_rng(list(root))
    refutations, alarms, longest = [], [], 0.0
    for machines in MACHINES:
        small = _on_real_dimensions(schedule, machines)
        points: Array = rng.standard_normal((2, small.rows, small.features)) * FAR / math.sqrt(small.features)
        labels = rng.integers(0, small.classes, machines * SAMPLES).astype(np.int32)
        base = None
        for features, scale, is_same in _features(rng, len(labels)):
            samples = Samples(features, labels_of(labels, small))
            words = f"{features.dtype} features of {machines} machine{'s' * (machines > 1)}"
            each = [
                _message(
                    small, Samples(samples.features[k : k + 1], samples.labels[k : k + 1]), scale, points
                )
                for k in range(len(labels))
            ]
            norms = [float(np.linalg.norm(q.astype(np.float64))) for q in each]
            largest = max(norms) * small.mechanism.resolution / small.mechanism.clip_norm
            longest = max(longest, largest)
            # Integers are exact, and so is what rounding to the grid leaves; the norm is not.
            if not largest <= 1 + 1e-12:
                refutations.append(f"a sample adds {largest:.4g} of the clipping norm to a message ({words})")
            if not np.array_equal(_message(small, samples, scale, points), sum(each)):
                refutations.append(f"samples of a batch add other increments than each alone ({words})")
            if is_same:
                base = each if base is None else base
                if max(int(np.abs(a - b).max()) for a, b in zip(each, base, strict=True)) > 1:
                    alarms.append(f"increments are not those of the same values as uint8 ({words})")
    summary = (
        f"Increments of {small.rows} x {small.features} coordinates, of uint8, float32 and float64 features: "
        f"the longest has {longest:.4g} of the clipping norm, where more than 1 refutes."
    )
    return Check(summary, tuple(refutations), tuple(alarms))


def _on_real_dimensions(schedule: Schedule, machines: int) -> Schedule:
    """Return the constants of a run on real dimensions, with the clipping norm and the loss of another."""
    classes = schedule.classes if schedule.rows == 1 else CLASSES
    resolution = 2.0 ** (math.floor(math.log2(schedule.mechanism.clip_norm)) - GRID_BITS)
    return replace(
        schedule,
        machines=machines,
        classes=classes,
        rows=schedule.problem.rows(classes),
        features=PIXELS + 1,
        mechanism=replace(schedule.mechanism, resolution=resolution),
        members=None,
    )


def _features(rng: np.random.Generator, n: int) -> Iterator[tuple[NDArray[np.generic], float, bool]]:
    """Yield features of each stored type, their scale, and whether values are those of the first."""
    pixels = rng.integers(0, 256, (n, PIXELS))
    for dtype in (np.uint8, np.float32, np.float64):
        yield pixels.astype(dtype), 1 / 255, True
    for dtype in (np.float32, np.float64):
        yield rng.uniform(-1, 1, (n, PIXELS)).astype(dtype), 1.0, False


def _message(schedule: Schedule, samples: Samples, scale: float, points: Array) -> Integers:
    """Return the sum of increments of some samples, in units of the grid, as the machines make it."""
    sizes = np.zeros((1, schedule.machines), np.int64)
    sizes[0] = np.diff(np.linspace(0, len(samples), schedule.machines + 1).astype(np.int64))
    scales = schedule.scaling.factors(samples.features, scale)
    hosted = HostedSamples(samples.features, samples.labels, scales, sizes, ROUND, bias=schedule.scaling.bias)
    machines = Machines(schedule, range(schedule.machines), lambda t: hosted, None)
    machines.observe(ROUND, *points)
    return machines.q
