"""Draws of samples: their keys are secret, and they are as frequent as claimed and independent."""

import math

import numpy as np

from mu2mpi.audit.adversary_view import Finding, View
from mu2mpi.audit.canaries import BOUNDARIES, CLIPPED, Canaries, Numbered
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import Keys, resolve
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.batching import Poisson, Sampling, WithReplacement
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.sample_reader import make_supply
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.noise.noise_stream import derive_key

RUNS, MIN_RUNS = 1000, 32  # each with a key of its own: fewer where counts need too much memory
MAX_CELLS, MAX_COUNTS = 48, 1 << 23  # machine-rounds, and samples times these times runs
# Sampling with so much entropy that no two batches are the same, for each kind of random sampling.
STREAMS: dict[str, Sampling] = {
    "poisson": Poisson(owned=256, rounds=1, most=256, probability=0.5),
    "replacement": WithReplacement(owned=2**35, most=4, rounds=1),
}


def applies(constants: RunConstants) -> bool:
    """Whether samples are drawn at random."""
    return bool(constants.sampling.chance)


def run(view: View) -> Finding:
    """Compare keys, batches, frequencies and pairs of machine-rounds."""
    canaries = Canaries(view.constants, CLIPPED, derive_key(view.root, "dealing"))
    root, sampling = derive_key(view.root, "draws"), view.constants.sampling
    refutations, alarms = _key_faults(view.experiment, root) + _batch_faults(sampling.chance, root), []
    counts = _counts(canaries, view.experiment, root)
    runs, cells, samples = counts.shape
    # Each draw, of so many, is a given sample with this probability.
    draws, p = round(sampling.size(1)), 1 / samples
    if isinstance(sampling, Poisson):
        draws, p = 1, sampling.probability
    # Each sample of each cell and all of them, and two cells in a run, each on two sides.
    log_tests = math.log(2 * (cells * samples + 1 + cells * (cells - 1) / 2) / view.risk)
    sums = counts.sum(axis=0).ravel()
    sums, sizes = np.append(sums, sums.sum()), np.append(np.full(sums.size, runs), runs * sums.size)
    expected = sizes * draws * p
    excess = (sums - expected) / _limit(expected * (1 - p), 1.0, log_tests)
    if excess.max() > 1:
        refutations.append("samples are drawn more often than claimed")
    if excess.min() < -1:
        alarms.append("samples are drawn less often than claimed")
    # Given the counts A of one cell, each draw of another adds the count of the sample drawn. With
    # replacement, (sum of A)^2 is at least the sum of A^2.
    shared = np.einsum("ras,rbs->ab", counts, counts, optimize=True)
    totals, squares = counts.sum(axis=(0, 2)), np.square(counts).sum(axis=(0, 2))
    limits = _limit(draws * squares * p * (1 - p), np.maximum(counts.max(axis=(0, 2)), 1.0), log_tests)
    dependence = np.triu(np.abs(shared - (draws * p * totals)[:, np.newaxis]) / limits[:, np.newaxis], 1)
    if dependence.max() > 1:
        refutations.append("draws of two machines, or in two rounds, are not independent")
    summary = (
        f"Draws of samples: {runs:,} runs of {cells} machine-rounds. Excess over the frequency that is "
        f"claimed {excess.max():.3g}, dependence {dependence.max():.3g}, where more than 1 refutes."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _key_faults(experiment: Experiment, root: bytes) -> list[str]:
    """Say which keys do not depend on all of what is secret, are the same for several uses, or not used."""
    found = []
    # Each secret differs from the first in one byte.
    flips = (int.from_bytes(root) ^ (1 << 8 * k) for k in range(len(root)))
    drawn = [_draw(experiment, secret) for secret in (root, *(flip.to_bytes(len(root)) for flip in flips))]
    noises = {b"" if keys.noise is None else keys.noise.tobytes() for keys in drawn}
    uses = [{keys.dealing for keys in drawn}, {keys.sampling for keys in drawn}, noises]
    if min(map(len, uses)) < len(drawn):
        found.append("a key is the same in runs with different secrets")
    if len(set.union(*uses)) < sum(map(len, uses)):
        found.append("keys for noise, sampling and dealing are not different from each other")
    for seeds in ((None, None), (0, 1)):
        if len({_draw(experiment.having(seed=seed)).root for seed in seeds}) == 1:
            found.append("runs without a common seed share their secret")
    settings = {"method": experiment.method, "server": experiment.server, "machines": 3, "rounds": 8}
    # Without noise, so that no account is computed.
    plan = resolve(Experiment.make(settings | {"rho": math.inf}), Numbered(1200, 1200), 1)
    simulation, dealt = Simulation(plan, Communicator()), (range(3), plan.partition)
    keys = simulation.keys
    expected = make_supply(plan.source, plan.constants, keys.dealing, *dealt, keys.sampling)(1)
    if not np.array_equal(simulation.machines.samples.labels, expected.labels):
        found.append("a run draws its samples with another key than its secret one")
    return found


def _batch_faults(chance: str, root: bytes) -> list[str]:
    """Say whether machines or rounds share a batch, be their numbers small or large."""
    if (sampling := STREAMS.get(chance)) is None:
        return []
    cells = [(machine, t) for machine in BOUNDARIES for t in BOUNDARIES[1:]]
    takes = (sampling.take(root, range(machine, machine + 1), range(t, t + 1)) for machine, t in cells)
    repeated = len(cells) - len({taken.places.tobytes() for taken in takes})
    return [f"{repeated:,} batches of random samples were drawn before"] * (repeated > 0)


def _draw(experiment: Experiment, root: bytes | None = None) -> Keys:
    return Keys.draw(experiment, Communicator(), root)


def _counts(canaries: Canaries, experiment: Experiment, root: bytes) -> Array:
    """Return how often each sample is drawn in machine-rounds of each run: shape (runs, cells, samples)."""
    present = [(t - 1, machine) for machine, rounds in enumerate(canaries.there) for t in rounds.tolist()]
    if len(present) > MAX_CELLS:
        chosen = np.random.default_rng(list(root)).choice(len(present), MAX_CELLS, replace=False)
        present = [present[k] for k in np.sort(chosen)]
    samples, places = canaries.constants.sampling.owned, tuple(np.array(present).T)
    runs = max(MIN_RUNS, min(RUNS, MAX_COUNTS // (len(present) * samples)))
    counts, hosted = np.empty((runs, len(present), samples)), range(canaries.constants.task.machines)
    for run in range(runs):
        sampling = _draw(experiment, derive_key(root, "draws", str(run))).sampling
        counts[run] = canaries.draws(hosted, sampling)[places]
    return counts


def _limit(variance: Array, largest: float | Array, log_tests: float) -> Array:
    """Bernstein's bound on a sum of independent centred terms, which errs with exp(-log_tests)."""
    linear = largest * log_tests / 3
    limit: Array = linear + np.sqrt(linear**2 + 2 * variance * log_tests)
    return limit
