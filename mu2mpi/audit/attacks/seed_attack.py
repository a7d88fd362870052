"""Attack on random subsampling: secrecy of its keys, inclusion frequencies, and independence of batches."""

import math

import numpy as np

from mu2mpi.audit.adversary_view import AttackContext, Finding
from mu2mpi.audit.canaries import BOUNDARY_INDICES, CLIPPED_CASE, Canaries, CanarySource
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import RunKeys, resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.batching import Batching, PoissonBatches, ReplacementBatches
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.privacy.noise.noise_stream import derive_key

MAX_KEY_TEST_RUNS = 1000  # runs with a key each
MIN_KEY_TEST_RUNS = 32  # runs where counts need too much memory for more
MAX_TESTED_MACHINE_ROUNDS = 48
MAX_INCLUSION_ELEMENTS = 1 << 23  # runs times machine-rounds times samples
# Batching by random subsampling with so much entropy that no two batches coincide
HIGH_ENTROPY_BATCHINGS: dict[str, Batching] = {
    "poisson": PoissonBatches(samples_per_machine=256, rounds=1, max_batch_size=256, probability=0.5),
    "replacement": ReplacementBatches(samples_per_machine=2**35, max_batch_size=4, rounds=1),
}


def attack_applies(constants: RunConstants) -> bool:
    """Whether the batches of the audited runs are subsampled at random."""
    return bool(constants.batching.subsampling)


def run_attack(context: AttackContext) -> Finding:
    """Test the keys and batches of subsampling, inclusion frequencies and pairs of machine-rounds."""
    canaries = Canaries(context.constants, CLIPPED_CASE, derive_key(context.root_key, "dealing"))
    root_key, batching = derive_key(context.root_key, "draws"), context.constants.batching
    refutations, alarms = _run_key_faults(context.experiment, root_key), list[str]()
    refutations += _batch_faults(batching.subsampling, root_key)
    counts = _inclusion_counts(canaries, context.experiment, root_key)
    runs, machine_rounds, samples = counts.shape
    # Each of the trials selects a given sample with probability p.
    trials, p = round(batching.batch_size(1)), 1 / samples
    if isinstance(batching, PoissonBatches):
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


def _run_key_faults(experiment: Experiment, root_key: bytes) -> list[str]:
    """Describe run keys that are equal for different secrets, purposes or runs."""
    faults = []
    # Each secret differs from the first in one byte.
    flips = (int.from_bytes(root_key) ^ (1 << 8 * k) for k in range(len(root_key)))
    secrets = [root_key, *(flip.to_bytes(len(root_key)) for flip in flips)]
    run_keys = [_create_run_keys(experiment, secret) for secret in secrets]
    noises = {b"" if keys.noise is None else keys.noise.tobytes() for keys in run_keys}
    uses = [{keys.partition for keys in run_keys}, {keys.batching for keys in run_keys}, noises]
    if min(map(len, uses)) < len(run_keys):
        faults.append("a key is the same in runs with different secrets")
    if len(set.union(*uses)) < sum(map(len, uses)):
        faults.append("keys for noise, subsampling and partition are not different from each other")
    for seeds in ((None, None), (0, 1)):
        if len({_create_run_keys(experiment.replace(seed=seed)).root for seed in seeds}) == 1:
            faults.append("runs without a common seed share their secret")
    settings = {"method": experiment.method, "server": experiment.server, "machines": 3, "rounds": 8}
    # Without noise, no accountant runs.
    plan = resolve_plan(Experiment.from_settings(settings | {"rho": math.inf}), CanarySource(1200, 1200), 1)
    simulation, hosted_machines = Simulation(plan, Communicator()), range(3)
    keys, data = simulation.run_keys, (plan.source, plan.constants)
    reader = make_sample_reader(*data, keys.partition, hosted_machines, plan.partition, keys.batching)
    if not np.array_equal(simulation.machines.samples.labels, reader(1).labels):
        faults.append("a run subsamples with another key than its secret one")
    return faults


def _batch_faults(subsampling: str, root_key: bytes) -> list[str]:
    """Return a description of equal batches in different machine-rounds, up to machine and round 2^32."""
    if (batching := HIGH_ENTROPY_BATCHINGS.get(subsampling)) is None:
        return []
    pairs = [(i, t) for i in BOUNDARY_INDICES for t in BOUNDARY_INDICES[1:]]
    indices, sizes = batching.batches(root_key, *np.array(pairs).T)
    batches = np.split(indices, np.cumsum(sizes)[:-1])
    repeated = len(pairs) - len({batch.tobytes() for batch in batches})
    return [f"{repeated:,} batches of random samples were used before"] * (repeated > 0)


def _create_run_keys(experiment: Experiment, root_key: bytes | None = None) -> RunKeys:
    return RunKeys.create(experiment, Communicator(), root_key)


def _inclusion_counts(canaries: Canaries, experiment: Experiment, root_key: bytes) -> FloatArray:
    """Count the inclusions of each sample in batches; shape (runs, machine-rounds, samples)."""
    by_machine = enumerate(canaries.participation_rounds)
    present = [(t - 1, machine) for machine, rounds in by_machine for t in rounds.tolist()]
    if len(present) > MAX_TESTED_MACHINE_ROUNDS:
        generator = np.random.default_rng(list(root_key))
        selected = generator.choice(len(present), MAX_TESTED_MACHINE_ROUNDS, replace=False)
        present = [present[k] for k in np.sort(selected)]
    samples, machine_rounds = canaries.constants.batching.samples_per_machine, tuple(np.array(present).T)
    runs = max(MIN_KEY_TEST_RUNS, min(MAX_KEY_TEST_RUNS, MAX_INCLUSION_ELEMENTS // (len(present) * samples)))
    counts = np.empty((runs, len(present), samples))
    hosted_machines = range(canaries.constants.problem.machines)
    for run in range(runs):
        batch_key = _create_run_keys(experiment, derive_key(root_key, "draws", str(run))).batching
        counts[run] = canaries.inclusion_counts(hosted_machines, batch_key)[machine_rounds]
    return counts


def _bernstein_bound(variance: FloatArray, max_term: float | FloatArray, evidence: float) -> FloatArray:
    """Bernstein's bound on a sum of independent centred terms, exceeded with probability exp(-evidence)."""
    linear = max_term * evidence / 3
    return np.asarray(linear + np.sqrt(linear**2 + 2 * variance * evidence))
