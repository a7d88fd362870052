"""The figure of losses against the share of machines that takes part, of made-up runs."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.summaries import shared_runs

from mu2mpi.analysis.figures import draw_figure, render_figure
from mu2mpi.core.errors import InputError


def lines_of(panel):
    return [container.lines[0] for container in panel.containers]


def test_lines_are_means_over_seeds_and_numbers_are_their_slopes():
    runs = shared_runs(-0.25, noise_correlation=0.0, heterogeneity=1.0)
    runs += [run for h in (0.0, 1.0) for run in shared_runs(0.5, 3.0, heterogeneity=h)]
    figure = draw_figure("participation", runs[::-1])
    one, other = figure.axes
    titles = [panel.get_title("left") for panel in figure.axes]
    assert [title[-17:] for title in titles] == ["heterogeneity = 0", "heterogeneity = 1"]
    assert [len(lines_of(panel)) for panel in (one, other)] == [1, 2]
    drawn = {round(float(line.get_ydata(orig=False)[-1]), 9): line for line in lines_of(other)}
    np.testing.assert_allclose(sorted(drawn), [1.0, 3.0])
    x = np.array([0.1, 0.4, 1.0])
    for line, exponent, factor in ((drawn[1.0], -0.25, 1.0), (drawn[3.0], 0.5, 3.0)):
        # Lines are beside each other.
        np.testing.assert_allclose(line.get_xdata(orig=False), x, rtol=0.05)
        assert np.all(line.get_xdata(orig=False) != x)
        np.testing.assert_allclose(line.get_ydata(orig=False), factor * x**exponent)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[:2] == ["μ²-SGD, noise cancelled: 0.50 | 0.50", "μ²-SGD, noise accumulated: – | −0.25"]
    # The same look in each panel.
    palette = [tuple(line.get_color()) for line in (*lines_of(one), drawn[3.0], drawn[1.0])]
    assert palette[0] == palette[1] != palette[2]
    assert render_figure(figure, "png")


def test_of_data_without_a_known_minimum_the_test_loss_is_drawn():
    known = shared_runs(0.5)
    runs = [
        replace(
            run,
            experiment=run.experiment.replace(data="mnist", features=None, classes=None),
            test_loss=2.0 + k,
            measurements={"parameters": 32},
        )
        for k, run in enumerate(shared_runs(0.5, seeds=1))
    ]
    figure = draw_figure("participation", known + runs)
    labels = {panel.get_title("left"): panel.get_ylabel() for panel in figure.axes}
    assert labels == {"population": "excess loss (nats)", "mnist": "test loss (nats)"}
    (panel,) = (panel for panel in figure.axes if panel.get_title("left") == "mnist")
    np.testing.assert_allclose(lines_of(panel)[0].get_ydata(orig=False), [4.0, 3.0, 2.0])
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words[0].endswith(": – | 0.50")


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(InputError, match="all runs have the same --participation"):
        draw_figure(
            "participation", [run for run in shared_runs(0.5) if run.experiment.participation is None]
        )
    with pytest.raises(InputError, match="participation = by-size, whose share varies"):
        draw_figure("participation", [*shared_runs(0.5), *shared_runs(0.5, participation="by-size")])
    with pytest.raises(InputError, match="--where rho="):
        draw_figure("participation", [run for rho in range(1, 6) for run in shared_runs(0.5, rho=float(rho))])
