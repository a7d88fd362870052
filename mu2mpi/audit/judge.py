"""What an adversary makes of many runs: who tells which samples apart, and how well."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries
from mu2mpi.audit.evidence import Interval, Separations, best_statistics, choose_threshold, epsilon_bound
from mu2mpi.audit.runs import view
from mu2mpi.federation.schedule import Schedule

__all__ = ["Judgement", "Reading", "judge"]


COUNTING = 0.25
"""Share of the risk that is left to the bound on epsilon."""


@dataclass(frozen=True)
class Reading:
    """How well some samples were told apart.

    Attributes
    ----------
    what : str
        Which samples.
    share : Interval
        mu, relative to what the claim allows for them.
    """

    what: str
    share: Interval


@dataclass(frozen=True)
class Judgement:
    """What runs on one kind of worst case say.

    Attributes
    ----------
    overall : Reading or None
        All samples, by the likelihood ratio of the noise that is claimed; None where less is known of them.
    most, least : Reading or None
        Those that tell the most and the least in this way: all, those of a machine, those of a round, or one.
    learnt : Reading or None
        The one that tells the most by statistics that take nothing of the noise on trust.
    epsilon_bound : float
        What epsilon exceeds, by counting alone.
    """

    overall: Reading | None
    most: Reading | None
    least: Reading | None
    learnt: Reading | None
    epsilon_bound: float


@dataclass(frozen=True)
class Scores:
    """Statistics of every run for every canary, shape (runs, canaries): as told, and as learnt."""

    told: NDArray[np.float64]
    learnt: NDArray[np.float64]
    taught: int
    """How many runs taught the second; the others judge it."""


def judge(
    schedule: Schedule,
    canaries: Canaries,
    seen: list[NDArray[np.float64]],
    kinds: NDArray[np.bool_],
    differences: list[NDArray[np.float64]],
    delta: float,
    risk: float,
) -> Judgement:
    """Attack every sample, given all the others.

    Parameters
    ----------
    schedule : Schedule
        Constants of the runs.
    canaries : Canaries
        The samples.
    seen : list of ndarray of float64, shape (runs, numbers)
        What crossed the wire at each rank.
    kinds : ndarray of bool, shape (runs, canaries)
        Which canaries were of the second kind.
    differences : list of ndarray of float64, shape (canaries, numbers)
        By what this moves what is seen at each rank, without noise.
    delta : float
        At which epsilon is bounded.
    risk : float
        The probability that anything here errs.
    """
    scores = _scores(schedule, canaries, seen, kinds, differences)
    judged = slice(scores.taught, None)
    names, groups = _groups(schedule, canaries)
    bound = _by_counting(scores, kinds, delta, COUNTING * risk)
    if schedule.sampling.chance:
        return Judgement(None, None, None, None, bound)
    # Each group has two ends, and each canary one more for what was learnt.
    each = (1 - COUNTING) * risk / (2 * len(groups) + len(canaries))
    allowed = (schedule.mechanism.stated_rho or 0.0) * _shares(schedule, canaries)
    weights = groups * allowed / (groups @ allowed**2)[:, np.newaxis]
    told = Separations(scores.told, kinds).combined(weights, each)
    readings = [Reading(*pair) for pair in zip(names, told, strict=True)]
    alone = np.diag(1 / allowed)
    learnt = Separations(scores.learnt[judged], kinds[judged]).combined(alone, each)
    best = max(zip(names[-len(canaries) :], learnt, strict=True), key=lambda pair: pair[1].low)
    return Judgement(
        overall=readings[0] if schedule.mechanism.shows_messages else None,
        most=max(readings, key=lambda reading: reading.share.low),
        least=min(readings, key=lambda reading: reading.share.high),
        learnt=Reading(*best),
        epsilon_bound=bound,
    )


def _scores(
    schedule: Schedule,
    canaries: Canaries,
    seen: list[NDArray[np.float64]],
    kinds: NDArray[np.bool_],
    differences: list[NDArray[np.float64]],
) -> Scores:
    """Return the statistics: the other samples are known to the adversary, and taken out."""
    runs = len(kinds)
    # Runs come in pairs of opposite kinds.
    taught = runs // 4 * 2
    told, learnt = np.empty(kinds.shape), np.empty(kinds.shape)
    both = [np.vstack(arrays) for arrays in zip(seen, differences, strict=True)]
    for machine in np.unique(canaries.machines):
        watched = view(schedule, both, machine)
        numbers, moves = watched[:runs], watched[runs:]
        rest = numbers - kinds @ moves
        rest -= rest.mean(axis=0)
        of = canaries.machines == machine
        for scores, weights in (
            (told, moves[of]),
            (learnt, best_statistics(rest[:taught], moves[of])),
        ):
            own = np.einsum("kp,kp->k", weights, moves[of])
            scores[:, of] = rest @ weights.T + kinds[:, of] * own
    return Scores(told, learnt, taught)


def _by_counting(scores: Scores, kinds: NDArray[np.bool_], delta: float, risk: float) -> float:
    """Return a bound on epsilon, for the canary that tells the most in the runs that are not judged."""
    learning, judged = slice(scores.taught), slice(scores.taught, None)
    k = int(np.argmax(Separations(scores.learnt[learning], kinds[learning]).mu))
    values = [
        (scores.learnt[runs, k][~kinds[runs, k]], scores.learnt[runs, k][kinds[runs, k]])
        for runs in (learning, judged)
    ]
    return epsilon_bound(*values[1], choose_threshold(*values[0], delta), delta, risk)


def _shares(schedule: Schedule, canaries: Canaries) -> NDArray[np.float64]:
    """Return the share of rho that faithful runs reach for each canary; for hidden iterates just 1."""
    mechanism, reach = schedule.mechanism, canaries.case.reach
    if not mechanism.shows_messages:
        return np.ones(len(canaries))
    rounds = zip(canaries.rounds.tolist(), canaries.last_rounds.tolist(), strict=True)
    return np.array([reach(schedule, t) * mechanism.share(t, last) for t, last in rounds])


def _groups(schedule: Schedule, canaries: Canaries) -> tuple[list[str], NDArray[np.float64]]:
    """Return names of groups of canaries, and who is in them: all, by machine, by round, and one by one.

    Of hidden iterates each canary reaches another share, so there each is by itself.
    """
    machines, rounds = canaries.machines.tolist(), canaries.rounds.tolist()
    named = {
        f"machine {i}, round {t}": np.eye(len(machines))[k]
        for k, (i, t) in enumerate(zip(machines, rounds, strict=True))
    }
    if schedule.mechanism.shows_messages:
        together = {"all samples": np.ones(len(machines))}
        together |= {f"machine {i}": canaries.machines == i for i in sorted(set(machines))}
        together |= {f"round {t}": canaries.rounds == t for t in sorted(set(rounds))}
        named = together | named
    return list(named), np.array(list(named.values()), dtype=float)
