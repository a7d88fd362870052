"""Lower bounds on epsilon and mu from the scores of one run's canaries, each in or out by a fair coin.

The auditor guesses the coins of the canaries with the most extreme scores, and counts the right guesses. How
many guesses are made follows from the claim alone, not from the scores.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.evidence import clopper_pearson_upper
from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import rounded_down, rounded_up, text_table
from mu2mpi.results.canary_scores import CanaryScores, read_canary_scores, run_digest
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import canary_scores_path

CONFIDENCE = 0.95  # joint confidence in the three lower bounds
MAX_HALVINGS = 6  # all canaries, half of them, ..., are candidates for the number of guesses
MAX_BOUND = 1024.0  # largest bound that is searched
_NORMAL = NormalDist()


class Guesses(NamedTuple):
    """Number of canaries, of guesses of their coins, and of right guesses."""

    canaries: int
    made: int
    right: int


class LowerBounds(NamedTuple):
    """Lower bounds from one run: on mu if noise is independent over canaries, and without assumption."""

    independent_mu: float
    mu: float
    epsilon: float


def epsilon_p_value(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of as many right guesses under (epsilon, delta)-DP.

    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023: Theorem 5.2.
    """
    m, r, v = guesses
    k = np.arange(1, r + 1)
    log_choose = np.append(0.0, np.cumsum(np.log((r - k + 1) / k)))
    log_right, log_wrong = -np.logaddexp(0.0, [-epsilon, epsilon])
    binomial = np.exp(log_choose + np.arange(r + 1) * log_right + np.arange(r, -1, -1) * log_wrong)
    shortfall = max(np.cumsum(binomial[:v][::-1]) / np.arange(1, v + 1), default=1.0)
    return float(min(1.0, binomial[v:].sum() + 2 * m * delta * shortfall))


def is_mu_refuted(guesses: Guesses, mu: float, error: float) -> bool:
    """Whether mu-GDP gives so many right guesses with a probability less than `error`.

    For the probabilities p_i of i right guesses of k, flipping one of m coins gives, for any set of i,
    sum i p_i <= m F(sum (k - i + 1) p_(i - 1) / m), where F(a) = Phi(Phi^-1(a) + mu) is the largest
    probability of an event whose probability is a with the other coin: Mahloujifar, Melis and Chaudhuri,
    "Auditing f-differential privacy in one run", 2024. If P(v or more right) is `error`, the sets of all
    numbers from i on bound P(i - 1 or more right) from below, for i = v, v - 1, ... It cannot exceed 1.
    """
    m, k, v = guesses
    tail, larger_tails = error, 0.0  # P(i or more right), and the sum of these for numbers above i
    for i in range(v, 0, -1):
        share = (i * tail + larger_tails) / m
        least = m * _NORMAL.cdf(_NORMAL.inv_cdf(share) - mu) if share < 1 else m
        larger_tails += tail
        tail = max(tail, (larger_tails + least) / (k - i + 1))
        if tail > 1:
            return True
    return False


def largest_refuted(is_refuted: Callable[[float], bool]) -> float:
    """Return the largest refuted number, to three digits and rounded down; 0 if none is refuted."""
    low, high = 0.0, 1.0
    while high < MAX_BOUND and is_refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-3 * high and high > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def independent_mu_lower_bound(guesses: Guesses, error: float) -> float:
    """Return a lower bound on mu from independent guesses, right with probability Phi(mu / 2) at most."""
    p = 1 - clopper_pearson_upper(guesses.made - guesses.right, guesses.made, error)
    return 2 * _NORMAL.inv_cdf(p) if p > 0.5 else 0.0


def count_guesses(score: FloatArray, included: BoolArray, made: int) -> Guesses:
    """Guess the coins of the `made` canaries with the most extreme scores by their signs."""
    extreme = np.argsort(-np.abs(score), kind="stable")[:made]
    return Guesses(len(score), made, int(np.sum((score > 0)[extreme] == included[extreme])))


def audit_scores(scores: CanaryScores, delta: float) -> LowerBounds:
    """Return the lower bounds from the scores of a run, which hold jointly with `CONFIDENCE`."""
    m, error = len(scores.score), (1 - CONFIDENCE) / len(LowerBounds._fields)
    # Scores as the claim predicts them, if all canaries are in
    expected = scores.separation / 2 + np.array([_NORMAL.inv_cdf((i + 0.5) / m) for i in range(m)])
    counts = sorted({max(1, m >> halvings) for halvings in range(MAX_HALVINGS)})
    planned = [count_guesses(expected, np.ones(m, bool), made) for made in counts]

    def bound(is_refuted: Callable[[Guesses, float], bool]) -> float:
        def value(guesses: Guesses) -> float:
            return largest_refuted(lambda candidate: is_refuted(guesses, candidate))

        return value(count_guesses(scores.score, scores.included, max(planned, key=value).made))

    return LowerBounds(
        independent_mu_lower_bound(count_guesses(scores.score, scores.included, m), error),
        bound(lambda guesses, mu: is_mu_refuted(guesses, mu, error)),
        bound(lambda guesses, epsilon: epsilon_p_value(guesses, epsilon, delta) <= error),
    )


def audit_run(path: Path) -> tuple[str, bool]:
    """Audit a run by the scores of its canaries; return a report, and whether a claim is refuted.

    InputError if the run had no canaries, or their scores are missing or of another run.
    """
    result, scores_path = read_result(path), canary_scores_path(path)
    if not result.experiment.canaries:
        raise InputError(f"{path} is of a run without canaries. Repeat it with --canaries 1000.")
    scores, privacy = read_canary_scores(scores_path), result.privacy
    if scores.run_digest != run_digest(result.experiment, result.x, result.w):
        raise InputError(f"{scores_path} is of another run than {path}. Copy the files of one run.")
    bounds, mu = audit_scores(scores, privacy.delta), privacy.guarantee.rho or 0.0
    rows = [
        ("mu, if noise is independent over canaries", mu, bounds.independent_mu),
        ("mu, without assumption", mu, bounds.mu),
        (f"epsilon at delta = {privacy.delta:g}, likewise", privacy.epsilon_exact, bounds.epsilon),
    ]
    guesses = count_guesses(scores.score, scores.included, len(scores.score))
    counts = f"{path}: {guesses.right:,} of the coins of {guesses.canaries:,} canaries are guessed right."
    header = ["", "claimed: at most", f"reached: at least ({CONFIDENCE:.0%} confidence)"]
    table = text_table(header, [[(name, rounded_up(claim), rounded_down(low)) for name, claim, low in rows]])
    refuted = [name for name, claim, low in rows if low > claim]
    verdict = f"Refuted: {'; '.join(refuted)}." if refuted else "Nothing is refuted."
    return "\n\n".join([counts, table, verdict]), bool(refuted)
