"""Attack on the noise multiplier under random subsampling, given the batches."""

import math
from functools import partial
from statistics import NormalDist

import numpy as np

from mu2mpi.audit.adversary_view import (
    AttackContext,
    AuditRuns,
    Finding,
    adversary_observations,
    noiseless_constants,
    observe_runs,
    reveals_only_noisy_sums,
)
from mu2mpi.audit.evidence import ConfidenceInterval, fisher_discriminants
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.accounting.pld import MIN_NOISE_MULTIPLIER
from mu2mpi.privacy.mechanisms._subsampled import SubsampledMechanism
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism
from mu2mpi.privacy.noise.noise_stream import derive_key
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

MAX_RUNS = 1000  # runs whose noise is measured
MIN_RELATIVE_SENSITIVITY = 0.99  # norm of increments relative to the clipping norm; rounding takes the rest


def attack_applies(constants: RunConstants) -> bool:
    """Whether batches are subsampled at random and noisy sums are observed."""
    return bool(constants.batching.subsampling) and reveals_only_noisy_sums(constants)


def run_attack(context: AttackContext) -> Finding:
    """Compare the noise multiplier, estimated from runs of the first worst case, with the stated one."""
    canaries = context.runs[0].canaries
    error_probability = context.error_probability * context.runs[0].error_share
    known, learned = _estimate_noise_multipliers(context.runs[0], error_probability)
    overall, rounds = known["all rounds"], len(known) - 1
    neighbours = canaries.constants.problem.neighbours
    mechanism = canaries.mechanism(int(canaries.machines[0]))
    claim = canaries.claimed_budgets(context.budget)[0]
    stated, refutations, alarms = mechanism.sigma / mechanism.clip_norm, [], []
    smallest_name, smallest = min((known | learned).items(), key=lambda item: item[1].high)
    largest_name, largest = max(known.items(), key=lambda item: item[1].low)
    where = f"where {stated:.4g} is stated"
    if smallest.high < stated:
        refutations.append(f"noise multiplier is at most {smallest.high:.4g} {where} ({smallest_name})")
    if largest.low > stated / MIN_RELATIVE_SENSITIVITY:
        alarms.append(f"noise multiplier is at least {largest.low:.4g} {where} ({largest_name})")
    if mechanism.stated_rho is not None:
        name, claimed = "rho", claim.rho
        measured = UNIT_SENSITIVITIES[neighbours] * math.sqrt(rounds) / overall.high
    else:
        name, claimed = f"epsilon at delta = {claim.delta:g}", claim.epsilon
        sampled = canaries.constants.batching, overall.high, rounds
        measured = _subsampled_epsilon(*sampled, claim.delta, neighbours)
        if (own := mechanism.guarantee().epsilon(claim.delta)) > claimed * (1 + 1e-9):
            refutations.append(f"the noise is accounted for as {name} of {own:.4g}, not {claimed:.4g}")
    if measured > claimed:
        refutations.append(f"the noise amounts to {name} of {measured:.4g} where {claimed:.4g} is claimed")
    summary = (
        f"Noise multiplier, given the batches: {overall.estimate:.4g} ({overall.low:.4g} to "
        f"{overall.high:.4g}) {where}; it is {name} of {measured:.4g} where {claimed:.4g} is claimed."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _subsampled_epsilon(
    batching: Batching, noise_multiplier: float, rounds: int, delta: float, neighbours: str
) -> float:
    """Return epsilon at delta with amplification by subsampling; 0 if no accountant is available."""
    is_replacement = batching.subsampling == "replacement"
    mechanism: type[SubsampledMechanism] = ReplacementExactMechanism if is_replacement else PoissonMechanism
    try:
        sizes = batching.samples_per_machine, batching.batch_size(1), rounds
        multiplier = max(noise_multiplier, MIN_NOISE_MULTIPLIER)
        losses = mechanism.compose_pld(neighbours, multiplier, *sizes)
        epsilon = float(losses.get_epsilon_for_delta(delta))  # independent of the mechanism's own claim
    except InputError:
        return 0.0
    return epsilon if math.isfinite(epsilon) else 0.0


def _estimate_noise_multipliers(
    runs: AuditRuns, error_probability: float
) -> list[dict[str, ConfidenceInterval]]:
    """Return multipliers by known discriminants, and by those learned on half the runs, by rounds."""
    canaries, variants, keys = runs.canaries, runs.canary_variants[:MAX_RUNS], runs.run_keys[:MAX_RUNS]
    constants, machine = canaries.constants, int(canaries.machines[0])
    both_variants = np.concatenate([variants, ~variants])
    noiseless = observe_runs(noiseless_constants(constants), canaries, both_variants, [*keys, *keys])
    by_rank = zip(runs.observations, noiseless, strict=True)
    stacked = [np.vstack([noisy[: len(keys)], signal]) for noisy, signal in by_rank]
    noisy, own, flipped = np.split(adversary_observations(constants, stacked, machine), 3)
    hosted_machines, batch_keys = range(machine, machine + 1), [derive_key(key, "sampling") for key in keys]
    inclusions = np.array([canaries.inclusion_counts(hosted_machines, key)[:, 0, 0] for key in batch_keys])
    last = constants.rounds - constants.problem.trust_mode.is_central
    active = canaries.participation_rounds[machine].tolist()
    rounds = [t for t in active if t <= last and inclusions[:, t - 1].any()]
    moved, noise = np.where(variants, 1.0, -1.0) * (own - flipped), noisy - own
    # Effect of one inclusion of the canary on the observations, shape (rounds, numbers)
    moves = np.linalg.lstsq(inclusions[:, np.array(rounds) - 1], moved, rcond=None)[0]
    names, n_learning = [f"round {t}" for t in rounds], len(noise) // 2
    error_each = error_probability / (2 * (1 + len(rounds)) + len(rounds))
    discriminants = fisher_discriminants(noise[:n_learning], moves)
    known, learned = (
        ((values @ weights.T / np.einsum("tp,tp->t", weights, moves)) ** 2).T
        for values, weights in ((noise, moves), (noise[n_learning:], discriminants))
    )
    unit = UNIT_SENSITIVITIES[constants.problem.neighbours]  # of moves, in clipping norms
    estimate = partial(_estimate_noise_multiplier, error_probability=error_each, unit=unit)
    by_round = zip(["all rounds", *names], map(estimate, [known, *known]), strict=True)
    return [dict(by_round), {f"{n}, learned": estimate(row) for n, row in zip(names, learned, strict=True)}]


def _estimate_noise_multiplier(
    squared_scores: FloatArray, error_probability: float, unit: float
) -> ConfidenceInterval:
    """Estimate a noise multiplier from squared scores, with limits by Wilson and Hilferty (1931)."""
    variance, mean = 2 / (9 * squared_scores.size), float(squared_scores.mean())
    margin = NormalDist().inv_cdf(1 - error_probability) * math.sqrt(variance)
    low, high = (unit * math.sqrt(mean / (1 - variance + end) ** 3) for end in (margin, -margin))
    return ConfidenceInterval(unit * math.sqrt(mean), low, high)
