"""Encoding of groups of runs as panels, colours and dashes; mean histories; fitted exponents."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas

from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.aggregation import default_measurements
from mu2mpi.analysis.figures._theme import FigureOptions
from mu2mpi.analysis.figures.figure import DASHES, FOREGROUND, legend_entry, line_style, palette
from mu2mpi.analysis.setting_labels import PRIVACY_SETTINGS, RunGroup
from mu2mpi.core.arrays import FloatArray
from mu2mpi.losses.metrics.metric import all_metrics
from mu2mpi.results.reader import RunSummary

CHANNEL_LIMITS = {"panels": 4, "colours": 7, "dashes": len(DASHES)}  # largest number of each in a figure
MAX_COLOURS_WITHOUT_DASHES = 20  # where markers distinguish similar colours
MIN_FIT_POINTS = 3  # fewest points to fit an exponent to
# Distance of lines, and of all of them, at a value of the horizontal axis, relative to the next value
DODGE_STEP, MAX_DODGE = 0.05, 0.2
Settings = Sequence[str]  # names of settings


class VisualEncoding(NamedTuple):
    """Groups of runs with the panel index and line style of each, panel titles, and legend entries."""

    groups: list[tuple[RunGroup, int, dict[str, Any]]]
    titles: list[str]
    legend: list[Any]
    line_settings: Settings  # that distinguish the lines of a panel


def encode_runs(
    runs: Sequence[RunSummary],
    options: FigureOptions,
    pooled_settings: Settings = (),
    panel_settings: Settings = ("server",),
    colour_settings: Settings = (*PRIVACY_SETTINGS, "machines"),
) -> VisualEncoding:
    """Assign panels, colours and dashes to groups of runs by the settings in which they differ.

    `pooled_settings` are ignored, `panel_settings` become panels, the first of `colour_settings` becomes
    colour and the others dashes, unless `CHANNEL_LIMITS` requires another choice. Settings that the method
    determines have no encoding. InputError if none fits.
    """
    varying = [name for name in setting_labels.varying_settings(runs) if name not in pooled_settings]
    if "method" in varying:
        of_methods = setting_labels.settings_of_methods(runs, pooled_settings)
        varying = [name for name in varying if name not in of_methods]
    candidates = (name for name in (*colour_settings, *varying) if name in varying)
    hue = next((name for name in candidates if name not in panel_settings), None)
    preferred = ["panels" if n in panel_settings else "colours" if n == hue else "dashes" for n in varying]
    groups = setting_labels.group_runs(runs, varying, setting_labels.comparable_settings(runs))
    # The sort is stable: of equally many changes, the first assignment wins.
    assignments = product(CHANNEL_LIMITS, repeat=len(varying)) if len(varying) <= 8 else [tuple(preferred)]
    for assignment in sorted(assignments, key=lambda assignment: sum(map(str.__ne__, assignment, preferred))):
        pairs = [*zip(varying, assignment, strict=True)]
        channels = [[name for name, chosen in pairs if chosen == channel] for channel in CHANNEL_LIMITS]
        # Each run has either rho or epsilon, which belong to one encoding.
        is_split = sum(bool({*PRIVACY_SETTINGS} & {*names}) for names in channels) > 1
        if is_split or (varying and not channels[1]):
            continue
        levels = [len({_setting_values(group, names) for group in groups}) for names in channels]
        limits = CHANNEL_LIMITS | ({} if channels[2] else {"colours": MAX_COLOURS_WITHOUT_DASHES})
        if all(count <= limit for count, limit in zip(levels, limits.values(), strict=True)):
            return encode_groups(groups, options, *channels)
    widest = max(varying, key=lambda name: len({group.settings[name] for group in groups}))
    problem = f"these runs differ in too many settings for one figure ({', '.join(varying)})"
    raise setting_labels.selection_error(problem, widest)


def _setting_values(group: RunGroup, names: Settings) -> tuple[Any, ...]:
    return tuple(group.settings[name] for name in names)


def encode_groups(
    groups: Sequence[RunGroup], options: FigureOptions, panel: Settings, colour: Settings, dash: Settings
) -> VisualEncoding:
    """Encode run groups as panels, colours and dashes, by lists of setting names that may be empty."""
    channels = []
    for names in (panel, colour, dash):
        levels = sorted({_setting_values(group, names) for group in groups}, key=setting_labels.sort_key)
        labels = [options.labels.settings(dict(zip(names, level, strict=True))) for level in levels]
        channels.append(([levels.index(_setting_values(group, names)) for group in groups], labels))
    (panels, titles), (hues, hue_labels), (dashes, dash_labels) = channels
    colours = palette(len(hue_labels))
    # Without dashes, markers distinguish lines that are printed in grey.
    styles = [
        line_style(colours[hue], k, k if dash else hue) | {"label": options.labels.settings(group.settings)}
        for group, hue, k in zip(groups, hues, dashes, strict=True)
    ]
    legend = []
    plain = {"marker": ""} if dash else {}
    for k, label in enumerate(hue_labels if colour else ()):
        legend.append(legend_entry(label, **line_style(colours[k], 0, k) | plain))
    for k, label in enumerate(dash_labels if dash else ()):
        legend.append(legend_entry(label, **line_style(FOREGROUND, k, k)))
    return VisualEncoding(list(zip(groups, panels, styles, strict=True)), titles, legend, [*colour, *dash])


def loss_label(runs: Iterable[RunSummary], name: str = "test loss") -> str:
    """Return the axis label of the losses of runs, with their unit if it is nats."""
    return f"{name} (nats)" if setting_labels.are_losses_in_nats(runs) else name


def measured_y_axes(runs: Sequence[RunSummary], options: FigureOptions) -> list[tuple[str, str, float]]:
    """Return column, axis label and unit factor of each value; by default of the loss and accuracy or R²."""
    losses, y_axes = sorted({run.experiment.loss for run in runs}), []
    for name in options.values or default_measurements(runs):
        label, factor = name.replace("_", " "), 1.0
        if name.endswith("_loss"):
            if len(losses) > 1 and not setting_labels.are_losses_in_nats(runs):
                problem = f"the losses of these runs (loss = {', '.join(losses)}) have no common unit"
                raise setting_labels.selection_error(problem, "loss")
            label = loss_label(runs, label)
        elif metric := all_metrics().get(name.removeprefix("test_")):
            is_percentage = metric.unit == "%"
            label = f"test {metric.table_title}{' (%)' * is_percentage}"
            factor = 100.0 if is_percentage else 1.0
        y_axes.append((name, label, factor))
    return y_axes


def is_drawn_by_ratio(runs: Sequence[RunSummary], name: str) -> bool:
    """Return whether a measurement is a positive amount, such as a time, and no test loss or metric."""
    values = [run.table_row.get(name, math.nan) for run in runs]
    is_amount = name != "test_loss" and name.removeprefix("test_") not in all_metrics()
    return is_amount and all(value > 0 for value in values if not math.isnan(value))


def dodged_places(values: Sequence[float], k: int, count: int, is_log: bool) -> dict[float, float]:
    """Return the place of each ascending value for line k of `count`, beside those of the other lines."""
    gap = min(np.diff(np.log(values) if is_log else values), default=1.0)
    shift = gap * min(MAX_DODGE, DODGE_STEP * count) * ((k + 0.5) / count - 0.5)
    return {value: value * math.exp(shift) if is_log else value + shift for value in values}


def mean_history(runs: Sequence[RunSummary], x: str, y: str) -> pandas.DataFrame:
    """Return means over runs of the history columns `x` and `y`, and the standard deviation of `y`.

    One row for each round at which all runs were evaluated; columns ``x``, ``y`` and ``std``.
    """
    frames = []
    for run in runs:
        # The last evaluations are averaged even if the runs have different numbers of rounds.
        columns = {"x": getattr(run.history, x), "y": getattr(run.history, y)}
        frames.append(pandas.DataFrame({"round": [*run.history.round[:-1], math.inf], **columns}))
    rounds = pandas.concat(frames).groupby("round")
    means = rounds.agg(x=("x", "mean"), y=("y", "mean"), std=("y", "std"), count=("y", "count"))
    return means[means["count"] == len(runs)]


def fit_exponents(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the least-squares slopes of log y by log x, with x of shape (points,) and y of (..., points).

    A slope is NaN for fewer than `MIN_FIT_POINTS` points, or for any y <= 0.
    """
    if len(x) < MIN_FIT_POINTS:
        return np.full(y.shape[:-1], np.nan)
    log_x = np.log(x) - np.mean(np.log(x))
    return np.asarray(np.log(np.where(y > 0, y, np.nan)) @ log_x / (log_x @ log_x))
