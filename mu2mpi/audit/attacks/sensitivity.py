"""Sensitivity: what one sample adds to a message on real dimensions, for features of each stored type."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.attack import Attack, Finding, View
from mu2mpi.audit.canaries import CLASSES, FAR, PIXELS, Integers, labels_of
from mu2mpi.federation.machine import HostedSamples, Machines
from mu2mpi.federation.schedule import Schedule
from mu2mpi.privacy.noise import derive_key
from mu2mpi.problem.base import Array

SAMPLES = 7  # per machine: more than a batch, and no multiple of it
GRID_BITS = 24  # of the clipping norm that the grid resolves


class Sensitivity(Attack):
    """Compare increments with the clipping norm, and with their sum in batches."""

    def run(self, view: View) -> Finding:
        """Try single samples and batches, of one machine and of three."""
        rng = np.random.default_rng(list(derive_key(view.root, "sensitivity")))
        refutations, longest = [], 0.0
        for machines, dtype in ((M, dtype) for M in (1, 3) for dtype in (np.uint8, np.float32, np.float64)):
            schedule = _on_real_dimensions(view.schedule, machines)
            mechanism, n = schedule.mechanism, machines * SAMPLES
            points = rng.standard_normal((2, schedule.rows, PIXELS + 1)) * FAR / math.sqrt(PIXELS + 1)
            labels = labels_of(rng.integers(0, schedule.classes, n).astype(np.int32), schedule)
            features: NDArray[Any] = rng.uniform(-1, 1, (n, PIXELS)).astype(dtype)
            if dtype == np.uint8:
                features = rng.integers(0, 256, (n, PIXELS), dtype)
            each = [_message(schedule, features[k : k + 1], labels[k : k + 1], points) for k in range(n)]
            norm = max(float(np.linalg.norm(q.astype(np.float64))) for q in each)
            longest = max(longest, largest := norm * mechanism.resolution / mechanism.clip_norm)
            words = f"({np.dtype(dtype)} features of {machines} machine{'s' * (machines > 1)})"
            # Integers are exact, and so is what rounding to the grid leaves; the norm is not.
            if not largest <= 1 + 1e-12:
                refutations.append(f"a sample adds {largest:.4g} of the clipping norm to a message {words}")
            if not np.array_equal(_message(schedule, features, labels, points), sum(each)):
                refutations.append(f"samples of a batch add other increments than each alone {words}")
        summary = (
            f"Increments of {schedule.d:,} coordinates, of uint8, float32 and float64 features: "
            f"the longest has {longest:.4g} of the clipping norm, where more than 1 refutes."
        )
        return Finding(summary, tuple(refutations))


def _on_real_dimensions(schedule: Schedule, machines: int) -> Schedule:
    """Constants of a run on real dimensions, with the clipping norm and the loss of another."""
    classes = schedule.classes if schedule.rows == 1 else CLASSES
    resolution = 2.0 ** (math.floor(math.log2(schedule.mechanism.clip_norm)) - GRID_BITS)
    mechanism, rows = replace(schedule.mechanism, resolution=resolution), schedule.problem.rows(classes)
    sizes: dict[str, Any] = {"machines": machines, "classes": classes, "rows": rows, "features": PIXELS + 1}
    return replace(schedule, mechanism=mechanism, members=None, **sizes)


def _message(schedule: Schedule, features: NDArray[Any], labels: NDArray[Any], points: Array) -> Integers:
    """Sum of increments of some samples in round 2, in units of the grid, as the machines make it."""
    ends = np.linspace(0, len(labels), schedule.machines + 1).astype(np.int64)
    sizes: Integers = np.diff(ends)[np.newaxis]
    scales = schedule.scaling.factors(features, 1 / 255 if features.dtype == np.uint8 else 1.0)
    hosted = HostedSamples(features, labels, scales, sizes, 2, bias=schedule.scaling.bias)
    machines = Machines(schedule, range(schedule.machines), lambda t: hosted, None)
    machines.observe(2, *points)
    return machines.q
