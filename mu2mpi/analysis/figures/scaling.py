"""Time per round against the number of ranks: strong scaling beside weak scaling."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.cells import estimate, sort_key
from mu2mpi.analysis.figures.curves import draw_means, plain_log_ticks
from mu2mpi.analysis.figures.style import Figure, Theme, canvas, dashed, handle, with_legend
from mu2mpi.analysis.groups import in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

Series = dict[tuple[Any, ...], dict[int, list[float]]]

IDEAL: dict[str, Any] = {"linestyle": ":", "linewidth": 0.9}


def seconds_per_round(run: Summary) -> float:
    """Return the wall-clock time of a round, without what was spent on evaluation."""
    seconds = run.figures["elapsed_seconds"] - run.figures.get("evaluation_seconds", 0.0)
    return seconds / (run.experiment.rounds or 1)


def draw(runs: Sequence[Summary], theme: Theme) -> Figure:
    """Draw a panel for runs of equal M, and one for runs of equal M per rank; ideal scaling is dotted."""
    names = [name for name in varying(runs) if name not in ("machines", "rounds")]
    strong = _series(runs, names, lambda run: run.experiment.machines or 0)
    weak = _series(runs, names, lambda run: (run.experiment.machines or 0) / run.figures["ranks"])
    both = (
        ("strong scaling: the same machines on more ranks", strong, "M = {:,}", -1.0),
        ("weak scaling: more machines on more ranks", weak, "M = {:g} per rank", 0.0),
    )
    panels = [panel for panel in both if panel[1]]
    if not panels:
        raise InputError(
            "scaling needs runs of the same machines, or of the same machines per rank, on different numbers "
            "of ranks, such as those of jobs/scaling.sbatch"
        )
    figure, axes = canvas(1, len(panels), 3.3, [title for title, *_ in panels], sharey=True)
    colours = theme.colours(sum(len(series) for _, series, _, _ in panels))
    legend: list[Any] = []
    for panel, (_, series, word, slope) in zip(axes[0], panels, strict=True):
        for (machines, *others), points in series.items():
            k = len(legend)
            look = {"color": colours[k], **dashed(k, k)}
            ranks, times = np.array(list(points)), [estimate(times) for times in points.values()]
            draw_means(panel, ranks, times, **look)
            panel.plot(ranks, times[0].mean * (ranks / ranks[0]) ** slope, color=theme.ink, **IDEAL)
            words = [word.format(machines), in_words(dict(zip(names, others, strict=True)))]
            legend.append(handle(", ".join(filter(None, words)), **look))
        panel.set(xscale="log", yscale="log", xlabel="MPI ranks")
        plain_log_ticks(panel.xaxis, sorted({ranks for points in series.values() for ranks in points}))
    axes[0, 0].set_ylabel("time per round (ms)")
    return with_legend(figure, [*legend, handle("ideal", color=theme.ink, **IDEAL)])


def _series(runs: Sequence[Summary], names: Sequence[str], shared: Callable[[Summary], Any]) -> Series:
    """Return milliseconds by ranks for each value of `shared` and of the settings, where ranks differ."""
    series: Series = {}
    for run in runs:
        points = series.setdefault((shared(run), *(run.row[name] for name in names)), {})
        points.setdefault(int(run.figures["ranks"]), []).append(1e3 * seconds_per_round(run))
    order = sorted(series, key=sort_key)
    return {key: dict(sorted(series[key].items())) for key in order if len(series[key]) > 1}
