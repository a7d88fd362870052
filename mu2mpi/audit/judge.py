"""What an adversary makes of many runs: who tells which samples apart, and how well."""

import math
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.attack import Runs
from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.evidence import Interval, Separations, best_statistics, choose_threshold, epsilon_bound
from mu2mpi.audit.runs import view
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.problem.base import Array

LEAST = 0.99
"""Share of what is claimed that has to be reached. Clipping leaves room for rounding, at most so much."""

COUNTING = 0.25  # share of the risk that is left to the bound on epsilon


class Reading(NamedTuple):
    """How well some samples were told apart."""

    what: str
    share: Interval  # mu relative to what the claims allow for them
    claim: Budget  # of the machine about which most may be told


@dataclass(frozen=True)
class Judgement:
    """What runs on one kind of worst case say."""

    words: str  # the worst case
    epsilon_bound: float  # what epsilon exceeds, by counting alone
    counted: Budget  # what is claimed where that was counted
    overall: Reading | None = None  # all samples, by the likelihood ratio of the noise that is claimed
    most: Reading | None = None  # those that tell the most in this way: all, of a machine, of a round, or one
    least: Reading | None = None  # those that tell the least
    learnt: Reading | None = None  # the one that tells the most if nothing of the noise is taken on trust

    @property
    def refutations(self) -> list[str]:
        """What contradicts the claim, in words."""
        found, told = [], [reading for reading in (self.most, self.learnt) if reading is not None]
        for what, share, claim in sorted(told, key=lambda reading: -reading.share.low)[:1]:
            if share.low > 1:
                mu = f"mu is at least {share.low * claim.rho:.4g} where rho = {claim.rho:.4g} is claimed"
                found.append(f"{mu} ({what}, {self.words})")
        if self.epsilon_bound > (claim := self.counted).epsilon:
            epsilon = f"epsilon is at least {self.epsilon_bound:.4g} where {claim.epsilon:.4g} is claimed"
            found.append(f"{epsilon} at delta = {claim.delta:g} ({self.words})")
        return found

    @property
    def alarms(self) -> list[str]:
        """What faithful runs would have to reach, if they reach all that is claimed."""
        if (least := self.least) is None or least.share.high >= LEAST:
            return []
        rho = least.claim.rho
        mu = f"mu is at most {least.share.high * rho:.4g} where {LEAST * rho:.4g} must be reached"
        return [f"{mu} ({least.what}, {self.words})"]


def judge(runs: Runs, budget: Budget, risk: float) -> Judgement:
    """Attack every sample, given all the others; all that is found errs with probability `risk` at most.

    The budget is that of machines without one of their own.
    """
    canaries, kinds = runs.canaries, runs.kinds
    # Runs come in pairs of opposite kinds. Of what was learnt, some runs teach, and the others judge.
    taught = len(kinds) // 4 * 2
    scores, learnt_scores = _scores(runs, taught)
    claims = canaries.claims(budget)
    counted = canaries.case.words, *_by_counting(learnt_scores, kinds, taught, claims, COUNTING * risk)
    if canaries.schedule.sampling.chance:
        return Judgement(*counted)
    names, groups = _groups(canaries)
    # Each group has two ends, and each canary one more for what was learnt.
    each = (1 - COUNTING) * risk / (2 * len(groups) + len(canaries))
    allowed = np.array([claim.rho for claim in claims]) * _shares(canaries)
    weights = groups * allowed / (groups @ allowed**2)[:, np.newaxis]
    whose = [max(compress(claims, group), key=lambda claim: claim.rho) for group in groups]
    readings = list(map(Reading, names, Separations(scores, kinds).combined(weights, each), whose))
    learnt = Separations(learnt_scores[taught:], kinds[taught:]).combined(np.diag(1 / allowed), each)
    of_one = map(Reading, names[-len(canaries) :], learnt, claims)
    return Judgement(
        *counted,
        overall=readings[0] if canaries.schedule.mechanism.shows_messages else None,
        most=max(readings, key=lambda reading: reading.share.low),
        least=min(readings, key=lambda reading: reading.share.high),
        learnt=max(of_one, key=lambda reading: reading.share.low),
    )


def _scores(runs: Runs, taught: int) -> tuple[Array, Array]:
    """Return statistics of every run for every canary, as told and as learnt, shape (runs, canaries).

    The other samples are known to the adversary, and taken out.
    """
    canaries, kinds = runs.canaries, runs.kinds
    told, learnt = np.empty(kinds.shape), np.empty(kinds.shape)
    both = [np.vstack(arrays) for arrays in zip(runs.seen, runs.differences, strict=True)]
    for machine in np.unique(canaries.machines):
        watched = view(canaries.schedule, both, machine)
        numbers, moves = np.split(watched, [len(kinds)])
        rest = numbers - kinds @ moves
        rest -= rest.mean(axis=0)
        of = canaries.machines == machine
        for scores, weights in ((told, moves[of]), (learnt, best_statistics(rest[:taught], moves[of]))):
            own = np.einsum("kp,kp->k", weights, moves[of])
            scores[:, of] = rest @ weights.T + kinds[:, of] * own
    return told, learnt


def _by_counting(
    scores: Array, kinds: Kinds, taught: int, claims: list[Budget], risk: float
) -> tuple[float, Budget]:
    """Return a bound on epsilon, for the canary that tells the most in the runs that are not judged."""
    claimed = np.array([claim.rho for claim in claims])
    k = int(np.argmax(Separations(scores[:taught], kinds[:taught]).mu / claimed))
    parts = zip(np.split(scores[:, k], [taught]), np.split(kinds[:, k], [taught]), strict=True)
    known, judged = ((of_runs[~second], of_runs[second]) for of_runs, second in parts)
    delta = claims[k].delta
    return epsilon_bound(*judged, choose_threshold(*known, delta), delta, risk), claims[k]


def _shares(canaries: Canaries) -> Array:
    """Return the share of rho that faithful runs reach for each canary; for hidden iterates just 1."""
    schedule = canaries.schedule
    if not schedule.mechanism.shows_messages:
        return np.ones(len(canaries))
    reach, found = partial(canaries.case.reach, schedule), []
    for machine, messages in zip(canaries.machines.tolist(), canaries.messages, strict=True):
        share, numbers = canaries.mechanism(machine).share, messages
        if not schedule.trust.is_central:
            # Its account numbers the rounds in which it is there.
            numbers = (np.searchsorted(canaries.there[machine], messages) + 1).tolist()
        if canaries.stays:
            found.append(reach(messages[0]) * share(numbers[0], numbers[-1]))
        else:
            each = zip(messages, numbers, strict=True)
            found.append(math.hypot(*(reach(t) * share(k, k) for t, k in each)))
    return np.array(found)


def _groups(canaries: Canaries) -> tuple[list[str], Array]:
    """Return names of groups of canaries, and who is in them: all, by machine, by round, and one by one.

    Of hidden iterates each canary reaches another share, so there each is by itself.
    """
    machines, rounds = canaries.machines.tolist(), canaries.rounds.tolist()
    alone = [f"machine {i}, round {t}" for i, t in zip(machines, rounds, strict=True)]
    named = dict(zip(alone, np.eye(len(machines)), strict=True))
    if canaries.schedule.mechanism.shows_messages:
        together = {"all samples": np.ones(len(machines))}
        together |= {f"machine {i}": canaries.machines == i for i in sorted(set(machines))}
        together |= {f"round {t}": canaries.rounds == t for t in sorted(set(rounds))}
        named = together | named
    return list(named), np.array(list(named.values()), dtype=float)
