"""Noise multiplier of methods that sample at random, given what is drawn, and its epsilon."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.adversary_view import Finding, Runs, View, noiseless, see, tells_sums, view as view_of
from mu2mpi.audit.evidence import best_statistics
from mu2mpi.core.errors import InputError
from mu2mpi.federation.batching import Sampling
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.accounting.pld import LEAST
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonReleases
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ExactReplacement
from mu2mpi.privacy.noise.noise_stream import derive_key

MAX_RUNS = 1000  # whose noise is measured
MIN_SENSITIVITY = 0.99  # share of the clipping norm that increments reach; the rest is for rounding


class Measured(NamedTuple):
    """Noise multiplier, sigma / C, of some rounds, with confidence limits."""

    where: str
    estimate: float
    low: float
    high: float


def applies(constants: RunConstants) -> bool:
    """Whether samples are drawn at random, and sums are seen."""
    return bool(constants.sampling.chance) and tells_sums(constants)


def run(view: View) -> Finding:
    """Measure the noise of the runs of the first worst case."""
    canaries, (told, learnt) = view.runs[0].canaries, _measure(view.runs[0], view.risk)
    overall, rounds = told[0], len(told) - 1
    mechanism, claim = canaries.mechanism(int(canaries.machines[0])), canaries.claims(view.budget)[0]
    stated, refutations, alarms = mechanism.sigma / mechanism.clip_norm, [], []
    least, most = min(told + learnt, key=lambda one: one.high), max(told, key=lambda one: one.low)
    where = f"where {stated:.4g} is stated"
    if least.high < stated:
        refutations.append(f"noise multiplier is at most {least.high:.4g} {where} ({least.where})")
    if most.low > stated / MIN_SENSITIVITY:
        alarms.append(f"noise multiplier is at least {most.low:.4g} {where} ({most.where})")
    if mechanism.stated_rho is not None:
        name, shown, claimed = "rho", 2 * math.sqrt(rounds) / overall.high, claim.rho
    else:
        name, claimed = f"epsilon at delta = {claim.delta:g}", claim.epsilon
        shown = _epsilon(canaries.constants.sampling, overall.high, rounds, claim.delta)
        if (own := mechanism.guarantee().epsilon(claim.delta)) > claimed * (1 + 1e-9):
            refutations.append(f"the noise is accounted for as {name} of {own:.4g}, not {claimed:.4g}")
    if shown > claimed:
        refutations.append(f"the noise amounts to {name} of {shown:.4g} where {claimed:.4g} is claimed")
    summary = (
        f"Noise multiplier, given what is drawn: {overall.estimate:.4g} ({overall.low:.4g} to "
        f"{overall.high:.4g}) {where}; it is {name} of {shown:.4g} where {claimed:.4g} is claimed."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _epsilon(sampling: Sampling, multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon of secret draws, or 0 if there is no account of them, or dp-accounting is not installed."""
    accounts = {"poisson": PoissonReleases, "replacement": ExactReplacement}
    try:
        account = accounts[sampling.chance]
        losses = account.losses(max(multiplier, LEAST), sampling.owned, sampling.size(1), rounds)
        epsilon = float(losses.get_epsilon_for_delta(delta))  # not by the mechanism's own word
    except (KeyError, InputError):
        return 0.0
    return epsilon if math.isfinite(epsilon) else 0.0


def _measure(runs: Runs, risk: float) -> tuple[list[Measured], list[Measured]]:
    """Measure the noise of all rounds and of each, as claimed and as learnt from half of the runs."""
    canaries, kinds, keys = runs.canaries, runs.kinds[:MAX_RUNS], runs.keys[:MAX_RUNS]
    constants, machine = canaries.constants, int(canaries.machines[0])
    both = see(noiseless(constants), canaries, np.concatenate([kinds, ~kinds]), [*keys, *keys])
    stacked = [np.vstack([noisy[: len(keys)], of]) for noisy, of in zip(runs.seen, both, strict=True)]
    noisy, known, flipped = np.split(view_of(constants, stacked, machine), 3)
    hosted = range(machine, machine + 1)
    drawn = np.array([canaries.draws(hosted, derive_key(key, "sampling"))[:, 0, 0] for key in keys])
    last = constants.rounds - constants.task.trust.is_central
    rounds = [t for t in canaries.there[machine].tolist() if t <= last and drawn[:, t - 1].any()]
    moved, noise = np.where(kinds, 1.0, -1.0) * (known - flipped), noisy - known
    # By what one draw of the canary moves all numbers, shape (rounds, numbers).
    moves = np.linalg.lstsq(drawn[:, np.array(rounds) - 1], moved, rcond=None)[0]
    names, taught = [f"round {t}" for t in rounds], len(noise) // 2
    each = risk / (2 * (1 + len(rounds)) + len(rounds))
    told, learnt = (
        ((of_runs @ weights.T / np.einsum("tp,tp->t", weights, moves)) ** 2).T
        for of_runs, weights in ((noise, moves), (noise[taught:], best_statistics(noise[:taught], moves)))
    )
    as_told = zip(["all rounds", *names], [told, *told], strict=True)
    as_learnt = ((f"{name}, as learnt", of_round) for name, of_round in zip(names, learnt, strict=True))
    of_all, of_taught = ([_measured(*one, each) for one in of] for of in (as_told, as_learnt))
    return of_all, of_taught


def _measured(where: str, squares: Array, risk: float) -> Measured:
    """Noise multiplier from squares of normals, with limits by Wilson and Hilferty (1931)."""
    variance, mean = 2 / (9 * squares.size), float(squares.mean())
    margin = NormalDist().inv_cdf(1 - risk) * math.sqrt(variance)
    low, high = (2 * math.sqrt(mean / (1 - variance + end) ** 3) for end in (margin, -margin))
    return Measured(where, 2 * math.sqrt(mean), low, high)
