"""Excess loss against n, M, d and rho, with exponents beside the theorem's.

The theorems bound the expected excess loss for every problem, and on any one problem it may fall faster: by
1 / (nM) instead of its root once the samples tell where the minimum is. So runs that differ in the problem's
`margin` or `label_noise` alone are taken together, and at each point the problem with the largest mean
counts. Runs without noise belong to the statistical regime, others to the private one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from mu2mpi.analysis.figures._encoding import MIN_POINTS, encode_groups, loss_label
from mu2mpi.analysis.figures.figure import DASHES, INK, Figure, Page, Sheet, handle, log_ticks
from mu2mpi.analysis.setting_labels import POOLED, Group, Key, by_rows, colluders_of, refusal, share_text
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, register
from mu2mpi.results.reader import Summary

PROBLEM = ("margin", "label_noise")  # Settings that choose a problem, of which the worst counts
RESAMPLES = 2000


class Axis(NamedTuple):
    """One of the numbers that the rate depends on: its symbol, what it is, and which setting changes it."""

    symbol: str
    words: str
    setting: str

    def of(self, run: Summary) -> float:
        """Return its value in a run."""
        return float(run.figures["parameters"] if self.symbol == "d" else run.row[self.setting])


AXES = (
    Axis("n", "samples of each machine", "rounds"),
    Axis("M", "machines", "machines"),
    Axis("d", "parameters", "classes"),
    Axis("ρ", "privacy", "rho"),
)

ACROSS = ("epsilon", *(axis.setting for axis in AXES))

# Exponents of 1/sqrt(nM), of sqrt(d)/(rho n sqrt M) and of sqrt(d)/(rho n M), where that of M depends on
# whether noise hides sums: Theorems 5.2 and 6.2
STATISTICAL = {"n": -1 / 2, "M": -1 / 2, "d": 0.0}
PRIVATE = {"n": -1.0, "d": 1 / 2, "ρ": -1.0}
REGIMES = {False: "without noise, where both servers are one algorithm", True: "private"}

SHAPES = {"o": "●", "s": "■", "D": "◆", "^": "▲", "v": "▼"}  # Letters that look like markers
LINE = 0.07  # Height of a line of text, as a share of a panel
BOUND: dict[str, Any] = {"linestyle": ":", "linewidth": 1.0}
PROBLEMS: dict[str, Any] = {"linewidth": 0.5, "alpha": 0.4}


@dataclass(frozen=True, eq=False)
class Rate(Group):
    """Runs that differ along one axis, in the problem, and in the seed; NaN is what is not known."""

    axis: Axis
    values: NDArray[np.float64]  # along the axis
    means: NDArray[np.float64]  # over seeds, of the excess loss: shape (problems, points)
    worst: NDArray[np.float64]  # of the means
    bounds: NDArray[np.float64]  # of the theorem
    exponent: float  # slope of `worst` in logarithms by least squares
    low: float  # ends of its interval at 95 %, from resampled seeds
    high: float

    @property
    def is_private(self) -> bool:
        """Whether there was noise."""
        rho = self.settings.get("rho")
        # Along rho there is none, and where epsilon was given it follows.
        return rho is None or math.isfinite(rho)

    @property
    def theorem(self) -> float:
        """The exponent of the theorem's leading term."""
        if not self.is_private:
            return STATISTICAL[self.axis.symbol]
        hides_sums = find("servers", self.settings["server"]).hides_sums
        return (PRIVATE | {"M": -1.0 if hides_sums else -1 / 2})[self.axis.symbol]


def find_rates(runs: Sequence[Summary]) -> list[Rate]:
    """Find runs with measured excess losses that differ along one axis, and fit exponents to them."""
    measured = [run for run in runs if math.isfinite(run.figures.get("excess_loss", math.nan))]
    private = [run for run in measured if math.isfinite(run.experiment.rho)]
    rates, colluders = [], colluders_of(runs)

    def row_of(run: Summary) -> dict[str, Any]:
        share = colluders(run)
        return run.own_settings | {"colluders": None if share is None else share_text(share)}

    for axis in AXES:
        across = ("rho", "epsilon") if axis.setting == "rho" else (axis.setting,)
        names = [name for name in option_fields() if name not in (*POOLED, *PROBLEM, *across)]
        for key, line in by_rows(private if axis.setting == "rho" else measured, names, row_of).items():
            if len({axis.of(run) for run in line}) >= MIN_POINTS:
                rates.append(_fit(axis, dict(zip(names, key, strict=True)), line))
    return rates


def _fit(axis: Axis, settings: dict[str, Any], runs: list[Summary]) -> Rate:
    # Without a seed, every run has one of its own.
    seeds = [str(run.path if run.experiment.seed is None else run.experiment.seed) for run in runs]
    problems = [str([getattr(run.experiment, name) for name in PROBLEM]) for run in runs]
    numbers = [pandas.factorize(np.array(names))[0] for names in (seeds, problems)]
    frame = pandas.DataFrame([run.figures for run in runs])
    places = [*numbers, [axis.of(run) for run in runs]]
    table = frame["excess_loss"].groupby(places).last().unstack(2).unstack(1)
    bounds = frame["excess_loss_bound"].groupby(places[2]).last()
    # Shape (seeds, values, problems).
    losses, values = table.to_numpy().reshape(len(table), len(bounds), -1), bounds.index.to_numpy(float)
    means = _weighted_means(losses, np.ones((1, len(losses))))[0]
    worst = np.nanmax(means, axis=1)
    weights = np.random.default_rng(0).multinomial(len(losses), [1 / len(losses)] * len(losses), RESAMPLES)
    slopes = _slopes(values, np.nan_to_num(_weighted_means(losses, weights), nan=-np.inf).max(axis=2))
    known = slopes[np.isfinite(slopes)]
    # Most are unknown where each point has seeds of its own.
    low, high = np.quantile(known, [0.025, 0.975]) if 2 * known.size >= slopes.size else (math.nan, math.nan)
    exponent = float(_slopes(values, worst[np.newaxis])[0])
    arrays = values, means.T, worst, bounds.to_numpy()
    return Rate(settings, runs, axis, *arrays, exponent, float(low), float(high))


def _weighted_means(losses: NDArray[np.float64], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return means over seeds for each row of weights, shape (rows, values, problems)."""
    known = np.isfinite(losses)
    with np.errstate(invalid="ignore"):
        totals = np.tensordot(weights, np.where(known, losses, 0.0), axes=1)
        return np.asarray(totals / np.tensordot(weights, known.astype(float), axes=1))


def _slopes(values: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slope of each row of losses, in logarithms; NaN where a loss is not positive."""
    x = np.log(values) - np.mean(np.log(values))
    return np.asarray(np.log(np.where(losses > 0, losses, np.nan)) @ x / (x @ x))


@register
class RatesFigure(Figure):
    name = "rates"

    def draw(self, runs: Sequence[Summary], page: Page, against: str | None = None) -> Sheet:
        """Draw a row of panels for each regime, a column for each axis."""
        rates = find_rates(runs)
        if not rates:
            several = f"{MIN_POINTS} or more rounds, machines, classes or rho"
            raise InputError(f"rates need excess losses at {several}, such as those of jobs/rates.toml")
        regimes = sorted({rate.is_private for rate in rates})
        axes = [axis for axis in AXES if any(rate.axis == axis for rate in rates)]
        names = [name for name in rates[0].settings if name not in (*ACROSS, "server")]
        differ = [name for name in names if len({rate.settings[name] for rate in rates}) > 1]
        if len({tuple(rate.settings[name] for name in differ) for rate in rates}) > len(DASHES):
            raise refusal("these runs differ in too much for one figure", differ[0])
        # In the legend, lines are told apart; in the data, all settings are told.
        encoding = encode_groups(rates, page, (), ("server",), differ)
        looks = {_key(rate): (rate, look) for rate, _, look in encoding.groups}
        lines: dict[tuple[bool, Axis, Key], Rate] = {}
        for rate in rates:
            other = lines.setdefault((rate.is_private, rate.axis, _key(rate)), rate)
            if other is not rate:
                names = [name for name in rate.settings if rate.settings[name] != other.settings[name]]
                words = f"lines against {rate.axis.symbol} differ in {', '.join(names)} alone"
                raise refusal(f"{words}, too much for one figure", names[0])
        sheet = Sheet(page, len(regimes), len(axes), 2.4, sharey="row")
        for row, regime in zip(sheet.panels, regimes, strict=True):
            by_axis = [[r for r in rates if r.is_private == regime and r.axis == axis] for axis in axes]
            values = [
                v for of in by_axis for r in of for curve in (r.bounds, *r.means) for v in curve if v > 0
            ]
            low, high = min(values) / 1.3, max(values) * 1.3
            room = LINE * (1 + max(map(len, by_axis)))
            for panel, across, here in zip(row, axes, by_axis, strict=True):
                if not here:
                    panel.set_axis_off()
                    continue
                if sheet.is_stacked or across == axes[0]:
                    panel.set_title(REGIMES[regime])
                _draw_panel(panel, here, {key: look for key, (_, look) in looks.items()})
                # The text below the lines has a share of the height.
                panel.set_ylim(low * (low / high) ** (room / (1 - room)), high)
                panel.set(xlabel=f"{across.symbol}  ({across.words})", ylabel=loss_label(runs, "excess loss"))
        told = ["server", *differ] if len({rate.settings["server"] for rate in rates}) > 1 else differ
        for group, look in looks.values():
            words = page.words.of({name: group.settings[name] for name in told}) if told else "measured"
            sheet.legend.append(handle(words, **look))
        sheet.legend.append(handle("the theorem's bound", **BOUND))
        sheet.legend += [handle("single problems", **PROBLEMS)] * any(len(rate.means) > 1 for rate in rates)
        sheet.legend.append(handle("fitted exponent [95 %] (theorem's)", linestyle="", marker="o", color=INK))
        left = len(runs) - len({id(run) for rate in rates for run in rate.runs})
        remark = f"{left:,} of {len(runs):,} runs make no line of {MIN_POINTS} points"
        sheet.legend += [handle(remark, linestyle="")] * (left > 0)
        return sheet


def _key(rate: Group) -> Key:
    return tuple(value for name, value in rate.settings.items() if name not in ACROSS)


def _draw_panel(panel: Any, rates: Sequence[Rate], looks: dict[Key, dict[str, Any]]) -> None:
    """Draw the worst mean at each point, the theorem's bound, each problem by itself, and exponents."""
    for k, rate in enumerate(reversed(rates)):
        look = looks[_key(rate)]
        panel.plot(rate.values, rate.worst, **look)
        panel.plot(rate.values, rate.bounds, color=look["color"], **BOUND)
        if len(rate.means) > 1:
            panel.plot(rate.values, rate.means.T, color=look["color"], **PROBLEMS)
        exponent = f"{rate.exponent:.2f} [{rate.low:.2f}, {rate.high:.2f}] ({Fraction(rate.theorem)})"
        text, place = f"{SHAPES[look['marker']]} {exponent}".replace("-", "−"), 0.02 + LINE * k
        panel.text(0.02, place, text, transform=panel.transAxes, color=look["color"], fontsize=5.6)
    panel.set_yscale("log")
    log_ticks(panel.xaxis, (value for rate in rates for value in rate.values))
