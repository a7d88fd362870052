"""Noise multiplier of methods that sample at random, measured by an adversary who knows what is drawn.

Given what is drawn, each message is a Gaussian mechanism: what a linear statistic of it shows of a sample
depends on the noise alone. From the noise follows the epsilon of secret draws, by an account of the audit.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.account import epsilon_at_least, round_pair, theorem_multiplier
from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.check import Check
from mu2mpi.audit.evidence import best_statistics
from mu2mpi.audit.runs import noiseless, see, view
from mu2mpi.federation.sampling import WithReplacement
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.privacy.noise import derive_key
from mu2mpi.problem.base import Array

MAX_RUNS = 1000
"""Runs whose noise is measured."""

MIN_SENSITIVITY = 0.99
"""Share of the clipping norm that increments reach; the rest is left for rounding to the grid."""


class Multiplier(NamedTuple):
    """Measured noise multiplier, sigma / C, of some rounds."""

    where: str
    estimate: float
    low: float
    high: float


def check_multiplier(
    canaries: Canaries, seen: list[Array], kinds: Kinds, keys: Sequence[bytes], budget: Budget, risk: float
) -> Check:
    """Measure the noise multiplier, and compare it with what is stated and what the claim needs.

    Parameters
    ----------
    canaries, seen, kinds, keys
        Runs of a method that samples at random, as of `mu2mpi.audit.runs.see`.
    budget : Budget
        Claim for machines without a budget of their own.
    risk : float
        Largest probability of a complaint about faultless code.
    """
    mechanism, sampling = canaries.mechanism(int(canaries.machines[0])), canaries.schedule.sampling
    told, learnt = _measure(canaries, seen, kinds[:MAX_RUNS], keys[:MAX_RUNS], risk)
    everywhere, claim = told[0], canaries.claims(budget)[0]
    stated = mechanism.sigma / mechanism.clip_norm
    refutations, alarms = [], []
    least = min(told + learnt, key=lambda one: one.high)
    most = max(told, key=lambda one: one.low)
    if least.high < stated:
        refutations.append(
            f"noise multiplier is at most {least.high:.4g} where {stated:.4g} is stated ({least.where})"
        )
    if most.low > stated / MIN_SENSITIVITY:
        alarms.append(
            f"noise multiplier is at least {most.low:.4g} where {stated:.4g} is stated ({most.where})"
        )
    summary = (
        f"Noise multiplier, given what is drawn: {everywhere.estimate:.4g} ({everywhere.low:.4g} to "
        f"{everywhere.high:.4g}) where {stated:.4g} is stated"
    )
    rounds = len(told) - 1
    if mechanism.stated_rho is not None:
        rho = 2 * math.sqrt(rounds) / everywhere.high
        summary += f"; it amounts to rho of at least {rho:.4g} where {claim.rho:.4g} is claimed."
        if rho > claim.rho:
            refutations.append(f"rho is at least {rho:.4g} where {claim.rho:.4g} is claimed")
        return Check(summary, tuple(refutations), tuple(alarms))
    own = mechanism.guarantee().epsilon(claim.delta)
    claimed = f"where {claim.epsilon:.4g} is claimed at delta = {claim.delta:g}"
    if own > claim.epsilon * (1 + 1e-9):
        refutations.append(f"the noise is accounted for as epsilon = {own:.4g} {claimed}")
    if isinstance(sampling, WithReplacement) and mechanism.name == "replacement":
        asked = theorem_multiplier(sampling, rounds, claim.epsilon, claim.delta)
        if everywhere.high < asked:
            alarms.append(
                f"noise multiplier is at most {everywhere.high:.4g} where the theorem asks for {asked:.4g}"
            )
    pair = round_pair(sampling, everywhere.high)
    if pair is None:
        return Check(f"{summary}.", tuple(refutations), tuple(alarms))
    epsilon = epsilon_at_least(pair, rounds, claim.delta)
    if epsilon > claim.epsilon:
        refutations.append(f"epsilon is at least {epsilon:.4g} {claimed} (by the noise multiplier)")
    summary += f"; it amounts to epsilon of at least {epsilon:.4g} {claimed}."
    return Check(summary, tuple(refutations), tuple(alarms))


def _measure(
    canaries: Canaries, seen: list[Array], kinds: Kinds, keys: Sequence[bytes], risk: float
) -> tuple[list[Multiplier], list[Multiplier]]:
    """Return noise multipliers of all rounds together and of each, for the noise as claimed and as learnt."""
    rounds, noise, moves = _noise_and_moves(canaries, seen, kinds, keys)
    each = risk / (2 * (1 + len(rounds)) + len(rounds))
    names = [f"round {t}" for t in rounds]
    taught = len(noise) // 2
    squares = _inverse_squares(noise, moves, moves)
    learnt = _inverse_squares(noise[taught:], best_statistics(noise[:taught], moves), moves)
    told = [
        _multiplier("all rounds", squares.ravel(), each),
        *(_multiplier(name, of_round, each) for name, of_round in zip(names, squares.T, strict=True)),
    ]
    return told, [
        _multiplier(f"{name}, as learnt", of_round, each)
        for name, of_round in zip(names, learnt.T, strict=True)
    ]


def _noise_and_moves(
    canaries: Canaries, seen: list[Array], kinds: Kinds, keys: Sequence[bytes]
) -> tuple[list[int], Array, Array]:
    """Return the rounds that are seen, the noise of all numbers, and how one draw of the canary moves them.

    Shapes are (runs, numbers) and (rounds, numbers). Runs are repeated without noise, also with the canary of
    the other kind.
    """
    schedule, machine, runs = canaries.schedule, int(canaries.machines[0]), len(keys)
    both = see(noiseless(schedule), canaries, np.concatenate([kinds, ~kinds]), [*keys, *keys])
    stacked = [np.vstack([of_rank[:runs], quiet]) for of_rank, quiet in zip(seen, both, strict=True)]
    noisy, known, flipped = np.split(view(schedule, stacked, machine), 3)
    signs = np.where(kinds, 1.0, -1.0)
    hosted = range(machine, machine + 1)
    drawn = np.array([canaries.draws(hosted, derive_key(key, "sampling"))[:, 0, 0] for key in keys])
    rounds = [t for t in canaries.there[machine].tolist() if t <= schedule.rounds - schedule.trust.is_central]
    rounds = [t for t in rounds if drawn[:, t - 1].any()]
    moves = np.linalg.lstsq(drawn[:, np.array(rounds) - 1], signs * (known - flipped), rcond=None)[0]
    return rounds, noisy - known, moves


def _inverse_squares(noise: Array, weights: Array, moves: Array) -> Array:
    """Return squares of linear statistics of the noise in units of what the canary moves them by."""
    scores: Array = noise @ weights.T / np.einsum("tp,tp->t", weights, moves)
    return scores**2


def _multiplier(where: str, squares: Array, risk: float) -> Multiplier:
    """Return a noise multiplier from squares of normals, with limits of which each errs with this risk.

    Sums of squares are chi-square (Wilson and Hilferty, "The distribution of chi-square", 1931). Increments
    of the two kinds of the canary lie 2 C apart.
    """
    variance, mean = 2 / (9 * squares.size), float(squares.mean())
    margin = NormalDist().inv_cdf(1 - risk) * math.sqrt(variance)
    low, high = (2 * math.sqrt(mean / (1 - variance + end) ** 3) for end in (margin, -margin))
    return Multiplier(where, 2 * math.sqrt(mean), low, high)
