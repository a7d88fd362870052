"""How the excess loss falls with n, M, d and rho: fitted exponents beside those of the theorems.

The theorems bound the expected excess loss for every problem, and on any one problem it may fall faster: by
1 / (nM) instead of its root once the samples tell where the minimum is. So runs that differ in the problem's
`margin` or `label_noise` alone are taken together, and at each point the problem with the largest mean
counts. Runs without noise belong to the statistical regime, others to the private one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.collusion import colluders_of, share_text
from mu2mpi.analysis.settings import POOLED, Group, grouped
from mu2mpi.config.options import option_fields
from mu2mpi.registry import find
from mu2mpi.results.reader import Summary

PROBLEM = ("margin", "label_noise")
"""Settings that choose a problem, of which the worst counts."""

MIN_POINTS = 3
"""Values along an axis that make a rate."""

RESAMPLES = 2000


@dataclass(frozen=True)
class Axis:
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

STATISTICAL = {"n": -1 / 2, "M": -1 / 2, "d": 0.0}
PRIVATE = {"n": -1.0, "d": 1 / 2, "ρ": -1.0}
"""Exponents of 1/sqrt(nM), of sqrt(d)/(rho n sqrt M) and of sqrt(d)/(rho n M), where that of M depends on
whether noise hides sums: Theorems 5.2 and 6.2."""


@dataclass(frozen=True, eq=False)
class Rate(Group):
    """Runs that differ along one axis, in the problem, and in the seed; all arrays are along the axis."""

    axis: Axis
    values: NDArray[np.float64]
    means: NDArray[np.float64]
    """Of the excess loss over seeds, shape (problems, points); NaN where there is no run."""
    worst: NDArray[np.float64]
    """The largest of these at each point."""
    bounds: NDArray[np.float64]
    """The theorem's, NaN where it does not apply."""
    exponent: float
    """The slope of `worst` in logarithms by least squares; NaN if some is not positive."""
    low: float
    high: float
    """Of its interval at 95 %, from resampled seeds; NaN also if runs at each point have other seeds."""

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
    """Find all runs that differ along one axis, in at least three values, and fit exponents to them.

    Runs whose excess loss was not measured are left out.
    """
    measured = [run for run in runs if math.isfinite(run.figures.get("excess_loss", math.nan))]
    private = [run for run in measured if math.isfinite(run.experiment.rho)]
    rates, colluders = [], colluders_of(runs)
    for axis in AXES:
        across = (axis.setting, "epsilon") if axis.setting == "rho" else (axis.setting,)
        names = [n for n in option_fields() if n not in (*POOLED, *PROBLEM, "colluders", *across)]
        for group in grouped(private if axis.setting == "rho" else measured, names):
            lines: dict[Fraction | None, list[Summary]] = {}
            for run in group.runs:
                lines.setdefault(colluders(run), []).append(run)
            for share, line in lines.items():
                if len({axis.of(run) for run in line}) >= MIN_POINTS:
                    said = None if share is None else share_text(share)
                    rates.append(_fit(axis, Group({**group.settings, "colluders": said}, line)))
    return rates


def _fit(axis: Axis, group: Group) -> Rate:
    bounds = {axis.of(run): run.figures["excess_loss_bound"] for run in group.runs}
    values = sorted(bounds)
    losses = _losses(axis, group.runs)
    means = _weighted_means(losses, np.ones((1, len(losses))))[0]
    worst = np.nanmax(means, axis=0)
    seeds = np.random.default_rng(0).multinomial(len(losses), [1 / len(losses)] * len(losses), RESAMPLES)
    resampled = np.nan_to_num(_weighted_means(losses, seeds), nan=-np.inf).max(axis=1)
    slopes = _slopes(values, resampled)
    known = slopes[np.isfinite(slopes)]
    low, high = math.nan, math.nan
    # Most are unknown where each point has seeds of its own.
    if 2 * known.size >= slopes.size:
        low, high = np.quantile(known, [0.025, 0.975]).tolist()
    exponent = float(_slopes(values, worst[np.newaxis])[0])
    bound = np.array([bounds[value] for value in values])
    return Rate(group.settings, group.runs, axis, np.array(values), means, worst, bound, exponent, low, high)


def _losses(axis: Axis, runs: Sequence[Summary]) -> NDArray[np.float64]:
    """Return excess losses by seed, problem and value, shape (seeds, problems, values); NaN for no run."""
    # Without a seed, every run has one of its own.
    seeds = [run.path if run.experiment.seed is None else run.experiment.seed for run in runs]
    problems = [tuple(getattr(run.experiment, name) for name in PROBLEM) for run in runs]
    columns: list[list[Any]] = [seeds, problems, [axis.of(run) for run in runs]]
    known = [list(dict.fromkeys(column)) for column in columns]
    known[-1].sort()
    losses = np.full([len(levels) for levels in known], np.nan)
    for run, *place in zip(runs, *columns, strict=True):
        losses[tuple(map(list.index, known, place))] = run.figures["excess_loss"]
    return losses


def _weighted_means(losses: NDArray[np.float64], weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return means over seeds for each row of weights, shape (rows, problems, values)."""
    there = np.isfinite(losses)
    totals = np.tensordot(weights, np.where(there, losses, 0.0), axes=1)
    counts = np.tensordot(weights, there.astype(float), axes=1)
    means: NDArray[np.float64] = np.full(totals.shape, np.nan)
    np.divide(totals, counts, out=means, where=counts > 0)
    return means


def _slopes(values: Sequence[float], losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slope of each row of losses, in logarithms; NaN where a loss is not positive."""
    x = np.log(values) - np.mean(np.log(values))
    logs = np.log(np.where(losses > 0, losses, np.nan))
    return np.asarray(logs @ x / (x @ x), np.float64)
