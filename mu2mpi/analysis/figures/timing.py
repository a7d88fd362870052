"""Where the time goes: seconds by phase for each rank of a run, or for each of several runs."""

from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.style import HATCHES, Figure, Page, canvas, with_legend
from mu2mpi.analysis.groups import Group, grouped
from mu2mpi.analysis.settings import varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result

MOST_BARS = 40

Bars = list[tuple[str, dict[str, float]]]
"""The label of each bar, and its seconds by phase."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw stacked bars: one a rank for runs that differ in the seed alone, one a group otherwise."""
    ranks_differ = len({run.figures["ranks"] for run in runs}) > 1
    groups = grouped(runs, varying(runs) + ["ranks"] * ranks_differ)
    bars = _by_rank(groups[0]) if len(groups) == 1 else _by_group(groups, page)
    if not any(seconds for _, seconds in bars):
        raise InputError("these results hold no times")
    if len(bars) > MOST_BARS:
        raise InputError(f"{len(bars)} bars are too many for a figure; choose some runs with --where")
    # Files of earlier versions have other phases.
    phases = list(dict.fromkeys(phase for _, seconds in bars for phase in seconds))
    figure, axes = canvas(page, 1, 1, 1.2 + 0.24 * len(bars))
    panel, left, patches = axes[0, 0], np.zeros(len(bars)), []
    for phase, colour, hatch in zip(phases, page.theme.colours(len(phases)), HATCHES, strict=False):
        widths = np.array([seconds.get(phase, 0.0) for _, seconds in bars])
        look = {"color": colour, "hatch": hatch, "edgecolor": page.theme.paper, "linewidth": 0.6}
        patches.append(panel.barh(range(len(bars)), widths, 0.72, left, label=phase, **look))
        left += widths
    panel.set_yticks(range(len(bars)), [label for label, _ in bars])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    repeats = max(len(group.runs) for group in groups)
    over = ["ranks"] * (len(groups) > 1) + [f"{repeats} runs"] * (repeats > 1)
    panel.set_xlabel(f"time (s){': mean over ' if over else ''}{' and '.join(over)}")
    return with_legend(figure, patches)


def _by_rank(group: Group) -> Bars:
    """Return the seconds of each rank, as means over runs; blocks of ranks where there are very many."""
    timings = [read_result(run.path).timing for run in group.runs]
    none = np.zeros(max((len(seconds) for timing in timings for seconds in timing.values()), default=0))
    phases = dict.fromkeys(phase for timing in timings for phase in timing)
    means = {phase: np.mean([timing.get(phase, none) for timing in timings], axis=0) for phase in phases}
    ranks = len(next(iter(means.values()), ()))
    blocks = np.array_split(np.arange(ranks), min(ranks, MOST_BARS)) if ranks else []
    bars = []
    for block in blocks:
        label = f"rank {block[0]}" if len(block) == 1 else f"ranks {block[0]} to {block[-1]}"
        bars.append((label, {phase: float(seconds[block].mean()) for phase, seconds in means.items()}))
    return bars


def _by_group(groups: Sequence[Group], page: Page) -> Bars:
    bars = []
    for group in groups:
        spent = [run.phases for run in group.runs]
        phases = dict.fromkeys(phase for of_run in spent for phase in of_run)
        means = {phase: sum(of_run.get(phase, 0.0) for of_run in spent) / len(spent) for phase in phases}
        bars.append((page.words.of(group.settings), means))
    return bars
