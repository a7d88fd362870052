"""Time per round against the number of ranks, its efficiency and its phases: strong beside weak scaling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.style import HATCHES, Axes, Figure, Page, canvas, dashed, handle, with_legend
from mu2mpi.analysis.figures.ticks import plain_log_ticks
from mu2mpi.analysis.settings import own_settings, varying
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.results.reader import Summary

IDEAL: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}
MOST_SERIES = 5
HEIGHT, STACK_HEIGHT = 5.0, 1.5
"""Inches of the panels of times and efficiencies, with the legend, and of a panel of phases."""


def seconds_per_round(run: Summary) -> float:
    """Return the wall-clock time of a round, without what was spent on evaluation."""
    seconds = run.figures["elapsed_seconds"] - run.phases.get("evaluation", 0.0)
    return seconds / (run.experiment.rounds or 1)


def shares(run: Summary) -> dict[str, float]:
    """Return the share of each phase in the time of the rounds, as a mean over ranks.

    Of a run that went on from a checkpoint, the phases are known of the rounds since.
    """
    spent = {phase: seconds for phase, seconds in run.phases.items() if phase != "evaluation"}
    total = sum(spent.values()) or 1.0
    return {phase: seconds / total for phase, seconds in spent.items()}


@dataclass(frozen=True)
class Series:
    """Repeats of runs that differ in the number of ranks, and in machines as far as these go with ranks."""

    label: str
    points: dict[int, list[Summary]]
    growth: int
    """Power of the number of ranks that the work grows with: 0 for strong scaling, 1 for weak."""

    @property
    def ranks(self) -> NDArray[np.float64]:
        """The numbers of ranks in order."""
        return np.array([*self.points], float)

    @property
    def times(self) -> NDArray[np.float64]:
        """Median, least and most milliseconds per round, shape (3, numbers of ranks)."""
        runs = [[1e3 * seconds_per_round(run) for run in of] for of in self.points.values()]
        return np.array([[f(times) for times in runs] for f in (np.median, np.min, np.max)])

    @property
    def ideal(self) -> NDArray[np.float64]:
        """What a round would take if all ranks worked as well as the fewest."""
        times: NDArray[np.float64] = self.times[0, 0] * (self.ranks / self.ranks[0]) ** (self.growth - 1)
        return times

    @property
    def crowded(self) -> NDArray[np.bool_]:
        """Whether there were more ranks than cores, where it is known."""
        unlimited = {"cores": np.inf}
        limits = [min({**unlimited, **run.figures}["cores"] for run in of) for of in self.points.values()]
        return self.ranks > np.array(limits)


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw runs of equal M on the left, of equal M per rank on the right: times, efficiencies and phases.

    The same experiment on the same ranks is a repeat; points are medians.
    """
    names = [name for name in varying(runs) if name not in ("machines", "rounds")]
    titles = {
        "strong: the same machines on more ranks": _series(
            runs, names, page, 0, lambda run: run.experiment.machines or 0
        ),
        "weak: more machines on more ranks": _series(
            runs, names, page, 1, lambda run: (run.experiment.machines or 0) / run.figures["ranks"]
        ),
    }
    columns = {title: series for title, series in titles.items() if series}
    if not columns:
        raise InputError(
            "scaling needs runs of the same machines, or of the same machines per rank, on different numbers "
            "of ranks, such as those of jobs/scaling.sbatch"
        )
    stacks = max(map(len, columns.values()))
    if stacks > MOST_SERIES:
        raise InputError(f"{stacks} series are too many for a figure; choose some runs with --where")
    figure, axes = canvas(
        page, 2 + stacks, len(columns), HEIGHT + STACK_HEIGHT * stacks, [*columns],
        sharex="col", sharey="row", height_ratios=[2, 1.6] + [1] * stacks,
    )  # fmt: skip
    colours = page.theme.colours(sum(map(len, columns.values())))
    fills = _fills(runs, page)
    legend: list[Any] = []
    for column, of_column in zip(axes.T, columns.values(), strict=True):
        for series, stack in zip_longest(of_column, column[2:]):
            if series is None:
                stack.set_axis_off()
                continue
            look = {"color": colours[len(legend)], **dashed(len(legend), len(legend)), "label": series.label}
            legend.append(handle(series.label, **look))
            _draw_series(column[0], column[1], series, look, page)
            _draw_phases(stack, series, fills)
        column[1 + len(of_column)].set_xlabel("MPI ranks")
        column[1 + len(of_column)].tick_params(labelbottom=True)
        column[0].set(xscale="log", yscale="log")
        plain_log_ticks(column[0].xaxis, sorted({n for series in of_column for n in series.points}))
    for row, label in enumerate(["time per round (ms)", "efficiency (%)", *["share of time (%)"] * stacks]):
        axes[row, 0].set_ylabel(label)
    axes[1, 0].set_ylim(bottom=0)
    legend.append(handle("ideal", color=page.theme.ink, **IDEAL))
    everything = [series for of_column in columns.values() for series in of_column]
    if any(np.ptp(series.times, axis=0).any() for series in everything):
        legend.append(
            handle("bars: least to most", color=page.theme.ink, linestyle="", marker="|", markersize=9)
        )
    if any(series.crowded.any() for series in everything):
        legend.append(handle("hollow: more ranks than cores", color=page.theme.ink, **_hollow(page)))
    patch = needed("matplotlib.patches").Patch
    return with_legend(figure, [*legend, *(patch(label=phase, **fill) for phase, fill in fills.items())])


def _series(
    runs: Sequence[Summary], names: Sequence[str], page: Page, growth: int, shared: Callable[[Summary], Any]
) -> list[Series]:
    """Return the runs with the same value of `shared` and of the settings, where numbers of ranks differ."""
    found: dict[tuple[Any, ...], dict[int, list[Summary]]] = {}
    for run in runs:
        own = own_settings(run)
        points = found.setdefault((shared(run), *(own[name] for name in names)), {})
        points.setdefault(int(run.figures["ranks"]), []).append(run)
    word, series = ("M = {:g} per rank" if growth else "M = {:,}"), []
    for key in sorted((key for key, points in found.items() if len(points) > 1), key=sort_key):
        others = page.words.of(dict(zip(names, key[1:], strict=True)))
        label = ", ".join(filter(None, [word.format(key[0]), others]))
        series.append(Series(label, dict(sorted(found[key].items())), growth))
    return series


def _hollow(page: Page) -> dict[str, Any]:
    return {"linestyle": "", "marker": "o", "markerfacecolor": page.theme.paper}


def _fills(runs: Sequence[Summary], page: Page) -> dict[str, dict[str, Any]]:
    """Return how the bars of each phase look that took any time to speak of."""
    phases = dict.fromkeys(phase for run in runs for phase, share in shares(run).items() if share > 0.001)
    return {
        phase: {"facecolor": colour, "hatch": hatch, "edgecolor": page.theme.paper, "linewidth": 0.6}
        for phase, colour, hatch in zip(phases, page.theme.colours(len(phases)), HATCHES, strict=False)
    }


def _draw_series(times: Axes, efficiencies: Axes, series: Series, look: dict[str, Any], page: Page) -> None:
    """Draw medians with bars from the least to the most, and what is ideal as far as there are cores."""
    ranks, ideal, fair = series.ranks, series.ideal, ~series.crowded
    for panel, (middle, low, high), aim in (
        (times, series.times, ideal),
        (efficiencies, (100 * ideal / series.times)[[0, 2, 1]], np.full(len(ranks), 100.0)),
    ):
        spread = [middle - low, high - middle]
        panel.errorbar(ranks, middle, spread, capsize=2.5, elinewidth=0.9, **look)
        hollow = {**look, **_hollow(page), "marker": look["marker"]}
        panel.plot(ranks[~fair], middle[~fair], zorder=3, **hollow)
        panel.plot(ranks[fair], aim[fair], color=page.theme.ink, **IDEAL)


def _draw_phases(panel: Axes, series: Series, fills: dict[str, dict[str, Any]]) -> None:
    """Draw a bar for each number of ranks, of the shares of the phases; pale with more ranks than cores."""
    gap = np.diff(np.log(series.ranks)).min()
    left, right = series.ranks * np.exp(-0.35 * gap), series.ranks * np.exp(0.35 * gap)
    below = np.zeros(len(left))
    for phase, fill in fills.items():
        means = [np.mean([shares(run).get(phase, 0.0) for run in of]) for of in series.points.values()]
        heights = 100 * np.array(means)
        bars = panel.bar(left, heights, right - left, below, align="edge", **fill)
        for bar, crowded in zip(bars, series.crowded, strict=True):
            bar.set_alpha(0.5 if crowded else None)
        below += heights
    panel.set_title(series.label, loc="left")
    panel.set_ylim(0, 100)
