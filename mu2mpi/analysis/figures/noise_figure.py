"""Norms of signal and noise in the released averages.

The signal is the mean of q_t: t times the gradient of the loss at x_t (or the gradient itself for methods
that send plain gradients), interpolated between its norms at x_1 and x_T. The released sum is as measured.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures._encoding import encode_runs, mean_history
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.estimators import Estimator
from mu2mpi.results.reader import RunSummary, read_result

NOISE_STYLE: dict[str, Any] = {"linewidth": 4, "alpha": 0.4, "solid_capstyle": "butt"}


def noise_norm(run: RunSummary, rounds: IntArray) -> FloatArray:
    """Return the root-mean-square norm of the averaged noise per round; NaN for unequal machines."""
    if run.experiment.has_unequal_machines:
        return np.full(len(rounds), np.nan)
    machines, trust_mode = run.experiment.machines or 1, run.experiment.trust_mode
    noise_shares = trust_mode.noise_shares(run.experiment.server_options, machines)
    variance = trust_mode.variance_factor(machines, noise_shares)
    estimator: Estimator = run.experiment.chosen_method.estimator
    # A message is the average over the samples of a round.
    per_sample = estimator.gradients_per_sample * (run.experiment.rounds or 1)
    samples: float = run.measurements["gradient_evaluations"] / per_sample
    norm = math.sqrt(run.measurements["parameters"] * variance) / samples
    mechanism = read_result(run.path).privacy.mechanism
    if mechanism.correlation is None:
        return norm * np.array([mechanism.round_sigma(t) for t in rounds.tolist()])
    return norm * mechanism.sigma * mechanism.correlation.noise_stds()[rounds - 1]


def signal_norm(run: RunSummary, rounds: FloatArray) -> FloatArray:
    """Return the norm of the mean message per round, with the gradient norm interpolated in log t."""
    ends = (run.measurements.get(f"{end}_gradient_norm", math.nan) for end in ("initial", "final"))
    weights = [run.experiment.chosen_method.estimator.gradient_weight(t) for t in rounds]
    gradient_norms = np.interp(np.log(rounds), [0, math.log(run.experiment.rounds or 1)], [*ends])
    return np.array(weights) * gradient_norms


@register
class NoiseFigure(Figure):
    name = "noise"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw the norms of the expected noise, of the signal and of the released sum against the round."""
        encoding = encode_runs(runs, options)
        layout = Layout(options, 1, len(encoding.titles), 2.4, encoding.titles, sharex=True, sharey=True)
        is_noisy = is_measured = False
        for group, column, style in encoding.groups:
            panel, run = layout.panels[0, column], group.runs[0]
            t = np.geomspace(1, max(2, run.experiment.rounds or 1), 50)
            signal = np.mean([signal_norm(run, t) for run in group.runs], axis=0)
            panel.plot(t, signal, **{**style, "marker": ""})
            rounds = np.unique(t.astype(np.int64))
            if np.any((noise := noise_norm(run, rounds)) > 0):
                is_noisy = True
                panel.plot(rounds, noise, color=style["color"], **NOISE_STYLE)
            released = mean_history(group.runs, "round", "message_norm")
            is_measured |= len(released) > 0
            panel.plot(released.x, released.y, **{**style, "linestyle": ""})
        for panel in layout.panels.flat:
            label = "norm, average over machines (no unit)"
            panel.set(xscale="log", yscale="log", xlabel="round t", ylabel=label)
        layout.legend = [*encoding.legend, legend_entry("signal kₜ ‖∇f(xₜ)‖")]
        layout.legend += [legend_entry("noise Yₜ, expected", **NOISE_STYLE)] * is_noisy
        layout.legend += [legend_entry("released q̃ₜ, measured", linestyle="", marker="o")] * is_measured
        return layout
