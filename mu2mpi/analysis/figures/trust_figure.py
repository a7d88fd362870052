"""Loss against the number of machines M, for each trust mode and share of colluders."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from mu2mpi.analysis.figures._encoding import (
    CHANNEL_LIMITS,
    VisualEncoding,
    dodged_places,
    encode_groups,
    fit_exponent,
    loss_label,
    varying_settings_within_data,
)
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout, legend_entry, set_log_ticks
from mu2mpi.analysis.setting_labels import (
    colluders_getter,
    format_share,
    group_by_columns,
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
        varying = [*privacy_settings(runs), *varying_settings_within_data(runs)]
        unpooled = (name for name in varying if name not in POOLED_SETTINGS)
        panels = [*dict.fromkeys("method" if name in METHOD_SETTINGS else name for name in unpooled)]

        def get_row(run: RunSummary) -> dict[str, Any]:
            title = {"method": run.experiment.chosen_method.title} if "method" in panels else {}
            trust_mode = {"server": run.experiment.server, "share": colluders(run)}
            return {**run.independent_settings, **title, **trust_mode}

        def line_label(run: RunSummary) -> str:
            server, share = options.labels.settings({"server": run.experiment.server}), colluders(run)
            if share is None:
                return server
            return f"{server}, {options.labels.name('colluders')} = {format_share(share)}"

        for point in group_by_columns(runs, [*panels, "server", "share", "machines"], get_row).values():
            simulated = point[0].experiment.trust_mode.simulation_options
            if differ := [name for name in varying_settings(point) if name not in simulated]:
                line = f"{line_label(point[0])}, and M = {point[0].experiment.machines}"
                raise selection_error(f"runs of {line} differ in {', '.join(differ)}", differ[0])
        groups = group_runs(runs, ["data", *panels, "server", "share"], get_row)
        encoding = encode_groups(groups, options, ["data", *panels], ["server"], ["share"])
        if (count := len(encoding.titles)) > CHANNEL_LIMITS["panels"]:
            needs = f"{count} panels ({'; '.join(encoding.titles)})"
            raise selection_error(f"these runs need {needs}, too many for one figure", "rho")
        return _draw_losses(encoding, options, line_label)


def _draw_losses(
    encoding: VisualEncoding, options: FigureOptions, line_label: Callable[[RunSummary], str]
) -> Layout:
    """Draw excess losses with fitted exponents, or test losses where excess losses are unknown."""
    count = len(encoding.titles)
    layout = Layout(options, 1, count, 2.6, encoding.titles)
    exponents: dict[str, list[str]] = {}
    styles: dict[str, dict[str, Any]] = {}
    for group, k, style in encoding.groups:
        panel, line = layout.panels[0, k], line_label(group.runs[0])
        neighbours = [neighbour for neighbour, j, _ in encoding.groups if j == k]
        in_panel = [run for neighbour in neighbours for run in neighbour.runs]
        ticks = sorted({*map(_machines, in_panel)})
        places = dodged_places(ticks, neighbours.index(group), len(neighbours), is_log=True)
        is_known = all(math.isfinite(run.measurements.get("excess_loss", math.nan)) for run in in_panel)
        column = "excess_loss" if is_known else "test_loss"
        styles.setdefault(line, style)
        losses = [run.table_row[column] for run in group.runs]
        means = layout.draw_means(panel, [places[_machines(run)] for run in group.runs], losses, **style)
        texts = exponents.setdefault(line, ["–"] * count)
        if is_known and not math.isnan(slope := fit_exponent(means.index.to_numpy(), means.to_numpy())):
            texts[k] = f"{slope:z.2f}".replace("-", "−")
            panel.set_yscale("log")
        panel.set(xlabel="machines M", ylabel=loss_label(in_panel, column.replace("_", " ")))
        set_log_ticks(panel.xaxis, ticks)
    has_exponents = any(text != "–" for texts in exponents.values() for text in texts)
    for line, style in styles.items():
        label = f"{line}: {' | '.join(exponents[line])}" if has_exponents else line
        layout.legend.append(legend_entry(label, **style))
    if has_exponents:
        by_panel = ", panel by panel" * (count > 1)
        layout.legend.append(legend_entry(f"numbers: fitted exponents of M{by_panel}", linestyle=""))
    return layout


def _machines(run: RunSummary) -> int:
    return run.experiment.machines or 1
