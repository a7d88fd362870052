"""Attack on random subsampling: inclusion frequencies, and independence of batches."""

import math

import numpy as np

from mu2mpi.audit.adversary_view import AttackContext, Finding
from mu2mpi.audit.canaries import CLIPPED_CASE, Canaries
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import RunKeys
from mu2mpi.federation.batching import PoissonBatches, SampledMachines
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.noise.noise_stream import derive_key

MAX_TESTED_RUNS = 1000  # runs with a key each
MIN_TESTED_RUNS = 32  # runs where counts need too much memory for more
MAX_TESTED_MACHINE_ROUNDS = 48
MAX_INCLUSION_ELEMENTS = 1 << 23  # runs times machine-rounds times samples


def attack_applies(constants: RunConstants) -> bool:
    """Whether the batches of the audited runs are subsampled at random."""
    return bool(constants.batching.subsampling)


def run_attack(context: AttackContext) -> Finding:
    """Test the inclusion frequencies of samples, and pairs of machine-rounds."""
    canaries = Canaries(context.constants, CLIPPED_CASE, derive_key(context.root_key, "dealing"))
    root_key, batching = derive_key(context.root_key, "draws"), context.constants.batching
    refutations, alarms = list[str](), list[str]()
    counts = _inclusion_counts(canaries, context.experiment, root_key)
    runs, machine_rounds, samples = counts.shape
    # Each of the trials selects a given sample with probability p.
    trials, p = round(batching.batch_size(1)), 1 / samples
    if isinstance(batching, PoissonBatches | SampledMachines):
        trials, p = 1, batching.probability
    # Two-sided tests of each sample of each machine-round, of all, and of each pair of machine-rounds.
    tests = 2 * (machine_rounds * samples + 1 + math.comb(machine_rounds, 2))
    threshold = math.log(tests / context.error_probability)
    sums = counts.sum(axis=0).ravel()
    sums, sizes = np.append(sums, sums.sum()), np.append(np.full(sums.size, runs), runs * sums.size)
    expected = sizes * trials * p
    excess = (sums - expected) / _bernstein_bound(expected * (1 - p), 1.0, threshold)
    if excess.max() > 1:
        refutations.append("samples are drawn more often than claimed")
    if excess.min() < -1:
        alarms.append("samples are drawn less often than claimed")
    # Given the counts A of one machine-round, each draw of another adds the count of its sample. With
    # replacement, (sum of A)^2 is at least the sum of A^2.
    shared = np.einsum("ras,rbs->ab", counts, counts, optimize=True)
    totals, squares = counts.sum(axis=(0, 2)), np.square(counts).sum(axis=(0, 2))
    largest = np.maximum(counts.max(axis=(0, 2)), 1.0)
    limits = _bernstein_bound(trials * squares * p * (1 - p), largest, threshold)
    dependence = np.triu(np.abs(shared - (trials * p * totals)[:, np.newaxis]) / limits[:, np.newaxis], 1)
    if dependence.max() > 1:
        refutations.append("batches of two machines, or of two rounds, are not independent")
    summary = (
        f"Random batches: {runs:,} runs of {machine_rounds} machine-rounds. Excess over the claimed "
        f"frequency {excess.max():.3g}, dependence {dependence.max():.3g}, where more than 1 refutes."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _inclusion_counts(canaries: Canaries, experiment: Experiment, root_key: bytes) -> FloatArray:
    """Count the inclusions of each sample in batches; shape (runs, machine-rounds, samples)."""
    by_machine = enumerate(canaries.participation_rounds)
    present = np.array([(t - 1, machine) for machine, rounds in by_machine for t in rounds.tolist()])
    present = np.random.default_rng(list(root_key)).permutation(present)[:MAX_TESTED_MACHINE_ROUNDS]
    samples, machine_rounds = canaries.constants.batching.samples_per_machine, tuple(present.T)
    runs = max(MIN_TESTED_RUNS, min(MAX_TESTED_RUNS, MAX_INCLUSION_ELEMENTS // (len(present) * samples)))
    counts = np.empty((runs, len(present), samples))
    hosted_machines = range(canaries.constants.problem.machines)
    for run in range(runs):
        run_key = derive_key(root_key, "draws", str(run))
        batch_key = RunKeys.create(experiment, Communicator(), run_key).batching
        counts[run] = canaries.inclusion_counts(hosted_machines, batch_key)[machine_rounds]
    return counts


def _bernstein_bound(variance: FloatArray, max_term: float | FloatArray, evidence: float) -> FloatArray:
    """Bernstein's bound on a sum of independent centred terms, exceeded with probability exp(-evidence)."""
    linear = max_term * evidence / 3
    return np.asarray(linear + np.sqrt(linear**2 + 2 * variance * evidence))
