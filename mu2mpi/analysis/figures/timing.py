"""Where the time goes: seconds by phase for each rank of a run, or for each of several runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.figures.style import HATCHES, Theme, add_legend, canvas
from mu2mpi.analysis.groups import Group, grouped, in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_timing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw"]

MOST_BARS = 40


def draw(runs: Sequence[Summary], theme: Theme) -> "Figure":
    """Draw stacked bars: one a rank for runs that differ in the seed alone, one a group otherwise."""
    names = varying(runs)
    if len({run.figures["ranks"] for run in runs}) > 1:
        names.append("ranks")
    groups = grouped(runs, names)
    bars = _by_rank(groups[0]) if len(groups) == 1 else _by_group(groups)
    if not any(len(seconds) for _, seconds in bars):
        raise InputError("these results hold no times")
    if len(bars) > MOST_BARS:
        raise InputError(f"{len(bars)} bars are too many for a figure; choose some runs with --where")
    phases = list(bars[0][1])
    figure, axes = canvas(1, 1, 1.2 + 0.24 * len(bars))
    panel = axes[0, 0]
    place = np.arange(len(bars))
    left = np.zeros(len(bars))
    patches = []
    for phase, colour, hatch in zip(phases, theme.colours(len(phases)), HATCHES, strict=False):
        widths = np.array([seconds.get(phase, 0.0) for _, seconds in bars])
        patches.append(
            panel.barh(place, widths, 0.72, left, color=colour, hatch=hatch, label=phase,
                       edgecolor=theme.paper, linewidth=0.6)
        )  # fmt: skip
        left += widths
    panel.set_yticks(place, [label for label, _ in bars])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    seeds = max(len(group.runs) for group in groups)
    over = (["ranks"] if len(groups) > 1 else []) + ([f"{seeds} seeds"] if seeds > 1 else [])
    panel.set_xlabel(f"time (s){': mean over ' if over else ''}{' and '.join(over)}")
    add_legend(figure, patches)
    return figure


def _by_rank(group: Group) -> list[tuple[str, dict[str, float]]]:
    """Return the seconds of each rank, as means over seeds; blocks of ranks where there are very many."""
    timings = [read_timing(run.path) for run in group.runs]
    means: dict[str, NDArray[np.float64]] = {
        phase: np.mean([timing[phase] for timing in timings], axis=0) for phase in timings[0]
    }
    ranks = len(next(iter(means.values()), ()))
    blocks = np.array_split(np.arange(ranks), min(ranks, MOST_BARS)) if ranks else []
    return [
        (_ranks_text(block), {phase: float(seconds[block].mean()) for phase, seconds in means.items()})
        for block in blocks
    ]


def _ranks_text(block: NDArray[np.int64]) -> str:
    return f"rank {block[0]}" if len(block) == 1 else f"ranks {block[0]} to {block[-1]}"


def _by_group(groups: Sequence[Group]) -> list[tuple[str, dict[str, float]]]:
    phases = [
        name for name in groups[0].runs[0].figures if name.endswith("_seconds") and name != "elapsed_seconds"
    ]
    return [
        (
            in_words(group.settings),
            {
                phase.removesuffix("_seconds"): float(np.mean([run.figures[phase] for run in group.runs]))
                for phase in phases
            },
        )
        for group in groups
    ]
