"""Share of each class that each machine got: a diagnostic, which the guarantee does not cover."""

from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures.figure import Figure, Page, Sheet, short
from mu2mpi.analysis.setting_labels import grouped, refusal, varying
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import Summary, read_result

MAX_PANELS, MAX_NAMES = 4, 20


@register
class PartitionFigure(Figure):
    name = "partition"

    def is_reported(self, _: Sequence[Summary]) -> bool:
        return False  # A report is made to be shown around.

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw a panel for each partition, of its first run, with a row a machine and a column a class."""
        names = [name for name in varying(runs) if name in ("data", "machines", "partition")]
        groups = grouped(runs, names)
        if len(groups) > MAX_PANELS:
            raise refusal(f"{len(groups)} partitions are too many for a figure", names[0])
        sheet = Sheet(page, 1, len(groups), 2.4, [page.words.of(group.settings) for group in groups])
        for panel, group in zip(sheet.panels[0], groups, strict=True):
            result = read_result(path := group.runs[0].path)
            if (counts := result.class_counts) is None:
                raise InputError(f"{path} has no diagnostics, which hold the classes of each machine")
            labels = result.class_names or tuple(map(str, range(counts.shape[1])))
            shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
            panel.grid(visible=False)
            panel.set_xlabel("class" if result.label_range is None else "part of the label's range")
            panel.set_ylabel("machine")
            owners = None if result.accounts is None else result.accounts.owners
            panel.locator_params(integer=True)
            if owners is not None and len(owners) <= MAX_NAMES:
                panel.set_yticks(range(len(owners)), map(short, owners))
            if len(labels) <= MAX_NAMES:
                panel.set_xticks(range(len(labels)), map(short, labels))
            shown = panel.imshow(shares, "viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        sheet.add_colorbar(shown, "share of the machine's samples")
        seed = groups[0].runs[0].experiment.seed
        if seed is not None and len({run.experiment.seed for run in runs}) > 1:
            sheet.title = f"seed {seed}"
        return sheet
