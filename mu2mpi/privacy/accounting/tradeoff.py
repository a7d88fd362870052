"""Trade-off curve of a guarantee: largest true-positive rate of any membership test, and GDP parameter mu.

Dong, Roth and Su, "Gaussian differential privacy", 2022; Gomez et al., "(epsilon, delta) considered harmful",
2025. Proofs: docs/background/privacy-proofs.md.
"""

import math
from itertools import pairwise
from statistics import NormalDist

from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, Guarantee
from mu2mpi.privacy.noise.sampler_error import MAX_NEG_LOG_PROBABILITY, NO_SAMPLER_ERROR

# False-positive rates of the true-positive rates in results, and all claims by the name of their attribute
REPORTED_RATES = {f"tpr_at_fpr_{rate:g}": rate for rate in (0.001, 0.01, 0.1)}
TRADEOFF_CLAIMS = ("mu", *REPORTED_RATES, "attack_accuracy")
MAX_SLACK = 1e-3  # largest slack of true-positive rates
_GRID_STEP = 0.14  # between z-scores of deltas; adds less than 1 % to mu if mu > 0.03
_MIN_Z_SCORE = -7.0  # of the largest delta, 1 - 10^-12
_MAX_EPSILON = 700.0  # the exponential of a larger one may overflow
_MAX_RARE_SHARE = 2.0**-40  # of any rate that improbable noise makes up
_ROUND_UP = 1 + 2.0**-40
_quantile = NormalDist().inv_cdf


class TradeoffCurve:
    """Upper bound on the true-positive rate (TPR) of any membership test, by false-positive rate (FPR).

    `mu` is such that TPR <= Phi(Phi^-1(FPR) + mu) + slack, where the slack is `delta`, at most `MAX_SLACK`.
    Mu and all rates include the error of the noise sampler. Where no bound is known, mu is infinite.
    """

    def __init__(self, guarantee: Guarantee, delta: float = 1e-5) -> None:
        slack, error = min(delta, MAX_SLACK), guarantee.sampler_error
        self._rho = guarantee.rho if isinstance(guarantee, GaussianGuarantee) else None
        self._lines = [] if self._rho is not None else _bounding_lines(guarantee, 0.98 * slack)
        self.mu = _mu_of_lines(self._lines) if self._rho is None else self._rho
        # The noise sampler adds at most `_shift` to the z-scores of rates in [`_min_rate`, 1 - `_min_rate`].
        self._shift = self._min_rate = 0.0
        if error != NO_SAMPLER_ERROR and math.isfinite(self.mu):
            self._min_rate = _normal_cdf(_quantile(slack / 128) - 1.01 * self.mu - 0.01)
            rarity = -math.log(max(self._min_rate * _MAX_RARE_SHARE, math.ulp(0.0)))
            ratio = math.expm1(min(0.1, error.log_ratio_bound(rarity))) + 4 * _MAX_RARE_SHARE
            self._shift = _quantile((1 + ratio) / 2)
            is_covered = rarity < MAX_NEG_LOG_PROBABILITY and error.total_variation <= math.exp(-rarity)
            is_small = 2 * self._shift <= 0.01 * self.mu + 0.01
            self.mu = self.mu + 2 * self._shift if is_covered and is_small else math.inf

    def tpr(self, fpr: float) -> float:
        """Largest true-positive rate at a false-positive rate."""
        rate = _shift_rate(max(fpr, self._min_rate), self._shift)
        if self._rho is not None:
            return self._sampled(_shift_rate(rate, self._rho))
        return self._sampled(min([1.0, *(min(d + x * rate, (x - 1 + d + rate) / x) for x, d in self._lines)]))

    def claims(self) -> dict[str, float]:
        """Claims of a result, `TRADEOFF_CLAIMS` by name; the accuracy is for equally likely members."""
        largest_error = max((1 - d) / (1 + x) for x, d in self._lines) if self._lines else 0.0
        accuracy = 1 - largest_error if self._rho is None else _normal_cdf(self._rho / 2)
        rates = {name: self.tpr(fpr) for name, fpr in REPORTED_RATES.items()}
        return {"mu": self.mu, **rates, "attack_accuracy": self._sampled(accuracy)}

    def _sampled(self, rate: float) -> float:
        """Largest probability for sampled noise of an event that has probability `rate` for exact noise."""
        if math.isinf(self.mu) or rate > 1 - self._min_rate:
            return 1.0
        return min(1.0, _shift_rate(rate, self._shift) * _ROUND_UP)


def _bounding_lines(guarantee: Guarantee, min_delta: float) -> list[tuple[float, float]]:
    """Compute e^epsilon and delta on a grid from `min_delta` up to the first delta at which epsilon is 0."""
    has_error = guarantee.sampler_error != NO_SAMPLER_ERROR
    epsilon_at = guarantee.epsilon_exact_noise if has_error else guarantee.epsilon
    lines, z = [(math.inf, 0.0)], -_quantile(min_delta)
    while z > _MIN_Z_SCORE and lines[-1][0] > 1:
        delta = _normal_cdf(-z)
        factor = math.exp(min(epsilon_at(delta), _MAX_EPSILON))
        if factor < lines[-1][0]:
            lines.append((factor, delta))
        z -= _GRID_STEP
    if len(lines) > 3:  # The last line is replaced by one at nearly the smallest delta at which epsilon is 0.
        (x, delta), (next_x, next_delta) = lines[-3:-1]
        last_delta = next_delta + (next_delta - delta) / (x - next_x) * (next_x - 1)
        last_delta = min(last_delta, lines[-1][1])
        lines[-1] = math.exp(epsilon_at(last_delta)), last_delta
    return lines[1:]


def _mu_of_lines(lines: list[tuple[float, float]]) -> float:
    """Smallest mu whose trade-off curve, which is convex, is below the lines: it is if their vertices are."""
    errors = [(1 - delta) / (1 + factor) for factor, delta in lines]
    if not errors:
        return math.inf
    last = errors.index(max(errors))  # line that meets its mirror image at the largest error rate
    vertices = [(errors[last], errors[last])]
    for (x, delta), (next_x, next_delta) in pairwise(lines[: last + 1]):
        fpr = (next_delta - delta) / (x - next_x)
        vertices.append((fpr, 1 - delta - x * fpr - 8 * math.ulp(1.0)))
    if min(map(min, vertices)) < 1e-300:
        return math.inf
    return max(-_quantile(fpr) - _quantile(fnr) for fpr, fnr in vertices) * _ROUND_UP


def _shift_rate(rate: float, shift: float) -> float:
    return _normal_cdf(_quantile(rate) + shift) if 0 < rate < 1 else rate


def _normal_cdf(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2
