"""Whether draws of samples are secret, as frequent as claimed, and independent of each other.

Amplification by subsampling holds against an adversary who does not know what is drawn. Keys are made by
`Keys.draw` as for a run, and what is drawn is read through the supply of a run.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries
from mu2mpi.audit.check import Check
from mu2mpi.audit.transfers import MACHINES, ROUNDS, RandomImages
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.keys import Keys
from mu2mpi.execution.plan import resolve
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.samples import make_supply
from mu2mpi.federation.sampling import Poisson, Sampling
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.noise import derive_key
from mu2mpi.problem.base import Array

RUNS, MIN_RUNS = 1000, 32
"""Draws that are compared, each with a key of its own: fewer where counts need too much memory."""

SAMPLES = 400
"""Samples per machine of a run whose key is tested: many more than a batch takes."""

MAX_CELLS = 48
"""Machine-rounds that are compared pairwise; of more, so many are chosen at random."""

MAX_COUNTS = 1 << 23
"""Samples times machine-rounds times runs."""


class _Trials(NamedTuple):
    """Draws of a machine in a round: so many, of which each is a given sample with this probability."""

    number: int
    probability: float


def check_subsampling(canaries: Canaries, experiment: Experiment, root: bytes, risk: float) -> Check:
    """Test the keys of runs, and what is drawn with them.

    Parameters
    ----------
    canaries, experiment : Canaries, Experiment
        Samples of a method that draws them at random, and what makes keys.
    root : bytes
        32 bytes from which all keys follow.
    risk : float
        Largest probability of a complaint about faultless code.
    """
    refutations, alarms = _key_faults(experiment, root) + _run_faults(experiment), []
    cells, counts = _counts(canaries, experiment, root)
    runs, n_cells, samples = counts.shape
    trials = _trials(canaries.schedule.sampling)
    # Each sample of each cell and all of them, and two cells in a run or one in two runs, each on two sides.
    log_tests = math.log(2 * (n_cells * samples + 1 + n_cells * (n_cells + 1) / 2) / risk)
    sums = counts.sum(axis=0).ravel()
    sums, sizes = np.append(sums, sums.sum()), np.append(np.full(sums.size, runs), runs * sums.size)
    expected = sizes * trials.number * trials.probability
    excess = (sums - expected) / _limit(expected * (1 - trials.probability), 1.0, log_tests)
    if excess.max() > 1:
        refutations.append("samples are drawn more often than claimed")
    if excess.min() < -1:
        alarms.append("samples are drawn less often than claimed")
    within = np.triu(_dependence(counts, counts, trials, log_tests), 1)
    between = np.diagonal(_dependence(counts[::2], counts[1::2], trials, log_tests))
    names = [f"machine {machine} in round {t}" for t, machine in cells]
    if within.max() > 1:
        a, b = np.unravel_index(within.argmax(), within.shape)
        refutations.append(f"draws of {names[a]} and {names[b]} are not independent")
    if between.max() > 1:
        refutations.append(f"draws of {names[between.argmax()]} are not independent in two runs")
    strongest = max(float(within.max()), float(between.max()))
    summary = (
        f"Draws of samples: {runs:,} runs of {n_cells} machine-rounds; keys of {len(_roots(root))} roots. "
        f"Excess over the frequency that is claimed {excess.max():.3g}, deviation from independence "
        f"{strongest:.3g}, where more than 1 refutes."
    )
    return Check(summary, tuple(refutations), tuple(alarms))


def _key_faults(experiment: Experiment, root: bytes) -> list[str]:
    """Say which keys do not depend on all of what is secret, or are the same for several uses."""
    found = []
    drawn = [_draw(experiment, of_run) for of_run in _roots(root)]
    keys: dict[str, list[bytes]] = {
        "dealing": [one.dealing for one in drawn],
        "sampling": [one.sampling for one in drawn],
        "noise": [b"" if one.noise is None else one.noise.tobytes() for one in drawn],
    }
    for use, of_runs in keys.items():
        if len(set(of_runs)) < len(of_runs):
            found.append(f"the {use} key is the same in runs with different secrets")
    if len(set().union(*keys.values())) < sum(len(set(of_runs)) for of_runs in keys.values()):
        found.append("keys for noise, sampling and dealing are not different from each other")
    unseeded = [_draw(experiment.having(seed=None)).root for _ in range(2)]
    seeded = [_draw(experiment.having(seed=seed)).root for seed in range(2)]
    if unseeded[0] == unseeded[1] or seeded[0] == seeded[1]:
        found.append("runs without a common seed share their secret")
    return found


def _run_faults(experiment: Experiment) -> list[str]:
    """Say whether a run of the same method and trust mode draws samples with a key that is not its secret."""
    settings = {
        "method": experiment.method,
        "server": experiment.server,
        "machines": MACHINES,
        "rounds": ROUNDS,
        # Without noise, so that no account is computed.
        "rho": math.inf,
    }
    plan = resolve(Experiment.make(settings), RandomImages(MACHINES * SAMPLES), 1)
    simulation = Simulation(plan, Communicator())
    keys, dealt = simulation.keys, (range(MACHINES), plan.partition)
    expected = make_supply(plan.source, plan.schedule, keys.dealing, *dealt, keys.sampling)(1)
    if np.array_equal(simulation.machines.samples.features, expected.features):
        return []
    return ["a run draws its samples with another key than its secret one"]


def _roots(root: bytes) -> list[bytes]:
    """Return secrets of which each differs from the first in one byte."""
    flips = (int.from_bytes(root) ^ (1 << 8 * k) for k in range(len(root)))
    return [root, *(flipped.to_bytes(len(root)) for flipped in flips)]


def _draw(experiment: Experiment, root: bytes | None = None) -> Keys:
    return Keys.draw(experiment, Communicator(), root)


def _counts(canaries: Canaries, experiment: Experiment, root: bytes) -> tuple[list[tuple[int, int]], Array]:
    """Return rounds and machines, from 1 and 0, and how often each sample is drawn there in each run.

    The shape is (runs, cells, samples).
    """
    present = [(t, machine) for machine, rounds in enumerate(canaries.there) for t in rounds.tolist()]
    if len(present) > MAX_CELLS:
        chosen = np.random.default_rng(list(root)).choice(len(present), MAX_CELLS, replace=False)
        present = [present[k] for k in np.sort(chosen)]
    samples = canaries.schedule.sampling.owned
    runs = max(MIN_RUNS, min(RUNS, MAX_COUNTS // (len(present) * samples))) // 2 * 2
    places: tuple[NDArray[np.int64], ...] = tuple(np.array(present).T - [[1], [0]])
    counts = np.empty((runs, len(present), samples))
    for run in range(runs):
        sampling = _draw(experiment, derive_key(root, "draws", str(run))).sampling
        counts[run] = canaries.draws(range(canaries.schedule.machines), sampling)[places]
    return present, counts


def _trials(sampling: Sampling) -> _Trials:
    if isinstance(sampling, Poisson):
        return _Trials(1, sampling.probability)
    return _Trials(round(sampling.size(1)), 1 / sampling.owned)


def _dependence(counts: Array, others: Array, trials: _Trials, log_tests: float) -> Array:
    """Return how far samples shared by two cells are from what independence gives, over what may happen.

    Given the counts of the first cell, each draw of the second adds the count of the sample drawn. The shape
    is (cells, cells).
    """
    shared = np.einsum("ras,rbs->ab", counts, others, optimize=True)
    K, p = trials
    totals, squares = counts.sum(axis=(0, 2)), (counts**2).sum(axis=(0, 2))
    # With replacement, a bound: counts are no less than 0, so (sum of A)^2 is at least the sum of A^2.
    variances = K * squares * p * (1 - p)
    limits = _limit(variances, np.maximum(counts.max(axis=(0, 2)), 1.0), log_tests)
    deviations: Array = np.abs(shared - (K * p * totals)[:, np.newaxis]) / limits[:, np.newaxis]
    return deviations


def _limit(variance: Array, largest: float | Array, log_tests: float) -> Array:
    """Return what a sum of independent centred terms exceeds with probability exp(-log_tests) at most.

    By Bernstein's inequality, for terms that are no larger than `largest`.
    """
    linear = largest * log_tests / 3
    limit: Array = linear + np.sqrt(linear**2 + 2 * variance * log_tests)
    return limit
