"""Norms of signal and noise in what is released.

The signal is what q_t is on average: t times the gradient of the loss at x_t (once, where plain gradients are
sent), interpolated between its norms at x_1 and x_T. The released sum is drawn as measured.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures._encoding import encode, mean_history
from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, handle
from mu2mpi.core.registry import register
from mu2mpi.federation.estimators import Estimator
from mu2mpi.results.reader import Summary, read_result

NOISE: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}


def noise_norm(run: Summary, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sqrt(d) s_t, the root mean square norm of the noise in round t; NaN where machines differ."""
    if run.experiment.machines_differ:
        return np.full(len(rounds), np.nan)
    machines = run.experiment.machines or 1
    trust = run.experiment.trust
    draws = trust.variances(machines, trust.parts(run.experiment.server_options, machines))
    estimator: Estimator = run.experiment.chosen_method.estimator
    # Messages are averaged over the samples of a round.
    per_sample = estimator.gradients * (run.experiment.rounds or 1)
    samples: float = run.figures["gradient_evaluations"] / per_sample
    norm = math.sqrt(run.figures["parameters"] * draws) / samples
    mechanism = read_result(run.path).privacy.mechanism
    if mechanism.correlation is None:
        return norm * np.array([mechanism.sigma_of(t) for t in rounds.tolist()])
    return norm * mechanism.sigma * mechanism.correlation.deviations()[rounds - 1]


def signal_norm(run: Summary, rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the norm of the mean message, with the gradient's norm interpolated along log t."""
    first, last = (run.figures.get(name, math.nan) for name in ("first_slope", "last_slope"))
    weights = [run.experiment.chosen_method.estimator.weight(t) for t in rounds]
    slopes = np.interp(np.log(rounds), [0, math.log(run.experiment.rounds or 1)], [first, last])
    return np.array(weights) * slopes


@register
class NoiseFigure(Figure):
    name = "noise"

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw the norms of noise, signal and their sum as it was released."""
        encoding = encode(runs, page)
        sheet = Sheet(page, 1, len(encoding.titles), 2.4, encoding.titles, sharex=True, sharey=True)
        is_noisy = is_measured = False
        for group, column, look in encoding.groups:
            panel, run = sheet.panels[0, column], group.runs[0]
            t = np.geomspace(1, max(2, run.experiment.rounds or 1), 50)
            signal = np.mean([signal_norm(run, t) for run in group.runs], axis=0)
            panel.plot(t, signal, **{**look, "marker": ""})
            rounds = np.unique(t.astype(np.int64))
            if np.any((noise := noise_norm(run, rounds)) > 0):
                is_noisy = True
                panel.plot(rounds, noise, color=look["color"], **NOISE)
            released = mean_history(group.runs, "round", "message_norm")
            is_measured |= len(released) > 0
            panel.plot(released.x, released.y, **{**look, "linestyle": ""})
        for panel in sheet.panels.flat:
            label = "norm, average over machines (no unit)"
            panel.set(xscale="log", yscale="log", xlabel="round t", ylabel=label)
        sheet.legend = [*encoding.legend, handle("signal k$_t$ ‖∇f(x$_t$)‖")]
        sheet.legend += [handle("noise Y$_t$, expected", **NOISE)] * is_noisy
        sheet.legend += [handle("released q̃$_t$, measured", linestyle="", marker="o")] * is_measured
        return sheet
