"""Statistical verdicts on privacy claims from many runs, and the report of an audit."""

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import NamedTuple

import numpy as np

from mu2mpi.audit import evidence
from mu2mpi.audit.adversary_view import AuditRuns, Finding, adversary_observations, reveals_only_noisy_sums
from mu2mpi.audit.canaries import Canaries
from mu2mpi.audit.evidence import AUDIT_CONFIDENCE, ConfidenceInterval, MeanSeparation
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.text import text_table, wrap_paragraph
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.accounting.guarantee import Budget

MIN_RELATIVE_MU = 0.99  # share of the claimed mu that faithful runs reach; rounding takes the rest
# A claim is reached if mu is known within a share sqrt(TOLERANCE_TRIALS / trials) of it: 0.1 with 2,000
TOLERANCE_TRIALS = 20
EPSILON_BOUND_ERROR_SHARE = 0.25  # share of the error probability for the lower bound on epsilon


class SeparationEstimate(NamedTuple):
    """Estimated separation mu of the variants of a group of canaries, relative to the claim."""

    canary_group: str
    relative_mu: ConfidenceInterval  # mu relative to the largest that the claims permit
    claimed_budget: Budget  # weakest claim of the group


@dataclass(frozen=True)
class Verdict:
    """Verdict of an audit on the runs of one worst case: bounds on epsilon and estimates of mu."""

    case: str  # name of the worst case
    trials: int  # runs with each variant of a canary
    epsilon_lower_bound: float  # by counting alone
    claimed_budget: Budget  # claim for the canary of that bound
    # By the likelihood ratio of the claimed noise: all samples, and the groups with extreme separation
    overall_separation: SeparationEstimate | None = None
    largest_separation: SeparationEstimate | None = None
    smallest_separation: SeparationEstimate | None = None
    learned_separation: SeparationEstimate | None = None  # largest of single canaries
    is_claim_tight: bool = False  # whether faithful runs reach the claim

    @property
    def refutations(self) -> list[str]:
        """Descriptions of the privacy claims that the runs of this worst case refute."""
        texts, estimates = [], [*filter(None, (self.largest_separation, self.learned_separation))]
        for group, share, claim in sorted(estimates, key=lambda estimate: -estimate.relative_mu.low)[:1]:
            if share.low > 1:
                mu = f"mu is at least {share.low * claim.rho:.4g} where rho = {claim.rho:.4g} is claimed"
                texts.append(f"{mu} ({group}, {self.case})")
        if self.epsilon_lower_bound > (claim := self.claimed_budget).epsilon:
            bound = f"epsilon is at least {self.epsilon_lower_bound:.4g} where {claim.epsilon:.4g} is claimed"
            texts.append(f"{bound} at delta = {claim.delta:g} ({self.case})")
        return texts

    @property
    def alarms(self) -> list[str]:
        """Descriptions of claims far above the measured privacy loss, which suggest a fault."""
        estimate = self.smallest_separation if self.is_claim_tight else None
        if estimate is None or estimate.relative_mu.high >= MIN_RELATIVE_MU:
            return []
        group, share, claim = estimate
        reached, required = share.high * claim.rho, MIN_RELATIVE_MU * claim.rho
        return [f"mu is at most {reached:.4g} where {required:.4g} must be reached ({group}, {self.case})"]

    def is_decided(self, max_trials: int) -> bool:
        """Whether the claim is refuted, known not to be reached, or reached by mu of all samples."""
        reached, tolerance = self.overall_separation, math.sqrt(TOLERANCE_TRIALS / max_trials)
        if self.refutations or self.alarms or reached is None or not self.is_claim_tight:
            return bool(self.refutations or self.alarms)
        return reached.relative_mu.low >= 1 - tolerance and reached.relative_mu.high <= 1 + tolerance


def evaluate_runs(runs: AuditRuns, budget: Budget, error_probability: float) -> Verdict:
    """Attack all canaries in audited runs, and judge the privacy claims of each."""
    error_probability *= runs.error_share
    canaries, variants = runs.canaries, runs.canary_variants
    # Runs come in pairs of opposite variants. Discriminants are learned on some and judged on the others.
    n_learning = len(variants) // 4 * 2
    scores, learned_scores = _canary_scores(runs, n_learning)
    claims, counting_error = canaries.claimed_budgets(budget), EPSILON_BOUND_ERROR_SHARE * error_probability
    # By counting, for the canary of largest learned separation
    separation = MeanSeparation(learned_scores[:n_learning], variants[:n_learning])
    k = int(np.argmax(separation.mu / [claim.rho for claim in claims]))
    halves = (np.split(values[:, k], [n_learning]) for values in (learned_scores, variants))
    learning, judged = ([score[~second], score[second]] for score, second in zip(*halves, strict=True))
    bound = evidence.epsilon_lower_bound(learning, judged, claims[k].delta, counting_error), claims[k]
    constants, mechanism = canaries.constants, canaries.constants.mechanism
    if constants.batching.subsampling or mechanism.stated_rho is None or not mechanism.reveals_messages:
        return Verdict(canaries.case.name, len(variants) // 2, *bound)
    names, groups = _canary_groups(canaries)
    # Two ends of an interval for each group, and one for each learned separation.
    error_each = (error_probability - counting_error) / (2 * len(groups) + len(canaries))
    allowed = np.array([claim.rho for claim in claims]) * _expected_rho_shares(canaries)
    weights = groups * allowed / (groups @ allowed**2)[:, np.newaxis]
    weakest = [max(compress(claims, group), key=lambda claim: claim.rho) for group in groups]
    shares = MeanSeparation(scores, variants).weighted_sums(weights, error_each)
    estimates = list(map(SeparationEstimate, names, shares, weakest))
    separation = MeanSeparation(learned_scores[n_learning:], variants[n_learning:])
    learned_shares = separation.weighted_sums(np.diag(1 / allowed), error_each)
    single = map(SeparationEstimate, names[-len(canaries) :], learned_shares, claims)
    return Verdict(
        canaries.case.name,
        len(variants) // 2,
        *bound,
        overall_separation=estimates[0],
        largest_separation=max(estimates, key=lambda estimate: estimate.relative_mu.low),
        smallest_separation=min(estimates, key=lambda estimate: estimate.relative_mu.high),
        learned_separation=max(single, key=lambda estimate: estimate.relative_mu.low),
        is_claim_tight=reveals_only_noisy_sums(constants),
    )


def _canary_scores(runs: AuditRuns, n_learning: int) -> tuple[FloatArray, FloatArray]:
    """Return scores of runs for each canary by known and by learned discriminants; (runs, canaries)."""
    canaries, variants = runs.canaries, runs.canary_variants
    known, learned = np.empty(variants.shape), np.empty(variants.shape)
    stacked = [np.vstack(arrays) for arrays in zip(runs.observations, runs.canary_effects, strict=True)]
    for machine in np.unique(canaries.machines):
        combined = adversary_observations(canaries.constants, stacked, machine)
        numbers, moves = np.split(combined, [len(variants)])
        rest = numbers - variants @ moves
        rest -= rest.mean(axis=0)
        own = canaries.machines == machine
        discriminants = evidence.fisher_discriminants(rest[:n_learning], moves[own])
        for scores, weights in ((known, moves[own]), (learned, discriminants)):
            effect = np.einsum("kp,kp->k", weights, moves[own])
            scores[:, own] = rest @ weights.T + variants[:, own] * effect
    return known, learned


def _expected_rho_shares(canaries: Canaries) -> FloatArray:
    """Return the share of the claimed rho that correct runs reach, per canary."""
    constants = canaries.constants
    separation, shares = partial(canaries.case.increment_separation, constants), []
    n = constants.sums_per_round
    for machine, messages in zip(canaries.machines.tolist(), canaries.message_rounds, strict=True):
        fraction, numbers = canaries.mechanism(machine).rho_fraction, messages
        if not constants.problem.trust_mode.is_central:
            # The accountant numbers the rounds in which a machine participates.
            numbers = (np.searchsorted(canaries.participation_rounds[machine], messages) + 1).tolist()
        if canaries.affects_later_rounds:
            shares.append(separation(messages[0]) * fraction(numbers[0], numbers[-1]))
        else:
            each = zip(messages, numbers, strict=True)
            shares.append(math.hypot(*(separation(t) * fraction(n * k - n + 1, n * k) for t, k in each)))
    return np.array(shares)


def _canary_groups(canaries: Canaries) -> tuple[list[str], FloatArray]:
    """Return names and indicator vectors of canary groups: all, by machine, by round, and single."""
    machines, rounds = canaries.machines.tolist(), canaries.rounds.tolist()
    labels = [f"machine {i}, round {t}" for i, t in zip(machines, rounds, strict=True)]
    named = dict(zip(labels, np.eye(len(machines)), strict=True))
    groups = {"all samples": np.ones(len(machines))}
    groups |= {f"machine {i}": canaries.machines == i for i in sorted(set(machines))}
    groups |= {f"round {t}": canaries.rounds == t for t in sorted(set(rounds))}
    groups |= named
    return list(groups), np.array(list(groups.values()), dtype=float)


@dataclass(frozen=True)
class AuditReport:
    """Report of an audit: privacy claims, and verdicts and findings on them."""

    setup: str  # method and options of the runs, without the defaults
    experiment: Experiment  # makes the claims
    max_trials: int  # runs with each variant of a canary
    verdicts: list[Verdict]  # one for each worst case
    findings: list[Finding]  # one for each further attack

    @property
    def refutations(self) -> list[str]:
        """Descriptions of all privacy claims that the audit refutes."""
        outcomes: list[Verdict | Finding] = [*self.verdicts, *self.findings]
        return [text for outcome in outcomes for text in outcome.refutations]

    @property
    def alarms(self) -> list[str]:
        """Descriptions of findings that correct code would not produce, but that refute no claim."""
        outcomes: list[Verdict | Finding] = [*self.verdicts, *self.findings]
        return [text for outcome in outcomes for text in outcome.alarms]

    @property
    def failures(self) -> list[str]:
        """Texts of all refutations and alarms of the audit, with the trust mode."""
        server = f"{self.experiment.server} server"
        refuted = [f"the claim of privacy is refuted: {server}: {text}" for text in self.refutations]
        return refuted + [f"alarm: {server}: {text}" for text in self.alarms]

    def to_text(self) -> str:
        """Return the audit report as text: setup, a table of claims and estimates, and findings."""
        run = self.experiment
        cases = f"{len(self.verdicts)} worst case{'s' if len(self.verdicts) > 1 else ''}"
        heading = (
            f"{run.server.capitalize()} server: {self.setup}{run.machines} machines, {run.rounds} rounds, "
            f"up to {self.max_trials:,} runs with each variant of a sample, {cases}."
        )
        header = ["", "claimed: at most", "must be reached", "reached", f"{AUDIT_CONFIDENCE:.0%} confidence"]
        table = textwrap.indent(text_table(header, list(map(self._verdict_rows, self.verdicts))), "  ")
        paragraphs = [finding.summary for finding in self.findings if finding.summary]
        paragraphs += [f"Refuted: {text}." for text in self.refutations]
        paragraphs += [f"Alarm: {text}." for text in self.alarms]
        if not self.failures:
            paragraphs.append("Nothing is refuted, and there is no alarm.")
        return "\n\n".join([wrap_paragraph(heading), table, *map(wrap_paragraph, paragraphs)])

    def _verdict_rows(self, verdict: Verdict) -> list[list[str]]:
        delta = self.experiment.delta
        rows = [[f"{verdict.case.capitalize()}: {verdict.trials:,} runs", *[""] * 4]]
        for name, estimate, is_required in (
            ("mu of all samples", verdict.overall_separation, verdict.is_claim_tight),
            ("largest mu: {}", verdict.largest_separation, verdict.is_claim_tight),
            ("smallest mu: {}", verdict.smallest_separation, verdict.is_claim_tight),
            ("learned mu: {}", verdict.learned_separation, False),
        ):
            if estimate is not None:
                rho = estimate.claimed_budget.rho
                required = f"{MIN_RELATIVE_MU * rho:.4g}" if is_required else ""
                reached = _interval_text(rho * value for value in estimate.relative_mu)
                rows.append([name.format(estimate.canary_group), f"{rho:.4g}", required, *reached])
        at_delta = f"epsilon at delta = {delta:g}"
        if (overall := verdict.overall_separation) is not None:
            mus = (max(overall.claimed_budget.rho * value, 0.0) for value in overall.relative_mu)
            reached = _interval_text(epsilon_exact(mu, delta) for mu in mus)
            rows.append([f"{at_delta}, from mu", f"{overall.claimed_budget.epsilon:.4g}", "", *reached])
        bound = f"at least {verdict.epsilon_lower_bound:.4g}"
        return [*rows, [f"{at_delta}, by counting", f"{verdict.claimed_budget.epsilon:.4g}", "", "", bound]]


def _interval_text(values: Iterable[float]) -> list[str]:
    estimate, low, high = values
    return [f"{estimate:.4g}", f"{low:.4g} to {high:.4g}"]
