"""Membership attack on one run: scores of canaries in and out, and ROC curve beside the claim.

Scores are for the owner of the run alone, and no report contains them.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import betaincinv

from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, legend_entry, palette
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.canary_scores import read_canary_scores
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import canary_scores_path

BAND_CONFIDENCE = 0.95  # pointwise
CURVE_POINTS = 200
TITLE_SETTINGS = ("data", "method", "server", "machines", "rounds", "epsilon", "rho")
CLAIM_STYLE: dict[str, Any] = {"color": FOREGROUND, "linestyle": "--", "linewidth": 1.0}
GUESSING_STYLE: dict[str, Any] = {"color": FOREGROUND, "linestyle": ":", "linewidth": 0.9}


@register
class AttackFigure(Figure):
    name = "attack"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return False

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw histograms of scores in and out, and true- against false-positive rates of all thresholds."""
        run, path = runs[0], canary_scores_path(runs[0].path)
        if len(runs) > 1:
            raise InputError(f"attack shows one result, got {len(runs)}. Name one, or select it with --where")
        if not path.exists():
            raise InputError(f"{run.path} has no canary scores. Use a result of mu2mpi run --canaries")
        scores = read_canary_scores(path)
        values, coins, separation = scores.score / scores.sigma_score, scores.included, scores.separation
        if coins.all() or not coins.any():
            raise InputError(f"{path} has no canaries in, or none out. Use more --canaries")
        included, excluded = values[coins], values[~coins]
        layout, (colour, light) = Layout(options, 1, 2, 2.4), palette(2)
        settings = {n: value for n in TITLE_SETTINGS if (value := run.independent_settings[n]) is not None}
        layout.title, (histogram, roc) = options.labels.settings(settings), layout.panels[0]
        edges, x = (
            np.histogram_bin_edges(values, "auto"),
            np.linspace(values.min(), values.max(), CURVE_POINTS),
        )
        for label, side, c, mean in (("in", included, colour, 0.5), ("out", excluded, light, -0.5)):
            bars = {"density": True, "histtype": "stepfilled", "color": c, "alpha": 0.5}
            layout.legend += histogram.hist(side, edges, label=f"{label}: {len(side):,}", **bars)[2]
            pdf = NormalDist(mean * separation).pdf
            histogram.plot(x, list(map(pdf, x)), **CLAIM_STYLE)
        histogram.set(xlabel="score in units of noise std", ylabel="density")
        fpr, (false_positives, hits) = (
            np.geomspace(0.5 / len(excluded), 1, CURVE_POINTS),
            roc_counts(included, excluded),
        )
        band = roc.fill_between(fpr, *roc_band(included, excluded, fpr), color=colour, alpha=0.2, linewidth=0)
        band.set_label(f"band: {BAND_CONFIDENCE:.0%} confidence")
        roc.step(false_positives / len(excluded), hits / len(included), where="post", color=colour)
        roc.plot(fpr, claimed_tpr(separation, fpr), **CLAIM_STYLE)
        roc.plot(fpr, fpr, **GUESSING_STYLE)
        roc.set(xscale="log", yscale="log", xlim=(fpr[0], 1), ylim=(fpr[0], 1.1))
        roc.set(xlabel="false-positive rate", ylabel="true-positive rate")
        claim = f"claim ({scores.relation}): μ ≤ {separation:.4g}"
        layout.legend += [band, legend_entry("attack", color=colour), legend_entry(claim, **CLAIM_STYLE)]
        layout.legend.append(legend_entry("guessing", **GUESSING_STYLE))
        return layout


def claimed_tpr(separation: float, fpr: FloatArray) -> FloatArray:
    """Return the largest true-positive rates that a Gaussian guarantee allows at false-positive rates."""
    normal = NormalDist()
    return np.array([normal.cdf(normal.inv_cdf(rate) + separation) if rate < 1 else 1.0 for rate in fpr])


def roc_counts(included: FloatArray, excluded: FloatArray) -> tuple[IntArray, IntArray]:
    """Return false and true positives of thresholds at each score of `excluded`, and below all scores."""
    thresholds = np.append(np.sort(excluded)[::-1], -np.inf)
    hits = len(included) - np.searchsorted(np.sort(included), thresholds, "right")
    return np.arange(len(thresholds)), hits


def roc_band(included: FloatArray, excluded: FloatArray, fpr: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of a pointwise confidence band of the ROC curve at false-positive rates.

    They are Clopper-Pearson limits of the true-positive rate at a threshold whose false-positive rate is
    smaller, or larger, than the given one, but for an error. That rate has a beta distribution, as a threshold
    with k false positives is an order statistic; the choice of k does not depend on the scores.
    """
    error = (1 - BAND_CONFIDENCE) / 4  # of each limit; an end of the band needs two
    (k, hits), n, m = roc_counts(included, excluded), len(excluded), len(included)
    # Only below all scores, the rates are known: 1.
    fpr_low, fpr_high = (np.append(betaincinv(k[:-1] + 1, n - k[:-1], p), 1.0) for p in (error, 1 - error))
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), m - hits + 1, error), 0.0)
    high = np.where(hits < m, betaincinv(hits + 1, np.maximum(m - hits, 1), 1 - error), 1.0)
    below, above = np.searchsorted(fpr_high, fpr, "right") - 1, np.searchsorted(fpr_low, fpr, "left")
    return np.where(below < 0, 0.0, low[below]), high[above]
