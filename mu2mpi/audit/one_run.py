"""Lower bounds on mu from the scores of one run's canaries, each in or out by a fair coin.

The auditor guesses the coins of the canaries with the most extreme scores, and counts the right guesses. How
many guesses are made follows from the claim alone, not from the scores.
"""

from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.evidence import clopper_pearson_upper
from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.text import rounded_down, rounded_up, text_table
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.results.canary_scores import CanaryScores, read_canary_scores
from mu2mpi.results.reader import read_result

CONFIDENCE = 0.95  # joint confidence in both lower bounds
MAX_HALVINGS = 6  # all canaries, half of them, ..., are candidates for the number of guesses
MAX_MU = 16.0  # largest bound without assumption that is searched, beyond what any number of canaries shows
_NORMAL = NormalDist()


class Guesses(NamedTuple):
    """Number of canaries, of guesses of their coins, and of right guesses."""

    canaries: int
    made: int
    right: int


class LowerBounds(NamedTuple):
    """Lower bounds on mu from one run: if noise is independent over canaries, and without assumption."""

    independent_mu: float
    mu: float


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


def mu_lower_bound(guesses: Guesses, error: float) -> float:
    """Return the largest mu that is refuted, or 0, to three decimals and rounded down."""
    low, high = 0.0, MAX_MU
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if is_mu_refuted(guesses, middle, error) else (low, middle)
    return low


def independent_mu_lower_bound(guesses: Guesses, error: float) -> float:
    """Return a lower bound on mu from independent guesses, right with probability Phi(mu / 2) at most."""
    p = 1 - clopper_pearson_upper(guesses.made - guesses.right, guesses.made, error)
    return 2 * _NORMAL.inv_cdf(p) if p > 0.5 else 0.0


def count_guesses(score: FloatArray, included: BoolArray, made: int) -> Guesses:
    """Guess the coins of the `made` canaries with the most extreme scores by their signs."""
    extreme = np.argsort(-np.abs(score), kind="stable")[:made]
    return Guesses(len(score), made, int(np.sum((score > 0)[extreme] == included[extreme])))


def audit_scores(scores: CanaryScores) -> LowerBounds:
    """Return the lower bounds from the scores of a run, which hold jointly with `CONFIDENCE`."""
    m, error = len(scores.score), (1 - CONFIDENCE) / len(LowerBounds._fields)
    # Scores as the claim predicts them, if all canaries are in
    expected = scores.separation / 2 + np.array([_NORMAL.inv_cdf((i + 0.5) / m) for i in range(m)])
    counts = {max(1, m >> halvings) for halvings in range(MAX_HALVINGS)}
    planned = [count_guesses(expected, np.ones(m, bool), made) for made in sorted(counts)]
    made = max(planned, key=lambda guesses: mu_lower_bound(guesses, error)).made
    return LowerBounds(
        independent_mu_lower_bound(count_guesses(scores.score, scores.included, m), error),
        mu_lower_bound(count_guesses(scores.score, scores.included, made), error),
    )


def audit_run(path: Path) -> tuple[str, bool]:
    """Audit a run by the scores of its canaries; return a report, and whether a claim is refuted.

    InputError if the run had no canaries, or their scores are missing or of another run.
    """
    result = read_result(path)
    scores, privacy = read_canary_scores(path, result), result.privacy
    names, mu = ("if noise is independent over canaries", "without assumption"), privacy.guarantee.rho or 0.0
    bounds = dict(zip(names, audit_scores(scores), strict=True))
    right, m = int(np.sum((scores.score > 0) == scores.included)), len(scores.score)
    counts = f"{path}: {right:,} of the coins of {m:,} canaries are guessed right."
    header = ["", "mu", f"epsilon at delta = {privacy.delta:g}, from mu"]
    rows = [("claimed: at most", rounded_up(mu), rounded_up(privacy.epsilon_exact))]
    for name, low in bounds.items():
        text = f"reached: at least ({CONFIDENCE:.0%} confidence), {name}"
        rows.append((text, rounded_down(low), rounded_down(epsilon_exact(low, privacy.delta))))
    refuted = [f"mu, {name}" for name, low in bounds.items() if low > mu]
    verdict = f"Refuted: {'; '.join(refuted)}." if refuted else "Nothing is refuted."
    return "\n\n".join([counts, text_table(header, [rows]), verdict]), bool(refuted)
