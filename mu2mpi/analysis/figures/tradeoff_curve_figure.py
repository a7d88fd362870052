"""Largest true-positive rate of any membership test by its false-positive rate, for each guarantee."""

import math
from collections.abc import Sequence

import numpy as np

from mu2mpi.analysis.figures._encoding import CHANNEL_LIMITS
from mu2mpi.analysis.figures.figure import FOREGROUND, Figure, FigureOptions, Layout, line_style, palette
from mu2mpi.analysis.setting_labels import selection_error, varying_settings
from mu2mpi.core.registry import register
from mu2mpi.core.text import rounded_up
from mu2mpi.privacy.accounting.tradeoff import REPORTED_RATES, TradeoffCurve
from mu2mpi.results.reader import RunSummary

MIN_RATE = 1e-4  # lower end of both axes


@register
class TradeoffCurveFigure(Figure):
    name = "tradeoff-curve"
    required_column = "mu"

    def is_in_report(self, runs: Sequence[RunSummary]) -> bool:
        return any(math.isfinite(run.measurements.get("mu", math.nan)) for run in runs)

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw the rates that the guarantees allow, with points at the rates that files state."""
        groups: dict[tuple[float, str], list[RunSummary]] = {}
        for run in sorted(runs, key=lambda run: run.measurements["mu"]):
            # Sampler errors differ slightly between runs of the same claim.
            mu = float(rounded_up(run.measurements["mu"]))
            groups.setdefault((mu, run.experiment.chosen_mechanism), []).append(run)
        if len(groups) > CHANNEL_LIMITS["colours"]:
            raise selection_error(f"these runs have {len(groups)} guarantees, too many for one figure", "rho")
        layout, varying = Layout(options, 1, 1, 3.0), varying_settings(runs)
        panel, marked = layout.panels[0, 0], [*REPORTED_RATES.values()]
        fprs = np.union1d(np.geomspace(MIN_RATE, 1, 200), marked)
        markers = np.flatnonzero(np.isin(fprs, marked)).tolist()
        for k, (((mu, _), subset), colour) in enumerate(
            zip(groups.items(), palette(len(groups)), strict=True)
        ):
            rows, privacy = [run.independent_settings for run in subset], subset[0].contents.privacy
            common = {name: rows[0][name] for name in varying if len({row[name] for row in rows}) == 1}
            prefix = f"{options.labels.settings(common)}: " if common else ""
            tprs = [*map(TradeoffCurve(privacy.guarantee, privacy.delta).tpr, fprs.tolist())]
            style = line_style(colour, k, k) | {"label": f"{prefix}μ = {options.labels.value('mu', mu)}"}
            layout.legend += panel.plot(fprs, tprs, markevery=markers, **style)
        layout.legend += panel.plot(fprs, fprs, label="guessing", color=FOREGROUND, ls=":", lw=0.9)
        panel.set(xscale="log", yscale="log", xlim=(MIN_RATE, 1), ylim=(MIN_RATE, 1))
        panel.set(xlabel="false-positive rate", ylabel="true-positive rate, at most")
        return layout
