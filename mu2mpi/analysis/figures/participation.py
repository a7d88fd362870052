"""Loss against the share of machines that takes part in a round, a line for each method and its noise."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.cells import estimate, sort_key
from mu2mpi.analysis.figures.curves import (
    MOST_PANELS,
    bars_handle,
    draw_means,
    encoded,
    loss_words,
    plain_log_ticks,
)
from mu2mpi.analysis.figures.style import Axes, Figure, Theme, canvas, handle, with_legend
from mu2mpi.analysis.groups import Group, grouped, in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

APART = ("participation", "participation_seed", "rounds", "samples", "batch")
"""Settings that follow from the share, or may be others with each."""

OWN = ("method", "mechanism", "estimator", "query", "noise_correlation", "noise_buffers", "clip_norm")
"""Settings in which lines may differ."""

FEWEST = 3
"""Shares that make an exponent."""


def draw(runs: Sequence[Summary], theme: Theme) -> Figure:
    """Draw excess losses where they are known, and else test losses, with fitted exponents of the share."""
    shares = {id(run): _share(run) for run in runs}
    if len(set(shares.values())) < 2:
        raise InputError(
            "participation is drawn of runs that differ in --participation all, uniform:m or bernoulli:p, "
            "such as those of jobs/participation.toml"
        )
    names = [name for name in varying(runs) if name not in APART]
    own = [name for name in names if name in OWN]
    groups = sorted(grouped(runs, names), key=lambda group: sort_key(_own(group, own)))
    panels = _panels(groups, [name for name in names if name not in own])
    encoding = encoded(groups, theme, panels=(), colours=own, styles=())
    looks = {_own(group, own): look for group, _, look in encoding.groups}
    figure, axes = canvas(1, len(panels), 3.6, list(panels))
    barred = False
    for panel, here in zip(axes[0], panels.values(), strict=True):
        for group in here:
            barred |= _draw_line(panel, group, shares, looks[_own(group, own)])
        across = sorted({shares[id(run)] for group in here for run in group.runs})
        panel.set(xscale="log", xlabel="share of machines there", ylabel=_measured(here)[1])
        plain_log_ticks(panel.xaxis, across)
        if panel.get_yscale() == "log":
            plain_log_ticks(panel.yaxis, _round_numbers(*panel.get_ylim()))
    words = {_own(group, own): _words(group.runs[0]) for group in groups}
    lines = [handle(words[key], **look) for key, look in looks.items()]
    exponents = handle("numbers: fitted exponents of the share", linestyle="")
    return with_legend(figure, [*lines, *[bars_handle(theme)] * barred, exponents])


def _share(run: Summary) -> float:
    """Return which share of the machines is expected in a round."""
    kind, _, value = (run.experiment.participation or "all").partition(":")
    match kind:
        case "all":
            return 1.0
        case "uniform":
            return int(value) / (run.experiment.machines or 1)
        case "bernoulli":
            return float(value)
    raise InputError(f"{run.path} has participation = {kind}, which has no share; choose others with --where")


def _own(group: Group, own: Sequence[str]) -> tuple[Any, ...]:
    return tuple(group.settings[name] for name in own)


def _panels(groups: Sequence[Group], names: Sequence[str]) -> dict[str, list[Group]]:
    """Return the groups of each panel by its title: the data, and in what else panels of these differ."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        data = group.runs[0].experiment.data
        alike = [g for g in groups if g.runs[0].experiment.data == data]
        differ = [name for name in names if len({g.settings[name] for g in alike}) > 1]
        shown = {"data": data, **{name: group.settings[name] for name in differ}}
        title = "\n".join(in_words({name: value}) for name, value in shown.items())
        found.setdefault(title, []).append(group)
    if len(found) > MOST_PANELS:
        words = "; ".join(found).replace("\n", ", ")
        raise InputError(
            f"these runs make {len(found)} panels ({words}), too many for a figure; choose some, "
            "for example with --where rho=..."
        )
    return found


def _words(run: Summary) -> str:
    """Return what a line is called: the method, and what becomes of its noise."""
    method, power = run.experiment.chosen_method, run.experiment.noise_correlation
    if power:
        return f"{method.title}, noise_correlation = {power:g}"
    if method.estimator.lasts:
        return f"{method.title}, noise {'taken back' if power is None else 'added up'}"
    return method.title


def _measured(groups: Sequence[Group]) -> tuple[str, str]:
    """Return which loss is known of all runs of a panel, and what its axis says."""
    runs = [run for group in groups for run in group.runs]
    known = all(math.isfinite(run.figures.get("excess_loss", math.nan)) for run in runs)
    return ("excess_loss", loss_words(runs, "excess loss")) if known else ("test_loss", loss_words(runs))


def _round_numbers(low: float, high: float) -> list[float]:
    """Return the numbers of one digit in a range; of a narrow one evenly spread ones, of a wide one fewer."""
    if high < 2 * low:
        from matplotlib.ticker import MaxNLocator

        return [n for n in MaxNLocator(5).tick_values(low, high) if low <= n <= high]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    digits = (1, 2, 3, 5) if high > 5 * low else range(1, 10)
    return [n for k in powers for d in digits if low <= (n := float(f"{d}e{k}")) <= high]


def _draw_line(panel: Axes, group: Group, shares: dict[int, float], look: dict[str, Any]) -> bool:
    """Draw means over seeds, with bars; and of excess losses, the slope in logarithms."""
    name, _ = _measured([group])
    points: dict[float, list[float]] = {}
    for run in group.runs:
        points.setdefault(shares[id(run)], []).append(run.row[name])
    across = sorted(points)
    found = [estimate(points[share]) for share in across]
    barred = draw_means(panel, across, found, 1.0, **look)
    means = np.array([point.mean for point in found])
    if name == "excess_loss" and len(across) >= FEWEST and np.all(means > 0):
        panel.set_yscale("log")
        slope = np.polyfit(np.log(across), np.log(means), 1)[0]
        top = across[0], means[0] + np.nan_to_num(found[0].deviation)
        place: dict[str, Any] = {"xytext": (-4, 3), "textcoords": "offset points", "fontsize": 7}
        panel.annotate(f"{slope:.2f}".replace("-", "−"), top, color=look["color"], **place)
    return barred
