"""Many runs of the algorithm itself on two neighbouring data sets, and what an adversary makes of them."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mu2mpi.algorithm.machine import Machines, Supply
from mu2mpi.algorithm.schedule import Schedule
from mu2mpi.algorithm.server import make_server
from mu2mpi.audit.evidence import best_statistic, choose_threshold, epsilon_bound, gaussian_mu
from mu2mpi.audit.finding import Finding
from mu2mpi.audit.neighbours import (
    CANARY_MACHINE,
    FEATURE_TYPE,
    FEWEST_MACHINES,
    FEWEST_ROUNDS,
    WORST_CASE,
    Neighbour,
    neighbours,
)
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.errors import InputError
from mu2mpi.experiment import Experiment
from mu2mpi.parallel import Communicator, block
from mu2mpi.preparation import plan
from mu2mpi.privacy.noise import derive_key, key_words, root_key
from mu2mpi.timing import Stopwatch
from mu2mpi.warmup import kernel_calls, start_compiler

__all__ = ["audit", "play"]

MOST_SAMPLES = 1 << 20
"""Of each machine: as many as a schedule may ask for."""

POISSON_SAMPLES = 1
"""Of each machine with dp-sgd: which of the others are drawn hides the canary as noise does, so there are
few. Where all draw the same number, one sample would be in every message, and there are as many as rounds."""

SHARE = 1 / 3
"""Of all samples that are drawn by dp-sgd, unless a batch is given."""

SupplyOf = Callable[[int, NDArray[np.uint32]], Supply]

DRAWS = 200
"""Runs without noise that show what the canary changes on average, where it is drawn or not."""

TRIALS_PER_NUMBER = 4
"""With fewer runs for each number that is seen, the adversary cannot learn how they vary together."""


def audit(experiment: Experiment, trials: int, communicator: Communicator) -> Finding:
    """Attack the algorithm of an experiment and bound its privacy from below.

    Half of the runs teach the adversary what the noise is like, the other half judge it. The runs are
    divided among the ranks; what is found does not depend on how many there are.

    Parameters
    ----------
    experiment : Experiment
        Its data, clipping norm and diameter are replaced by the audit's own.
    trials : int
        Runs on each of the two data sets.
    communicator : Communicator
        The ranks.

    Returns
    -------
    Finding
        The same on every rank.

    Raises
    ------
    InputError
        If the experiment leaves nothing to attack, or nobody who could.
    """
    with communicator.together():
        settled = _settle(experiment)
        machines, rounds = settled.machines or 0, settled.rounds or 0
        each = MOST_SAMPLES
        if settled.pieces.draws:
            each = POISSON_SAMPLES if settled.method == "dp-sgd" else rounds
        schedule = plan(settled, Neighbour(machines * each, None), machines)
    start_compiler()
    communicator.fill_cache(kernel_calls(np.dtype(FEATURE_TYPE), schedule.method.estimator))
    secret = os.urandom(32) if settled.seed is None else root_key(settled.seed)
    root = communicator.share(derive_key(secret, "audit", settled.server))
    data = _data(schedule, derive_key(root, "dealing"))
    noiseless = replace(schedule, sigma=0.0)
    draws = range(DRAWS if schedule.method.draws else 1)
    keys = [key_words(derive_key(root, "difference", str(n))) for n in draws]
    one, other = (see(noiseless, supplies, keys).mean(axis=0) for supplies in data)
    with communicator.together():
        if trials < TRIALS_PER_NUMBER * one.size:
            raise InputError(
                f"{trials} trials cannot show how the {one.size} numbers vary that are seen in each; give at "
                f"least {TRIALS_PER_NUMBER * one.size}, or fewer machines or rounds"
            )
    mine = block(trials, communicator.size, communicator.rank)
    seen = [
        see(schedule, supplies, [key_words(derive_key(root, "noise", f"data {k}, run {n}")) for n in mine])
        for k, supplies in enumerate(data)
    ]
    everyones = communicator.gather(seen)
    finding = None
    if everyones is not None:
        # With more ranks than runs, some have seen nothing.
        everyones = [of_rank for of_rank in everyones if of_rank[0].size]
        without, with_canary = (np.vstack([of_rank[k] for of_rank in everyones]) for k in range(2))
        finding = _judge(settled, schedule, without, with_canary, other - one)
    shared: Finding = communicator.share(finding)
    return shared


def _settle(experiment: Experiment) -> Experiment:
    """Return the experiment with the audit's own settings, if there is something to attack."""
    if math.isinf(experiment.rho):
        raise InputError("rho = inf claims nothing that could be audited; give a finite --rho")
    # Of hidden iterates the adversary sees the last, and machines do not matter.
    fewest_machines = 1 if experiment.pieces.hides_iterates else FEWEST_MACHINES
    for name, fewest in (("machines", fewest_machines), ("rounds", FEWEST_ROUNDS)):
        value = getattr(experiment, name)
        if value is None or value < fewest:
            raise InputError(
                f"{name} = {value}: an audit needs at least {fewest}, so that somebody sees what becomes of "
                "the replaced sample"
            )
    own = dict(WORST_CASE)
    if experiment.method == "dp-sgd" and experiment.batch is None:
        own["batch"] = max(1, round(SHARE * (experiment.machines or 1) * POISSON_SAMPLES))
    return experiment.model_copy(update=own)


def _data(schedule: Schedule, dealing: bytes) -> tuple[SupplyOf, SupplyOf]:
    """Return what a machine gets in a run from the one data set, and from the other."""
    fixed = neighbours(schedule, dealing)

    def supply_of(which: int, machine: int, key: NDArray[np.uint32]) -> Supply:
        if not schedule.method.draws:
            return fixed[which][machine]
        return neighbours(schedule, dealing, derive_key(key.tobytes(), "sampling"))[which][machine]

    return partial(supply_of, 0), partial(supply_of, 1)


def see(schedule: Schedule, supplies: SupplyOf, keys: Sequence[NDArray[np.uint32]]) -> NDArray[np.float64]:
    """Run the algorithm once with each noise key, and return what the adversary sees.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    supplies : callable
        Takes a machine and a noise key, and returns what it gets in the run. Each machine has a rank of its
        own, so that its messages can be told apart.
    keys : sequence of ndarray of uint32, shape (8,)
        Noise keys.

    Returns
    -------
    ndarray of float64, shape (len(keys), numbers)
        All that crosses the wire where the adversary of the server's trust mode can see it, or the output
        of a method that protects nothing else.
    """

    def watch(rank: RecordedRank) -> NDArray[np.float64]:
        rows = []
        for key in keys:
            rank.sent.clear()
            rank.received.clear()
            output = play(schedule, supplies(rank.rank, key), rank, key)
            if schedule.method.hides_iterates:
                rows.append(output if rank.rank == 0 else np.empty(0))
            else:
                rows.append(_seen_of(rank, schedule.server))
        return np.array(rows)

    return np.hstack(on_ranks(schedule.machines, watch))


def play(
    schedule: Schedule, supply: Supply, communicator: Communicator, key: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Take part in one run, as the rank that hosts the machine of its own number.

    Parameters
    ----------
    schedule : Schedule
        Constants of the run.
    supply : callable
        What the machine gets.
    communicator : Communicator
        As many ranks as there are machines.
    key : ndarray of uint32, shape (8,)
        Noise key.

    Returns
    -------
    ndarray of float64, shape (d,)
        The output.
    """
    rank, is_trusted = communicator.rank, schedule.server == "trusted"
    machines = Machines(schedule, range(rank, rank + 1), supply, None if is_trusted else key)
    server = make_server(schedule, communicator, key if is_trusted and rank == 0 else None)
    clock = Stopwatch()
    for t in range(1, schedule.rounds + 1):
        server.round(t, machines, clock)
    return server.iterates.output.ravel()


def _seen_of(rank: RecordedRank, server: str) -> NDArray[np.float64]:
    """Return what the adversary sees of a rank: what it sends, or where the server is trusted, receives.

    Against an untrusted server and all machines, nothing that leaves a machine may tell of its samples.
    With a trusted one, the adversary is every machine but the canary's, and rank 0 is the server.
    """
    arrays = rank.received if server == "trusted" else rank.sent
    if server == "trusted" and rank.rank in (0, CANARY_MACHINE):
        arrays = []
    return np.concatenate([np.empty(0), *(array.ravel() for array in arrays)])


def _judge(
    experiment: Experiment,
    schedule: Schedule,
    without: NDArray[np.float64],
    with_canary: NDArray[np.float64],
    difference: NDArray[np.float64],
) -> Finding:
    """Learn from the first half of the runs how to tell the data sets apart; see in the other how well."""
    half = len(without) // 2
    weights = best_statistic(without[:half], with_canary[:half], difference)
    scores = without @ weights, with_canary @ weights
    threshold = choose_threshold(scores[0][:half], scores[1][:half], experiment.delta)
    judged = scores[0][half:], scores[1][half:]
    return Finding(
        method=schedule.method,
        sampling=schedule.sampling,
        server=experiment.server,
        machines=experiment.machines or 0,
        rounds=experiment.rounds or 0,
        trials=len(without),
        delta=experiment.delta,
        rho=schedule.rho,
        epsilon=experiment.target_epsilon,
        mu=gaussian_mu(*judged),
        epsilon_bound=epsilon_bound(*judged, threshold, experiment.delta),
    )
