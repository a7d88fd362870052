"""The membership figure shows the scores in a file, their ROC curve, and the curve that the claim allows."""

import re
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.canary_runs import canary_run
from matplotlib.collections import PolyCollection
from scipy.stats import binom

from mu2mpi.analysis.figures import draw_figure, get_figure
from mu2mpi.analysis.figures.attack_figure import roc_curve_and_band
from mu2mpi.core.errors import InputError
from mu2mpi.results.canary_scores import read_canary_scores
from mu2mpi.results.records import canary_scores_path

NORMAL = NormalDist()


def gaussian_roc(fpr, mu):
    return np.array([NORMAL.cdf(NORMAL.inv_cdf(rate) + mu) for rate in fpr])


def test_panels_show_the_scores_and_the_claim(tmp_path):
    run = canary_run(tmp_path, mu=1.2, separation=1.0, rho=1.5, canaries=300)
    scores = read_canary_scores(run.path, run.contents)
    figure = draw_figure("attack", [run])
    histogram, roc = figure.axes
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    inside = int(scores.included.sum())
    assert labels[:2] == [f"in: {inside}", f"out: {300 - inside}"]
    assert labels[2:] == [
        "expected",
        "attack",
        "band: 95% confidence",
        "claim (replace): μ ≤ 1.5",
        "guessing",
    ]
    # Bars have the area of the counts, and lie where the scores are in units of noise.
    for bars, side in zip(histogram.patches, (scores.included, ~scores.included), strict=True):
        values, outline = scores.score[side], bars.get_xy()
        assert outline[:, 0].min() <= values.min() <= values.max() <= outline[:, 0].max()
        x, y = outline.T
        assert abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2 == pytest.approx(1)
    peaks = [line.get_xdata()[np.argmax(line.get_ydata())] for line in histogram.get_lines()]
    np.testing.assert_allclose(peaks, [0.5, -0.5], atol=0.05)
    attack, claim, guessing = roc.get_lines()
    x, y = claim.get_data()
    np.testing.assert_allclose(y[:-1], gaussian_roc(x[:-1], 1.5), rtol=1e-6)
    np.testing.assert_array_equal(*guessing.get_data())
    for fpr, tpr in np.transpose(attack.get_data())[:-1]:
        threshold = np.sort(scores.score[~scores.included])[::-1][round(fpr * (300 - inside))]
        assert tpr == np.mean(scores.score[scores.included] > threshold)
        assert fpr == np.mean(scores.score[~scores.included] > threshold)
    assert any(isinstance(shape, PolyCollection) for shape in roc.collections)
    assert (roc.get_xscale(), roc.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_the_band_holds_the_curve_at_each_rate_as_often_as_it_says(mu):
    rng, fpr, repeats = np.random.default_rng(1), np.array([0.005, 0.03, 0.1, 0.4, 0.9, 1.0]), 500
    expected = np.append(gaussian_roc(fpr[:-1], mu), 1.0)
    held, widths = np.zeros(len(fpr)), np.zeros(len(fpr))
    for _ in range(repeats):
        _, low, high = roc_curve_and_band(rng.normal(mu, 1, 90), rng.normal(0, 1, 110), fpr)
        held += (low <= expected) & (expected <= high)
        widths += (high - low) / repeats
    assert (binom.cdf(held, repeats, 0.95) > 1e-5).all()
    # Rates in the middle are known to a quarter from a hundred canaries on each side.
    assert (widths[2:4] < 0.52).all()


def test_without_scores_or_with_several_results_a_message_says_what_to_do(tmp_path):
    run = canary_run(tmp_path)
    with pytest.raises(InputError, match="attack shows one result, got 2"):
        draw_figure("attack", [run, canary_run(tmp_path, rho=2.0)])
    assert not get_figure("attack").is_in_report([run])
    for coin in (True, False):
        with pytest.raises(InputError, match="Use more --canaries"):
            draw_figure("attack", [canary_run(tmp_path, included=np.full(10, coin))])
    moved = replace(run, path=Path("none.h5"))
    vars(moved)["contents"] = run.contents
    with pytest.raises(InputError, match=r"cannot read none\.canaries\.h5"):
        draw_figure("attack", [moved])
    for change in ({"model_digest": b"x"}, {"experiment": run.experiment.replace(seed=7)}):
        other = replace(run)
        vars(other)["contents"] = SimpleNamespace(**{**vars(run.contents), **change})
        with pytest.raises(InputError, match="of another run"):
            draw_figure("attack", [other])
    vars(other)["contents"] = SimpleNamespace(experiment=run.experiment.replace(canaries=None), privacy=None)
    with pytest.raises(InputError, match=re.escape("without canaries. Repeat it with --canaries")):
        draw_figure("attack", [other])
    canary_scores_path(run.path).chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        draw_figure("attack", [run])
