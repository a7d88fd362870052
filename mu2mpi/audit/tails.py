"""The tail of the noise of real messages, on the dimensions of a real run."""

import numpy as np
from numpy.typing import NDArray

from mu2mpi.algorithm.machine import HostedSamples, Machines
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.algorithm.server import make_server
from mu2mpi.audit.canaries import FEATURE_TYPE, Numbered
from mu2mpi.audit.structure import TAIL_BITS, Structure, collect_tail, lattice_evidence
from mu2mpi.experiment import Experiment
from mu2mpi.parallel import Communicator, block
from mu2mpi.preparation import plan
from mu2mpi.privacy.noise import derive_key, key_words
from mu2mpi.timing import Stopwatch

__all__ = ["attack_structure"]

CLASSES, PIXELS, ROUNDS, RHO = 10, 784, 60_000, 4.0
"""A run on MNIST with one machine, which has all of its samples."""

ROUNDS_A_RUN = 1000
"""Of which only so many are taken with each noise key."""


def attack_structure(server: str, root: bytes, normals: int, communicator: Communicator) -> Structure | None:
    """Look for a lattice in the noise that a server's messages carry.

    Parameters
    ----------
    server : {"untrusted", "trusted"}
        Who adds the noise.
    root : bytes
        32 bytes from which the noise keys follow.
    normals : int
        How many to draw, at least.
    communicator : Communicator
        The ranks, among which the runs are divided.

    Returns
    -------
    Structure or None
        On rank 0; None elsewhere.
    """
    with communicator.together():
        experiment = Experiment(server=server, machines=1, rounds=ROUNDS, rho=RHO)
        schedule = plan(experiment, Numbered(ROUNDS, CLASSES, PIXELS), 1)
    runs = -(-normals // (ROUNDS_A_RUN * schedule.d))
    mine = block(runs, communicator.size, communicator.rank)
    keys = [key_words(derive_key(root, "noise", f"structure, run {n}")) for n in mine]
    tails = communicator.gather([_tail(schedule, key) for key in keys])
    if tails is None:
        return None
    pairs = np.hstack([np.empty((2, 0)), *(tail for of_rank in tails for tail in of_rank)])
    evidence, strongest = lattice_evidence(pairs, schedule.sigma / schedule.resolution)
    return Structure(runs * ROUNDS_A_RUN * schedule.d, pairs.shape[1], evidence, strongest)


def _tail(schedule: Schedule, key: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the pairs of the tail of one run's noise, in units of their standard deviation."""
    is_trusted = schedule.server == "trusted"
    machines = Machines(schedule, range(1), _blank, None if is_trusted else key)
    server = make_server(schedule, Communicator(), key if is_trusted else None)
    scale, clock, count = schedule.sigma / schedule.resolution, Stopwatch(), 0
    tail = np.empty((2, ROUNDS_A_RUN * schedule.d >> TAIL_BITS - 6))
    for t in range(1, ROUNDS_A_RUN + 1):
        server.round(t, machines, clock)
        message = server.iterates.direction
        if message is None:
            raise RuntimeError("the server took no step")
        count = collect_tail(message, machines.q, scale, tail, count)
    return tail[:, :count]


def _blank(t: int) -> HostedSamples:
    """Return the same sample for some rounds from t on: what the noise hides is known to the adversary."""
    features = np.ones((ROUNDS_A_RUN, PIXELS), FEATURE_TYPE)
    sizes = np.ones((ROUNDS_A_RUN, 1), np.int64)
    return HostedSamples(features, np.zeros(ROUNDS_A_RUN, np.int32), np.ones(ROUNDS_A_RUN), sizes, t)
