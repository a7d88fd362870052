"""Membership attack on one run: scores of canaries in and out, and ROC curve beside the claim."""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from scipy.special import betaincinv

from mu2mpi.analysis.figures.coefficients_figure import RUN_TITLE
from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, palette
from mu2mpi.analysis.figures.tradeoff_curve_figure import GUESSING_STYLE
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.core.text import rounded_up
from mu2mpi.privacy.accounting.tradeoff import TradeoffCurve
from mu2mpi.results.canary_scores import read_canary_scores
from mu2mpi.results.reader import RunSummary

BAND_CONFIDENCE = 0.95  # pointwise
BIN_WIDTH = 0.4  # of histograms, in standard deviations of the noise


@register
class AttackFigure(Figure):
    name = "attack"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return False  # Only the owner of the run may read the scores.

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw histograms of scores in and out, and true- against false-positive rates of all thresholds."""
        if len(runs) > 1:
            raise InputError(f"attack shows one result, got {len(runs)}. Name one, or select it with --where")
        (run,), (colour, light), privacy = runs, palette(2), runs[0].contents.privacy
        scores = read_canary_scores(run.path, run.contents)
        included, excluded = scores.score[scores.included], scores.score[~scores.included]
        if not included.size or not excluded.size:
            raise InputError(f"{run.path} has no canaries in, or none out. Use more --canaries")
        layout, claim = Layout(options, 1, 2, 2.4), TradeoffCurve(privacy.guarantee, privacy.delta)
        settings = {n: value for n in RUN_TITLE if (value := run.independent_settings[n]) is not None}
        layout.title, (histogram, roc) = options.labels.settings(settings), layout.panels[0]
        edges = np.arange(scores.score.min(), scores.score.max() + 2 * BIN_WIDTH, BIN_WIDTH)
        x, fpr = np.linspace(edges[0], edges[-1], 200), np.geomspace(0.5 / len(excluded), 1, 200)
        for label, side, c, sign in (("in", included, colour, 1), ("out", excluded, light, -1)):
            bars = {"density": True, "histtype": "stepfilled", "color": c, "alpha": 0.5}
            layout.legend += histogram.hist(side, edges, label=f"{label}: {len(side):,}", **bars)[2]
            pdf = NormalDist(sign * scores.separation / 2).pdf
            expected = histogram.plot(x, [*map(pdf, x)], color=FOREGROUND, lw=0.8, label="expected")
        histogram.set(xlabel="score in units of noise std", ylabel="density")
        curve, *ends = roc_curve_and_band(included, excluded, fpr)
        layout.legend += expected + roc.plot(*curve, color=colour, drawstyle="steps-post", label="attack")
        band = {"color": colour, "alpha": 0.2, "lw": 0, "label": f"band: {BAND_CONFIDENCE:.0%} confidence"}
        layout.legend.append(roc.fill_between(fpr, *ends, **band))
        claimed = f"claim ({run.experiment.neighbours}): μ ≤ {rounded_up(claim.mu)}"
        layout.legend += roc.plot(fpr, [*map(claim.tpr, fpr)], "--", color=FOREGROUND, lw=1.0, label=claimed)
        layout.legend += roc.plot(fpr, fpr, label="guessing", **GUESSING_STYLE)
        roc.set(xscale="log", yscale="log", xlim=(fpr[0], 1), ylim=(fpr[0], 1.1))
        roc.set(xlabel="false-positive rate", ylabel="true-positive rate")
        return layout


def roc_curve_and_band(included: FloatArray, excluded: FloatArray, fpr: FloatArray) -> list[FloatArray]:
    """Return the ROC curve, (2, points), and the ends of its pointwise confidence band at given rates.

    The ends are Clopper-Pearson limits of the true-positive rate at thresholds whose false-positive rate is
    smaller, or larger, than the given one. The latter has a beta distribution at the threshold with k false
    positives, an order statistic of `excluded`, so that the choice of k does not depend on the scores.
    """
    thresholds, n, m = np.append(np.sort(excluded)[::-1], -np.inf), len(excluded), len(included)
    k, hits = np.arange(n + 1), m - np.searchsorted(np.sort(included), thresholds, "right")
    errors = (1 - BAND_CONFIDENCE) / 4, (3 + BAND_CONFIDENCE) / 4  # two limits for each end
    # Only the rates of the last threshold, below all scores, are known: 1.
    fpr_low, fpr_high = (np.append(betaincinv(k[:-1] + 1, n - k[:-1], p), 1.0) for p in errors)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), m - hits + 1, errors[0]), 0.0)
    high = np.where(hits < m, betaincinv(hits + 1, np.maximum(m - hits, 1), errors[1]), 1.0)
    below, above = np.searchsorted(fpr_high, fpr, "right") - 1, np.searchsorted(fpr_low, fpr, "left")
    return [np.array([k / n, hits / m]), np.where(below < 0, 0.0, low[below]), high[above]]
