"""Excess loss against n, M, d and rho, with fitted exponents beside those of Theorems 5.2 and 6.2.

The theorems bound the worst case over problems; on a single problem the excess loss may fall faster, as
1 / (nM) instead of its root. Runs that differ in the population's `margin` or `label_noise` alone are
therefore combined, and at each point the problem with the largest mean counts. Runs without noise belong to
the statistical regime, the others to the private regime.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from mu2mpi.analysis.figures._encoding import MIN_FIT_POINTS, encode_groups, fit_exponents, loss_label
from mu2mpi.analysis.figures.figure import DASHES, Figure, FigureOptions, Layout, legend_entry, set_log_ticks
from mu2mpi.analysis.setting_labels import (
    AVERAGED_SETTINGS,
    GroupKey,
    RunGroup,
    comparable_settings,
    group_runs,
    selection_error,
)
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup, register
from mu2mpi.results.reader import RunSummary

PROBLEM_SETTINGS = ("margin", "label_noise")  # settings of a population over which the maximum is taken
BOOTSTRAP_SAMPLES = 2000


class RateVariable(NamedTuple):
    """Quantity on which the excess loss depends."""

    symbol: str
    name: str
    setting: str  # that changes it
    column: str  # of `RunSummary.table_row` with its value


RATE_VARIABLES = (
    RateVariable("n", "samples of each machine", "rounds", "rounds"),
    RateVariable("M", "machines", "machines", "machines"),
    RateVariable("d", "parameters", "classes", "parameters"),
    RateVariable("ρ", "privacy", "rho", "rho"),
)
RATE_VARIABLE_SETTINGS = ("epsilon", *(variable.setting for variable in RATE_VARIABLES))

# Exponents in 1/sqrt(nM), and in sqrt(d)/(rho n sqrt M) (Theorem 5.2) or sqrt(d)/(rho n M) (Theorem 6.2)
STATISTICAL_EXPONENTS = {"n": -1 / 2, "M": -1 / 2, "d": 0.0}
PRIVATE_EXPONENTS = {"n": -1.0, "d": 1 / 2, "ρ": -1.0}
REGIME_TITLES = {False: "without noise", True: "private"}

MARKER_SYMBOLS = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼"}  # text like matplotlib's markers
MIN_INTERVAL_WIDTH_INCHES = 1.7  # width of a panel in which exponents have their intervals
BOUND_STYLE: dict[str, Any] = {"linestyle": ":", "linewidth": 1.0}
SINGLE_PROBLEM_STYLE: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}


@dataclass(frozen=True, eq=False)
class FittedRate(RunGroup):
    """Runs that differ in one variable, in problem and seed, with fitted exponents; NaN if unknown."""

    variable: RateVariable
    values: FloatArray  # of the variable; shape (points,)
    mean_losses: FloatArray  # of the excess loss over seeds; shape (problems, points)
    worst_problem_losses: FloatArray  # largest mean over problems; shape (points,)
    theorem_bounds: FloatArray  # shape (points,)
    exponent: float  # least-squares slope of log `worst_problem_losses`
    exponent_low: float  # ends of the 95 % bootstrap interval over seeds
    exponent_high: float

    @property
    def is_private(self) -> bool:
        """Whether the runs have privacy noise."""
        rho = self.settings.get("rho")
        # rho is no common setting along its own line, or where epsilon was given.
        return rho is None or math.isfinite(rho)

    @property
    def theorem_exponent(self) -> float:
        """Exponent of the variable in the leading term of Theorem 5.2 or 6.2."""
        if not self.is_private:
            return STATISTICAL_EXPONENTS[self.variable.symbol]
        protects_sum_only = lookup("servers", self.settings["server"]).protects_sum_only
        return (PRIVATE_EXPONENTS | {"M": -1.0 if protects_sum_only else -1 / 2})[self.variable.symbol]


def fit_rates(runs: Sequence[RunSummary]) -> list[FittedRate]:
    """Fit an exponent to each group of runs with known excess losses that differ in one variable."""
    measured = [run for run in runs if math.isfinite(run.measurements.get("excess_loss", math.nan))]
    private = [run for run in measured if math.isfinite(run.experiment.rho)]
    rates, get_row = [], comparable_settings(runs)
    for variable in RATE_VARIABLES:
        is_rho = variable.setting == "rho"
        varied = {variable.setting, *AVERAGED_SETTINGS, *PROBLEM_SETTINGS, *["epsilon"] * is_rho}
        fixed = [name for name in option_fields() if name not in varied]
        for line in group_runs(private if is_rho else measured, fixed, get_row):
            if len({run.table_row[variable.column] for run in line.runs}) >= MIN_FIT_POINTS:
                rates.append(_fit_rate(variable, line.settings, line.runs))
    return rates


def _fit_rate(variable: RateVariable, settings: dict[str, Any], runs: list[RunSummary]) -> FittedRate:
    # A run without --seed has a secret seed of its own.
    seeds = [str(run.path if run.experiment.seed is None else run.experiment.seed) for run in runs]
    problems = [str([getattr(run.experiment, name) for name in PROBLEM_SETTINGS]) for run in runs]
    codes = [pandas.factorize(np.array(labels))[0] for labels in (seeds, problems)]
    frame = pandas.DataFrame([run.measurements for run in runs])
    keys = [*codes, [run.table_row[variable.column] for run in runs]]
    table = frame["excess_loss"].groupby(keys).last().unstack(2).unstack(1)
    bounds = frame["excess_loss_bound"].groupby(keys[2]).last()
    # Shape (seeds, values, problems).
    losses, values = table.to_numpy().reshape(len(table), len(bounds), -1), bounds.index.to_numpy(float)
    mean_losses = _mean_losses(losses, np.ones((1, len(losses))))[0]
    worst_problem_losses = np.nanmax(mean_losses, axis=1)
    equal = [1 / len(losses)] * len(losses)
    weights = np.random.default_rng(0).multinomial(len(losses), equal, BOOTSTRAP_SAMPLES)
    slopes = fit_exponents(values, np.nan_to_num(_mean_losses(losses, weights), nan=-np.inf).max(axis=2))
    finite = slopes[np.isfinite(slopes)]
    # Too many resamples lack a point if the points have different seeds.
    is_known = 2 * finite.size >= slopes.size
    low, high = np.quantile(finite, [0.025, 0.975]) if is_known else (math.nan, math.nan)
    exponent = float(fit_exponents(values, worst_problem_losses))
    arrays = values, mean_losses.T, worst_problem_losses, bounds.to_numpy()
    return FittedRate(settings, runs, variable, *arrays, exponent, float(low), float(high))


def _mean_losses(losses: FloatArray, weights: NDArray[Any]) -> FloatArray:
    """Return mean losses over seeds for each row of seed weights; shape (rows, values, problems)."""
    known = np.isfinite(losses)
    with np.errstate(invalid="ignore"):
        sums = np.tensordot(weights, np.where(known, losses, 0.0), axes=1)
        return np.asarray(sums / np.tensordot(weights, known.astype(float), axes=1))


@register
class RatesFigure(Figure):
    name = "rates"

    def draw(self, runs: Sequence[RunSummary], options: FigureOptions, x_axis: str | None = None) -> Layout:
        """Draw excess losses in a panel for each regime (with or without noise) and variable."""
        rates = fit_rates(runs)
        if not rates:
            required = f"{MIN_FIT_POINTS} or more values of rounds, machines, classes or rho"
            raise InputError(f"rates need excess losses at {required}. Use runs as those of jobs/rates.toml")
        ylabel = loss_label(runs, "excess loss")
        names = [name for name in rates[0].settings if name not in (*RATE_VARIABLE_SETTINGS, "server")]
        differ = [name for name in names if len({rate.settings[name] for rate in rates}) > 1]
        if len({tuple(rate.settings[name] for name in differ) for rate in rates}) > len(DASHES):
            raise selection_error("these runs differ in too many settings for one figure", differ[0])
        encoding = encode_groups(rates, options, (), ("server",), differ)
        styles = {_fixed_setting_values(rate): (rate, style) for rate, _, style in encoding.groups}
        lines: dict[tuple[bool, RateVariable, GroupKey], FittedRate] = {}
        for rate in rates:
            first = lines.setdefault((rate.is_private, rate.variable, _fixed_setting_values(rate)), rate)
            if first is not rate:
                names = [name for name in rate.settings if rate.settings[name] != first.settings[name]]
                problem = f"lines against {rate.variable.symbol} differ in {', '.join(names)} alone"
                raise selection_error(f"{problem}, which one figure cannot show", names[0])
        by_panel = {
            (regime, variable): fitted
            for regime, variable in product((False, True), RATE_VARIABLES)
            if (fitted := [r for r in rates if (r.is_private, r.variable) == (regime, variable)])
        }
        titles = [REGIME_TITLES[regime] for regime, _ in by_panel]
        layout = Layout(options, 1, len(by_panel), 2.4, titles, min_height=0.7)
        (grid_rows, grid_columns), limits = layout.grid.shape, {}
        for regime, _ in by_panel:
            in_regime = [rate for rate in rates if rate.is_private == regime]
            losses = np.concatenate([[*rate.theorem_bounds, *rate.mean_losses.flat] for rate in in_regime])
            limits[regime] = losses[losses > 0].min() / 1.3, losses[losses > 0].max() * 1.3
        # Height of a line of text, relative to a panel: panels of more rows are lower.
        line_share = min(0.12, 0.055 * grid_rows)
        text_share = line_share * (1 + max(map(len, by_panel.values())))
        has_intervals = options.width >= MIN_INTERVAL_WIDTH_INCHES * grid_columns
        for panel, ((regime, variable), fitted) in zip(layout.panels[0], by_panel.items(), strict=True):
            for k, rate in enumerate(reversed(fitted)):
                style = styles[_fixed_setting_values(rate)][1]
                _draw_rate(panel, rate, style)
                text = f"{MARKER_SYMBOLS[style['marker']]} {rate.exponent:.2f}"
                text += f" [{rate.exponent_low:.2f}, {rate.exponent_high:.2f}]" * has_intervals
                text = f"{text} ({Fraction(rate.theorem_exponent)})".replace("-", "−")
                place = {"x": 0.02, "y": 0.02 + line_share * k, "transform": panel.transAxes}
                panel.text(s=text, color=style["color"], fontsize=5.6, in_layout=False, **place)
            panel.set_yscale("log")
            set_log_ticks(panel.xaxis, (value for rate in fitted for value in rate.values))
            low, high = limits[regime]
            # Reserve space for the text below the lines.
            panel.set_ylim(low * (low / high) ** (text_share / (1 - text_share)), high)
            panel.set(xlabel=f"{variable.symbol}  ({variable.name})", ylabel=ylabel)
        labelled = ["server", *differ] if len({rate.settings["server"] for rate in rates}) > 1 else differ
        for group, style in styles.values():
            shown = {name: group.settings[name] for name in labelled}
            label = options.labels.settings(shown) if shown else "measured"
            layout.legend.append(legend_entry(label, **style))
        layout.legend.append(legend_entry("the theorem's bound", **BOUND_STYLE))
        has_problems = any(len(rate.mean_losses) > 1 for rate in rates)
        layout.legend += [legend_entry("single problems", **SINGLE_PROBLEM_STYLE)] * has_problems
        text = f"fitted exponent {'[95 %] ' * has_intervals}(theorem's)"
        layout.legend.append(legend_entry(text, linestyle="", marker="o"))
        unused = len(runs) - len({id(run) for rate in rates for run in rate.runs})
        remark = f"{unused:,} of {len(runs):,} runs belong to no line of {MIN_FIT_POINTS} points"
        layout.legend += [legend_entry(remark, linestyle="")] * (unused > 0)
        return layout


def _fixed_setting_values(rate: RunGroup) -> GroupKey:
    return tuple(value for name, value in rate.settings.items() if name not in RATE_VARIABLE_SETTINGS)


def _draw_rate(panel: Any, rate: FittedRate, style: dict[str, Any]) -> None:
    panel.plot(rate.values, rate.worst_problem_losses, **style)
    panel.plot(rate.values, rate.theorem_bounds, color=style["color"], **BOUND_STYLE)
    if len(rate.mean_losses) > 1:
        panel.plot(rate.values, rate.mean_losses.T, color=style["color"], **SINGLE_PROBLEM_STYLE)
