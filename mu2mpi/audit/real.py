"""Messages of real size: those of worst cases have four coordinates."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import FEATURE_TYPE, Numbered
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.machine import HostedSamples, Supply
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.noise import MAX_NUMBER, key_words

Integers = NDArray[np.int64]

CLASSES, PIXELS = 10, 784  # those of MNIST

BOUNDARIES = sorted(
    {*range(12), *(2**bit + step for bit in range(16, 32) for step in (-1, 0, 1)), MAX_NUMBER - 1}
)
"""Numbers of machines and rounds: if they are cut to k bits, or rounded to a mantissa of k, some coincide."""


def real_schedule(pixels: int = PIXELS, **settings: Any) -> Schedule:
    """Constants of a run with messages of ten classes and so many features, by default of a long one."""
    experiment = Experiment.make({"machines": 10, "rounds": 60_000, "rho": 4.0, **settings})
    samples = (experiment.machines or 1) * (experiment.rounds or 1)
    return resolve(experiment, Numbered(samples, CLASSES, pixels), 1).schedule


def blank_supply(schedule: Schedule) -> Supply:
    """Supply of the same sample for any round: what the noise hides is known to the adversary."""
    features, sizes = np.ones((1, schedule.features - 1), FEATURE_TYPE), np.ones((1, 1), np.int64)
    return partial(HostedSamples, features, np.zeros(1, np.int32), np.ones(1), sizes)


def noise_scale(schedule: Schedule) -> float:
    """Return the standard deviation of what a machine, or a central server, draws, in units of the grid."""
    variance = schedule.variances / (1 if schedule.trust.is_central else schedule.machines)
    return math.sqrt(variance) * schedule.mechanism.sigma / schedule.mechanism.resolution


def noise_of_machine(
    schedule: Schedule, key: bytes, machine: int, rounds: list[int]
) -> Iterator[tuple[Integers, Integers]]:
    """Yield the noise of a machine's messages without masks, or of a central server's, and its fresh draws.

    Both have the shape (d,), and are the same unless noise is correlated. Then whoever knows the noise of the
    rounds before, all from the first on, can take away what follows from it.
    """
    hosted, supply = range(machine, machine + 1), blank_supply(schedule)
    machines, server = machines_and_server(schedule, hosted, supply, Communicator(), key_words(key))
    before: Any = 0
    if (correlation := schedule.mechanism.correlation) is not None:
        buffers = np.zeros((len(correlation.weights), schedule.d))
    for t in rounds:
        server.round(t, machines, Stopwatch())
        message = server.iterates.direction if server.unmasked is None else server.unmasked
        if message is None:
            raise RuntimeError("the server took no step")
        noise = fresh = (message - machines.q).ravel()
        if correlation is not None:
            y = (noise - before) / correlation.norm(t)
            before = noise * correlation.lasts
            fresh = np.rint(y + correlation.weights @ buffers).astype(np.int64)
            buffers = buffers * correlation.decays[:, np.newaxis] + y
        yield noise, fresh
