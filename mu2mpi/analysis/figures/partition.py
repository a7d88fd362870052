"""Who got what: the share of each class among the samples that each machine spent."""

from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.style import Figure, Page, canvas
from mu2mpi.analysis.groups import grouped
from mu2mpi.analysis.settings import varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result

MOST_PANELS, MOST_NAMES = 4, 20
DECIDING = ("data", "machines", "partition")
"""Settings that decide who gets what, but for the seed."""


def draw(runs: Sequence[Summary], page: Page) -> Figure:
    """Draw a panel for each partition, with a row a machine and a column a class.

    Of runs that differ in the seed or in what does not decide the partition, the first is drawn.
    """
    names = [name for name in varying(runs) if name in DECIDING]
    groups = grouped(runs, names)
    if len(groups) > MOST_PANELS:
        raise InputError(
            f"{len(groups)} partitions are too many for a figure; choose some with --where, by "
            + " or ".join(names)
        )
    figure, axes = canvas(page, 1, len(groups), 3.4, [page.words.of(group.settings) for group in groups])
    for panel, group in zip(axes[0], groups, strict=True):
        result = read_result(path := group.runs[0].path)
        if (counts := result.class_counts) is None:
            raise InputError(f"{path} does not hold which machine got which classes: it has no diagnostics")
        labels = result.class_names or tuple(map(str, range(counts.shape[1])))
        shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
        panel.grid(visible=False)
        panel.set_xlabel("class" if result.label_range is None else "part of the label's range")
        owners = None if result.accounts is None else result.accounts.owners
        if owners is not None and len(owners) <= MOST_NAMES:
            panel.set_yticks(range(len(owners)), owners)
        else:
            panel.locator_params(axis="y", integer=True)
        shown = panel.imshow(shares, "viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        if len(labels) <= MOST_NAMES:
            rotation, side = (45, "right") if max(map(len, labels)) > 2 else (0, "center")
            panel.set_xticks(range(len(labels)), labels, rotation=rotation, ha=side)
    axes[0, 0].set_ylabel("machine")
    figure.colorbar(shown, ax=axes, label="share of the machine's samples", shrink=0.9, aspect=30)
    seed = groups[0].runs[0].experiment.seed
    if seed is not None and len({run.experiment.seed for run in runs}) > 1:
        figure.suptitle(f"seed {seed}", fontsize=9)
    return figure
