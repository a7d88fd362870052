"""Loss against the number of machines M, for each trust mode and share of colluders."""

from collections.abc import Sequence
from typing import Any

from mu2mpi.analysis.figures._encoding import draw_loss_with_exponents, varying_settings_within_data
from mu2mpi.analysis.figures.figure import Figure, FigureOptions, Layout
from mu2mpi.analysis.setting_labels import (
    colluders_getter,
    format_share,
    group_by_columns,
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
        channels = panels, ["server"], ["share"]
        axis = (lambda run: run.experiment.machines or 1), "machines M", "M"
        return draw_loss_with_exponents(runs, options, get_row, channels, *axis, line_label)
