"""Signal and noise in q~_t = q_t + Y_t over the rounds, from nothing that the guarantee does not cover.

The norm of the noise is known: Y_t has d coordinates of a known standard deviation. The norm of the signal
q_t itself is a function of the private data. On average, however, q_t is t times the gradient of the loss
at x_t, and the gradient of the test loss is public: a run keeps its norm at x_1 and at x_T, and between them
the figure interpolates. What was released in fact, the norm of q~_t, is drawn as measured: the guarantee
covers it as it covers every function of the releases.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures.encoding import encode
from mu2mpi.analysis.figures.history import read_histories, together
from mu2mpi.analysis.figures.style import Theme, add_legend, canvas, handle, panel_titles
from mu2mpi.results.reader import Summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "noise_norm", "signal_norm"]


def noise_norm(run: Summary) -> float:
    """Return sqrt(d) s, the root mean square norm of the noise in q~_t."""
    machines = run.experiment.machines or 1
    draws = 1 if run.experiment.server == "trusted" else machines
    return run.figures["sigma"] * math.sqrt(run.figures["parameters"] * draws) / machines


def signal_norm(run: Summary, rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the norm of what is sent on average: that of the gradient at x_t, t times if momentum is sent.

    It is interpolated along log t between first and last.
    """
    first, last = (run.figures.get(name, math.nan) for name in ("first_slope", "last_slope"))
    weight = rounds if run.experiment.estimator == "corrected-momentum" else np.ones(len(rounds))
    return weight * np.interp(np.log(rounds), [0, math.log(run.experiment.rounds or 1)], [first, last])


def draw(runs: Sequence[Summary], theme: Theme) -> "Figure":
    """Draw the norms of noise, signal and their sum as it was released, with a panel for each server."""
    encoding = encode(runs, theme)
    figure, axes = canvas(1, len(encoding.panel_titles()), 3.4, sharey=True, sharex=True)
    read_histories(runs)
    measured = False
    for group in encoding.groups:
        look, panel, run = encoding.look(group), axes[0, encoding.panel_of(group)], group.runs[0]
        t = np.geomspace(1, max(2, run.experiment.rounds or 1), 50)
        signals = np.array([signal_norm(run, t) for run in group.runs])
        panel.plot(t, signals.mean(axis=0), **{**look, "marker": ""})
        noise = noise_norm(run)
        if noise > 0:
            panel.plot(t[[0, -1]], [noise, noise], color=look["color"], **NOISE)
        at, released = together(group, "round", "message_norm")
        known = np.isfinite(released).all(axis=0)
        measured |= bool(known.any())
        panel.plot(at[known], released[:, known].mean(axis=0), **{**look, "linestyle": ""})
    panel_titles(axes[0], encoding.panel_titles())
    for panel in axes[0]:
        panel.set(xscale="log", yscale="log", xlabel="round t")
    axes[0, 0].set_ylabel("norm, average over machines (no unit)")
    ink = theme.ink
    legend = [*encoding.legend(), handle("signal k$_t$ ‖∇f(x$_t$)‖", color=ink)]
    if any(run.figures["sigma"] > 0 for run in runs):
        legend.append(handle("noise Y$_t$, expected", color=ink, **NOISE))
    if measured:
        legend.append(handle("released q̃$_t$, measured", color=ink, linestyle="", marker="o"))
    add_legend(figure, legend)
    return figure


NOISE: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}
