"""Figure of a run that goes on."""

import numpy as np
import pytest

import mu2mpi

SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 20, "seed": 1}


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_a_live_figure_draws_what_was_measured(labels):
    loss = "softmax" if labels == "classes" else "squared"
    figure = mu2mpi.LiveFigure()
    result = mu2mpi.run({**SETTINGS, "loss": loss}, observers=[figure])
    score = 100 * result.history.test_accuracy if labels == "classes" else result.history.test_r2
    for panel, values in zip(figure.figure.axes, (result.history.test_loss, score), strict=True):
        (line,) = panel.lines
        np.testing.assert_array_equal(line.get_xdata(), result.history.round)
        np.testing.assert_array_equal(line.get_ydata(), values)
