"""Loss against the number of machines M, for each trust mode and share of colluders."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from mu2mpi.analysis.figures._encoding import (
    CHANNEL_LIMITS,
    VisualEncoding,
    dodged_places,
    encode_groups,
    fit_exponent,
    loss_label,
)
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry, set_log_ticks
from mu2mpi.analysis.setting_labels import (
    RunGroup,
    colluders_getter,
    format_share,
    group_by_settings,
    group_runs,
    privacy_settings,
    selection_error,
    varying_settings,
)
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.results.reader import RunSummary

# Settings that lines and points encode, or that follow from them
POOLED_SETTINGS = ("server", "colluders", "masks", "machines", "rounds", "samples", "batch")
METHOD_SETTINGS = ("method", "estimator", "query")  # settings that identify a method


@register
class TrustFigure(Figure):
    name = "trust"
    required_column = "test_loss"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        sizes = {run.experiment.machines for run in runs}
        return len(sizes) > 1 and any(run.experiment.colluders is not None for run in runs)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw losses against M with fitted exponents, one panel per data set and privacy."""
        if len({run.experiment.machines for run in runs}) < 2:
            raise InputError("all runs have the same --machines. Use runs such as those of jobs/trust.toml")
        colluders = colluders_getter(runs)
        by_data = group_by_settings(runs, ["data"]).values()
        varying = [*privacy_settings(runs), *chain.from_iterable(map(varying_settings, by_data))]
        unpooled = (name for name in varying if name not in POOLED_SETTINGS)
        panels = [*dict.fromkeys("method" if name in METHOD_SETTINGS else name for name in unpooled)]

        def get_row(run: RunSummary) -> dict[str, Any]:
            labels = {"method": run.experiment.chosen_method.title, "share": colluders(run)}
            return {**run.independent_settings, "server": run.experiment.server, **labels}

        for point in group_runs(runs, [*panels, "server", "share", "machines"], get_row):
            simulated = point.runs[0].experiment.trust_mode.simulation_options
            if differ := [name for name in varying_settings(point.runs) if name not in simulated]:
                line = f"{_line_label(point, options)}, and M = {point.settings['machines']}"
                raise selection_error(f"runs of {line} differ in {', '.join(differ)}", differ[0])
        groups = group_runs(runs, ["data", *panels, "server", "share"], get_row)
        encoding = encode_groups(groups, options, ["data", *panels], ["server"], ["share"])
        if (count := len(encoding.titles)) > CHANNEL_LIMITS["panels"]:
            needs = f"{count} panels ({'; '.join(encoding.titles)})"
            raise selection_error(f"these runs need {needs}, too many for one figure", "rho")
        return _draw_losses(encoding, options)


def _line_label(group: RunGroup, options: FigureOptions) -> str:
    server, share = options.labels.setting("server", group.settings["server"]), group.settings["share"]
    return server + ("" if share is None else f", {options.labels.name('colluders')} = {format_share(share)}")


def _draw_losses(encoding: VisualEncoding, options: FigureOptions) -> Layout:
    """Draw excess losses with fitted exponents, or test losses where excess losses are unknown."""
    layout = Layout(options, 1, len(encoding.titles), 2.6, encoding.titles)
    styles: dict[str, dict[str, Any]] = {}
    exponents: dict[tuple[str, int], str] = {}  # by line and panel
    for k, panel in enumerate(layout.panels[0]):
        lines = [(group, style) for group, j, style in encoding.groups if j == k]
        in_panel = [run for group, _ in lines for run in group.runs]
        ticks = sorted({run.settings["machines"] for run in in_panel})
        is_known = all(math.isfinite(run.measurements.get("excess_loss", math.nan)) for run in in_panel)
        column = "excess_loss" if is_known else "test_loss"
        for i, (group, style) in enumerate(lines):
            line, places = _line_label(group, options), dodged_places(ticks, i, len(lines), is_log=True)
            styles.setdefault(line, style)
            x = [places[run.settings["machines"]] for run in group.runs]
            means = layout.draw_means(panel, x, [run.table_row[column] for run in group.runs], **style)
            if is_known and not math.isnan(slope := fit_exponent(means.index.to_numpy(), means.to_numpy())):
                exponents[line, k] = f"{slope:z.2f}".replace("-", "−")
                panel.set_yscale("log")
        panel.set(xlabel="machines M", ylabel=loss_label(in_panel, column.replace("_", " ")))
        set_log_ticks(panel.xaxis, ticks)
    panels = range(len(encoding.titles))
    for line, style in styles.items():
        numbers = ": " + " | ".join(exponents.get((line, k), "–") for k in panels) if exponents else ""
        layout.legend.append(legend_entry(line + numbers, **style))
    if exponents:
        by_panel = ", panel by panel" * (len(panels) > 1)
        layout.legend.append(legend_entry(f"numbers: fitted exponents of M{by_panel}", linestyle=""))
    return layout
