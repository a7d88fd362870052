"""Methods side by side: what is compared is comparable, and exponents are those of the runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.summaries import METHODS, comparison_run, comparison_runs
from matplotlib.backends.backend_agg import FigureCanvasAgg

import mu2mpi
from mu2mpi.analysis.figures import draw_figure
from mu2mpi.analysis.figures.comparison_figure import method_curves
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup


def test_lines_hold_means_deviations_and_exponents():
    lines = method_curves(comparison_runs()[::-1])
    titles = [lookup("methods", name).title for name in known_names("methods")]
    assert [line.name for line in lines] == [title for title in titles if title in METHODS]
    assert {line.name for line in lines} == set(METHODS)
    for line in lines:
        _, factor, exponent = METHODS[line.name]
        assert line.exponent == pytest.approx(exponent)
        np.testing.assert_array_equal(line.sample_sizes, [1000, 4000, 16_000])
        np.testing.assert_allclose(line.gradient_counts, factor * line.sample_sizes**exponent)
        np.testing.assert_allclose(line.values[0, :, 0], 1 / np.sqrt(line.sample_sizes) + 0.02)
        np.testing.assert_allclose(line.values[1, :, 0], 1 - line.values[0, :, 0])
        np.testing.assert_allclose(line.values[0, :, 1], 0.01)
    (steep,) = method_curves([comparison_run(size, exponent=1.5) for size in (100, 200, 400)])
    assert steep.exponent == pytest.approx(1.5)
    (short,) = method_curves([comparison_run(size) for size in (100, 200)])
    assert math.isnan(short.exponent)


def test_only_what_is_comparable_is_compared():
    runs = comparison_runs()
    for settings in (
        {"epsilon_exact": 2.1},
        {"epsilon": 4.0, "epsilon_exact": 3.992},
        {"delta": 1e-6},
        {"machines": 8},
        {"eta_scale": 2.0},
    ):
        with pytest.raises(InputError, match=next(name.removesuffix("_exact") for name in settings)):
            method_curves([*runs, comparison_run(64_000, **settings)])
    method_curves([*runs, comparison_run(64_000, epsilon_exact=1.99)])
    silent = [replace(run, measurements={**run.measurements, "epsilon_exact": math.inf}) for run in runs]
    assert len(method_curves(silent)) == len(METHODS)


def test_the_figure_shows_every_method_and_its_exponent():
    runs = comparison_runs()
    lines = method_curves(runs)
    figure = draw_figure("comparison", runs)
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    for line in lines:
        assert f"{line.name}: {line.exponent:.2f}" in labels
    loss, accuracy, complexity = figure.axes
    for k, (panel, factor) in enumerate(((loss, 1), (accuracy, 100))):
        drawn = [line.get_ydata() for line in panel.get_lines()]
        for line in lines:
            assert any(np.array_equal(factor * line.values[k, :, 0], y) for y in drawn)
    for line in lines:
        assert any(
            np.array_equal(line.gradient_counts, drawn.get_ydata()) for drawn in complexity.get_lines()
        )
    FigureCanvasAgg(figure).draw()


def test_real_runs_are_compared(tmp_path):
    """Gradients are counted by the runs: two a sample with corrected momentum, and one else."""
    settings = {"data": "synthetic", "features": 3, "server": "trusted", "machines": 2, "seed": 1, "rho": 1.0}
    for samples in (200, 400, 800):
        for name, method in (("mu2", {}), ("snowball", {"method": "snowball-sgd"})):
            experiment = Experiment(**settings, **method, samples=samples)
            mu2mpi.run(experiment, output=tmp_path / f"{name}-{samples}.h5")
    mu2, snowball = method_curves(mu2mpi.load(tmp_path).summaries)
    np.testing.assert_array_equal(mu2.sample_sizes, [200, 400, 800])
    np.testing.assert_array_equal(mu2.gradient_counts, 2 * mu2.sample_sizes)
    np.testing.assert_array_equal(snowball.gradient_counts, snowball.sample_sizes)
    assert np.all(snowball.sample_sizes <= mu2.sample_sizes)
    assert np.all(snowball.sample_sizes > 0.9 * mu2.sample_sizes)
    assert snowball.exponent == pytest.approx(1, abs=0.05)
