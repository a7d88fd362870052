"""Share of each class among the samples of each machine: a diagnostic without privacy guarantee."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mu2mpi.analysis.figures.figure import MAX_DRAWN_MACHINES, Figure, FigureOptions, Layout, shorten_name
from mu2mpi.analysis.setting_labels import group_runs, selection_error, varying_settings
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary, read_result

MAX_PANELS = 4
MAX_TICK_LABELS = 20  # classes or machines with tick labels
SHARE_BINS = 10  # of the distribution of a class's share over many machines


@register
class PartitionFigure(Figure):
    name = "partition"

    def is_in_report(self, _: Sequence[RunSummary]) -> bool:
        return False  # Reports are shared, and this figure is not private.

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw one panel per partition, for its first run: one row per machine and one column per class.

        With more than `MAX_DRAWN_MACHINES` machines, each column is the distribution of the class's share.
        """
        varying = [name for name in varying_settings(runs) if name in ("data", "machines", "partition")]
        groups = group_runs(runs, varying)
        if len(groups) > MAX_PANELS:
            raise selection_error(f"{len(groups)} partitions are too many for one figure", varying[0])
        titles = [options.labels.settings(group.settings) for group in groups]
        layout = Layout(options, 1, len(groups), 2.4, titles)
        has_distributions = any((g.runs[0].experiment.machines or 1) > MAX_DRAWN_MACHINES for g in groups)
        for panel, group in zip(layout.panels[0], groups, strict=True):
            result = read_result(path := group.runs[0].path)
            if (counts := result.class_counts) is None:
                raise InputError(f"{path} has no diagnostics, which hold the class counts")
            labels = result.class_names or tuple(map(str, range(counts.shape[1])))
            shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
            panel.grid(visible=False)
            panel.set_xlabel("class" if result.label_range is None else "part of the label's range")
            panel.set_ylabel("share of the machine's samples" if has_distributions else "machine")
            panel.locator_params("x" if has_distributions else "both", integer=True)
            if len(labels) <= MAX_TICK_LABELS:
                panel.set_xticks(range(len(labels)), map(shorten_name, labels))
            owners = None if result.accounts is None else result.accounts.machine_owners
            if owners is not None and len(owners) <= MAX_TICK_LABELS and not has_distributions:
                panel.set_yticks(range(len(owners)), map(shorten_name, owners))
            look: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
            if has_distributions:
                used = shares[counts.any(axis=1)].T
                bins = [np.histogram(column, SHARE_BINS, (0, 1))[0] / max(1, len(column)) for column in used]
                shares = np.array(bins).T
                look |= {"origin": "lower", "extent": (-0.5, len(labels) - 0.5, 0, 1)}
            image = panel.imshow(shares, "viridis", vmin=0, vmax=1, **look)
        layout.add_colorbar(image, "share of the machine" + ("s" if has_distributions else "'s samples"))
        seed = groups[0].runs[0].experiment.seed
        if seed is not None and len({run.experiment.seed for run in runs}) > 1:
            layout.title = f"seed {seed}"
        return layout
