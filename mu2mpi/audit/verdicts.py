"""What an adversary makes of many runs: who tells which samples apart, how well, and the report of that."""

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.adversary_view import Finding, Runs, view
from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.evidence import (
    CONFIDENCE,
    Interval,
    Separations,
    best_statistics,
    choose_threshold,
    epsilon_bound,
)
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.text import as_paragraph, as_text
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.accounting.guarantee import Budget

LEAST = 0.99  # share of the claim that has to be reached: clipping leaves room for rounding
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
    """Attack every sample, given all the others; all that is found errs with probability `risk` at most."""
    canaries, kinds = runs.canaries, runs.kinds
    # Runs come in pairs of opposite kinds. Of what was learnt, some runs teach, and the others judge.
    taught = len(kinds) // 4 * 2
    scores, learnt_scores = _scores(runs, taught)
    claims = canaries.claims(budget)
    counted = canaries.case.words, *_by_counting(learnt_scores, kinds, taught, claims, COUNTING * risk)
    if canaries.constants.sampling.chance:
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
        overall=readings[0] if canaries.constants.mechanism.shows_messages else None,
        most=max(readings, key=lambda reading: reading.share.low),
        least=min(readings, key=lambda reading: reading.share.high),
        learnt=max(of_one, key=lambda reading: reading.share.low),
    )


def _scores(runs: Runs, taught: int) -> tuple[Array, Array]:
    """Return statistics of every run for every canary, as told and as learnt, less what other samples add."""
    canaries, kinds = runs.canaries, runs.kinds
    told, learnt = np.empty(kinds.shape), np.empty(kinds.shape)
    both = [np.vstack(arrays) for arrays in zip(runs.seen, runs.differences, strict=True)]
    for machine in np.unique(canaries.machines):
        watched = view(canaries.constants, both, machine)
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
    constants = canaries.constants
    if not constants.mechanism.shows_messages:
        return np.ones(len(canaries))
    reach, found = partial(canaries.case.reach, constants), []
    for machine, messages in zip(canaries.machines.tolist(), canaries.messages, strict=True):
        share, numbers = canaries.mechanism(machine).share, messages
        if not constants.task.trust.is_central:
            # Its account numbers the rounds in which it is there.
            numbers = (np.searchsorted(canaries.there[machine], messages) + 1).tolist()
        if canaries.stays:
            found.append(reach(messages[0]) * share(numbers[0], numbers[-1]))
        else:
            each = zip(messages, numbers, strict=True)
            found.append(math.hypot(*(reach(t) * share(k, k) for t, k in each)))
    return np.array(found)


def _groups(canaries: Canaries) -> tuple[list[str], Array]:
    """Names and members of groups of canaries: all, by machine, by round, and one by one."""
    machines, rounds = canaries.machines.tolist(), canaries.rounds.tolist()
    alone = [f"machine {i}, round {t}" for i, t in zip(machines, rounds, strict=True)]
    named = dict(zip(alone, np.eye(len(machines)), strict=True))
    if canaries.constants.mechanism.shows_messages:
        together = {"all samples": np.ones(len(machines))}
        together |= {f"machine {i}": canaries.machines == i for i in sorted(set(machines))}
        together |= {f"round {t}": canaries.rounds == t for t in sorted(set(rounds))}
        named = together | named
    return list(named), np.array(list(named.values()), dtype=float)


@dataclass(frozen=True)
class Report:
    """Claims about a server, and what the runs of an audit say of them."""

    words: str  # what was run, but for the default, and what of it was attacked
    reaches: bool  # whether faithful runs reach all that is claimed
    experiment: Experiment  # what makes the claims, of an epsilon at its delta too
    trials: int  # runs with each sample of either kind
    judgements: list[Judgement]  # of worst cases
    findings: list[Finding]  # of further attacks

    @property
    def refutations(self) -> list[str]:
        """What contradicts the claim, in words."""
        parts: list[Judgement | Finding] = [*self.judgements, *self.findings]
        return [words for part in parts for words in part.refutations]

    @property
    def alarms(self) -> list[str]:
        """What cannot be if the code does what it says, though it refutes no claim."""
        parts: list[Judgement | Finding] = [*(self.judgements if self.reaches else ()), *self.findings]
        return [words for part in parts for words in part.alarms]

    @property
    def complaints(self) -> list[str]:
        """Both, with what they are and of whom."""
        who = f"{self.experiment.server} server"
        return [
            *(f"the claim of privacy is refuted: {who}: {words}" for words in self.refutations),
            *(f"alarm: {who}: {words}" for words in self.alarms),
        ]

    def describe(self) -> str:
        """Say what was done, and put what was found next to what is claimed; no line break at the end."""
        run = self.experiment
        heading = (
            f"{run.server.capitalize()} server: {self.words}{run.machines} machines, {run.rounds} rounds, "
            f"{self.trials:,} runs with each sample of either kind, {len(self.judgements)} worst "
            f"case{'s' if len(self.judgements) > 1 else ''}."
        )
        header = ["", "claimed: at most", "must be reached", "reached", f"{CONFIDENCE:.0%} confidence"]
        table = textwrap.indent(as_text(header, list(map(self._rows, self.judgements))), "  ")
        said = [finding.summary for finding in self.findings if finding.summary]
        said += [f"Refuted: {words}." for words in self.refutations]
        said += [f"Alarm: {words}." for words in self.alarms]
        if not self.complaints:
            said.append("Nothing is refuted, and there is no alarm.")
        return "\n\n".join([as_paragraph(heading), table, *map(as_paragraph, said)])

    def _rows(self, found: Judgement) -> list[list[str]]:
        """Return what was found in a worst case, under its name."""
        delta = self.experiment.delta
        rows = [[found.words.capitalize(), *[""] * 4]]
        for name, reading, must in (
            ("mu of all samples", found.overall, self.reaches),
            ("mu of the most telling: {}", found.most, self.reaches),
            ("mu of the least telling: {}", found.least, self.reaches),
            ("mu as learnt: {}", found.learnt, False),
        ):
            if reading is not None:
                rho = reading.claim.rho
                least = f"{LEAST * rho:.4g}" if must else ""
                reached = _reached(rho * value for value in reading.share)
                rows.append([name.format(reading.what), f"{rho:.4g}", least, *reached])
        at_delta = f"epsilon at delta = {delta:g}"
        if (overall := found.overall) is not None:
            mus = (max(overall.claim.rho * value, 0.0) for value in overall.share)
            reached = _reached(epsilon_exact(mu, delta) for mu in mus)
            rows.append([f"{at_delta}, from mu", f"{overall.claim.epsilon:.4g}", "", *reached])
        bound = f"at least {found.epsilon_bound:.4g}"
        return [*rows, [f"{at_delta}, by counting", f"{found.counted.epsilon:.4g}", "", "", bound]]


def _reached(values: Iterable[float]) -> list[str]:
    """Return an estimate, and between which values the truth lies, in words."""
    estimate, low, high = values
    return [f"{estimate:.4g}", f"{low:.4g} to {high:.4g}"]
