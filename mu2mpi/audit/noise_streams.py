"""Noise and samples of machines and rounds with large numbers: fresh for each pair of them."""

from dataclasses import replace

import numpy as np

from mu2mpi.audit.boundaries import boundary_numbers
from mu2mpi.audit.canaries import Numbered
from mu2mpi.audit.check import Check
from mu2mpi.audit.residues import residue_faults
from mu2mpi.audit.tails import (
    CLASSES,
    MACHINES,
    RHOS,
    ROUNDS,
    NoiseStatistics,
    messages_of_machine,
    noise_experiment,
    noise_scale,
    size_faults,
)
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.sampling import Poisson, Sampling, WithReplacement
from mu2mpi.federation.schedule import Schedule
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.privacy.noise import MAX_NUMBER, derive_key
from mu2mpi.registry import find

PIXELS = 76
"""Features of a sample: a message has 770 coordinates, in three whole chunks of noise and a part of one."""

CONSECUTIVE = 21
"""Machines, and rounds, at the beginning."""

LOWEST_BIT = 5
"""Exponent of the first power of two near which there are others."""

CORRELATED_ROUNDS = 20
"""Rounds of each machine if noise is correlated: it is drawn for consecutive rounds alone."""

SAMPLINGS: dict[str, Sampling] = {
    "poisson": Poisson(owned=256, probability=0.5),
    "replacement": WithReplacement(owned=2**35, most=4),
}
"""Sampling with so much entropy that no two batches are the same, for each kind of random sampling."""


def check_noise_streams(server: str, root: bytes, risk: float, correlation: Correlation | None) -> Check:
    """Attack the noise of machines and rounds with small and large numbers.

    Parameters
    ----------
    server : str
        Name of the trust mode.
    root : bytes
        Secret of 32 bytes from which the noise key follows.
    risk : float
        Largest probability of a complaint about faultless noise.
    correlation : Correlation or None
        Correlation of the noise of consecutive rounds.
    """
    schedule = _schedule(server, correlation)
    scale, key = noise_scale(schedule), derive_key(root, "noise", "streams")
    machines, rounds = _numbers(schedule)
    many = schedule if schedule.trust.is_central else replace(schedule, machines=MAX_NUMBER)
    if correlation is None:
        many = replace(many, rounds=MAX_NUMBER)
    statistics = NoiseStatistics(schedule.d, scale, len(machines) * len(rounds))
    for machine in machines:
        for message, hidden, noise in messages_of_machine(many, key, machine, rounds, np.zeros(4)):
            statistics.add(message, hidden, noise)

    def message_name(number: int) -> str:
        machine, place = divmod(number, len(rounds))
        return f"round {rounds[place]:,}" + f" of machine {machines[machine]:,}" * (len(machines) > 1)

    found = statistics.squares, np.array(statistics.sums), statistics.repeated, statistics.tail.shape[1]
    faults = size_faults(*found, risk / 2, message_name)
    faults += residue_faults(statistics.residues, scale, risk / 2)
    return Check(
        f"Noise of machines and rounds with numbers below 2^32: {len(statistics.sums):,} messages of "
        f"{schedule.d} coordinates; {len(faults) or 'no'} faults.",
        tuple(words for is_less, words in faults if is_less),
        tuple(words for is_less, words in faults if not is_less),
    )


def check_sample_streams(chance: str, root: bytes) -> Check:
    """Check that no two machines or rounds share the randomness by which samples are drawn.

    Parameters
    ----------
    chance : str
        Kind of random sampling, of `SAMPLINGS`.
    root : bytes
        Secret of 32 bytes from which the key follows.
    """
    sampling, key = SAMPLINGS[chance], derive_key(root, "sampling", "streams")
    numbers = boundary_numbers(CONSECUTIVE, LOWEST_BIT)
    batches = [
        sampling.take(key, range(machine, machine + 1), range(t, t + 1)).places.tobytes()
        for machine in numbers
        for t in numbers[1:]
    ]
    repeated = len(batches) - len(set(batches))
    return Check(
        f"Random samples of machines and rounds with numbers below 2^32: {len(batches):,} batches, of "
        f"which {repeated:,} occur twice.",
        (f"{repeated:,} batches of random samples were drawn before",) * (repeated > 0),
    )


def _schedule(server: str, correlation: Correlation | None) -> Schedule:
    """Constants of a run with small messages, without masks: 2^32 machines have too many neighbours."""
    own = {"masks": "none"} if "masks" in find("servers", server).options.model_fields else {}
    experiment = noise_experiment(server, RHOS[0], correlation, **own)
    return resolve(experiment, Numbered(MACHINES * ROUNDS, CLASSES, PIXELS), 1).schedule


def _numbers(schedule: Schedule) -> tuple[list[int], list[int]]:
    """Machines and rounds of which messages are attacked; a central server draws as machine 0."""
    numbers = boundary_numbers(CONSECUTIVE, LOWEST_BIT)
    machines = [0] if schedule.trust.is_central else numbers
    if schedule.mechanism.correlation is not None:
        return machines, list(range(1, CORRELATED_ROUNDS + 1))
    return machines, numbers[1:]
