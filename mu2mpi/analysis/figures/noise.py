"""Signal and noise in q~_t = q_t + Y_t over the rounds, from nothing that the guarantee does not cover.

The norm of the noise is known: Y_t has d coordinates of a known standard deviation. That of the signal q_t is
a function of the private data; but on average q_t is t times the gradient of the loss at x_t, and of the test
loss, which is public, a run keeps its norm at x_1 and at x_T, between which the figure interpolates. The norm
of q~_t is drawn as measured: the guarantee covers it as it covers every function of the releases.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures.curves import along_rounds, encode, histories_of, read_histories
from mu2mpi.analysis.figures.style import Figure, Page, handle, with_legend
from mu2mpi.config.together import machines_differ
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.privacy.mechanisms.correlated import CorrelatedNoise, strategy_of
from mu2mpi.results.reader import Summary

NOISE: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}


def noise_norm(run: Summary, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sqrt(d) s_t, the root mean square norm of the noise in q~_t; NaN where machines differ."""
    if machines_differ(run.experiment):
        return np.full(len(rounds), np.nan)
    machines = run.experiment.machines or 1
    trust = run.experiment.trust
    draws = trust.variances(machines, trust.parts(run.experiment.server_options, machines))
    norm = run.figures["sigma"] * math.sqrt(run.figures["parameters"] * draws) / machines
    if run.experiment.chosen_mechanism != CorrelatedNoise.name:
        return np.full(len(rounds), norm)
    lasts = run.experiment.chosen_method.estimator.lasts
    own = strategy_of(run.experiment.noise_correlation, run.experiment.noise_buffers)
    strategy = Correlation(*own, run.experiment.rounds or 1, not lasts, lasts)
    return norm * strategy.deviations()[rounds - 1]


def signal_norm(run: Summary, rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the norm of what is sent on average: that of the gradient at x_t, t times if momentum is sent.

    It is interpolated along log t between first and last.
    """
    first, last = (run.figures.get(name, math.nan) for name in ("first_slope", "last_slope"))
    weight = rounds if run.experiment.estimator == "corrected-momentum" else np.ones(len(rounds))
    return weight * np.interp(np.log(rounds), [0, math.log(run.experiment.rounds or 1)], [first, last])


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw the norms of noise, signal and their sum as it was released."""
    encoding = encode(runs, page)
    figure, panels = along_rounds(encoding, "norm, average over machines (no unit)", page)
    read_histories(runs)
    measured = expected = False
    for group, place, look in encoding.groups:
        panel, run = panels[place], group.runs[0]
        t = np.geomspace(1, max(2, run.experiment.rounds or 1), 50)
        signal = np.mean([signal_norm(run, t) for run in group.runs], axis=0)
        panel.plot(t, signal, **{**look, "marker": ""})
        rounds = np.unique(t.astype(np.int64))
        noise = noise_norm(run, rounds)
        if np.any(noise > 0):
            expected = True
            panel.plot(rounds, noise, color=look["color"], **NOISE)
        at, released = histories_of(group, "round", "message_norm")
        known = np.isfinite(released).all(axis=0)
        measured |= bool(known.any())
        panel.plot(at[known], released[:, known].mean(axis=0), **{**look, "linestyle": ""})
    legend = [*encoding.legend, handle("signal k$_t$ ‖∇f(x$_t$)‖", color=page.theme.ink)]
    if expected:
        legend.append(handle("noise Y$_t$, expected", color=page.theme.ink, **NOISE))
    if measured:
        legend.append(handle("released q̃$_t$, measured", color=page.theme.ink, linestyle="", marker="o"))
    return with_legend(figure, legend)
