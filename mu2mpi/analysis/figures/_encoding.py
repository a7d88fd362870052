"""Groups of runs told apart by panel, colour and dashes; histories; losses with fitted exponents."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas
from numpy.typing import NDArray

from mu2mpi.analysis.figures.figure import DASHES, Page, Sheet, colours, handle, log_ticks, look_of
from mu2mpi.analysis.setting_labels import (
    PRIVACY,
    Group,
    by_rows,
    grouped,
    in_nats,
    refusal,
    sort_key,
    varying,
)
from mu2mpi.results.reader import Summary

LIMITS = {"panels": 4, "colours": 7, "dashes": len(DASHES)}  # How many of each a figure tells apart
MIN_POINTS = 3  # Points that make an exponent
# Measurement, axis label and factor to its unit, by what is learned
SCORES = {"classes": ("test_accuracy", "test accuracy (%)", 100.0), "numbers": ("test_r2", "test R²", 1.0)}
Names = Sequence[str]


class Encoding(NamedTuple):
    """Groups of runs, each with the number of its panel and its look; panel titles; entries of a legend."""

    groups: list[tuple[Group, int, dict[str, Any]]]
    titles: list[str]
    legend: list[Any]


def encode(
    runs: Sequence[Summary],
    page: Page,
    pooled: Names = (),
    panel: Names = ("server",),
    colour: Names = (*PRIVACY, "machines"),
) -> Encoding:
    """Tell apart groups of runs by the settings in which they differ, but for those in `pooled`.

    Settings in `panel` make panels, the first in `colour` makes colours, others dashes, if there is room.
    """
    names = [name for name in varying(runs) if name not in pooled]
    hue = next((name for name in (*colour, *names) if name in names and name not in panel), None)
    usual = ["panels" if name in panel else "colours" if name == hue else "dashes" for name in names]
    groups = grouped(runs, names)
    # Sorting keeps the order of those with equally many changes.
    several = product(LIMITS, repeat=len(names)) if len(names) <= 8 else [tuple(usual)]
    for places in sorted(several, key=lambda places: sum(map(str.__ne__, places, usual))):
        parts = [[name for name, of in zip(names, places, strict=True) if of == place] for place in LIMITS]
        # Each run has one of rho and epsilon, so that these are one thing.
        is_split = sum(bool({*PRIVACY} & {*part}) for part in parts) > 1
        if is_split or (names and not parts[1]):
            continue
        numbers = [len({_key(group, part) for group in groups}) for part in parts]
        if all(number <= most for number, most in zip(numbers, LIMITS.values(), strict=True)):
            return encode_groups(groups, page, *parts)
    most = max(names, key=lambda name: len({group.settings[name] for group in groups}))
    raise refusal(f"these runs differ in too much for one figure ({', '.join(names)})", most)


def _key(group: Group, names: Names) -> tuple[Any, ...]:
    return tuple(group.settings[name] for name in names)


def encode_groups(groups: Sequence[Group], page: Page, panel: Names, colour: Names, dash: Names) -> Encoding:
    """Tell apart groups by settings that make panels, colours, and dashes with markers; any may be none."""
    found = []
    for names in (panel, colour, dash):
        levels = sorted({_key(group, names) for group in groups}, key=sort_key)
        words = [page.words.of(dict(zip(names, level, strict=True))) for level in levels]
        found.append(([levels.index(_key(group, names)) for group in groups], words))
    (panels, titles), (hues, hue_words), (styles, style_words) = found
    palette = colours(len(hue_words))
    # Without dashes, markers make up for the loss of colours in grey.
    looks = [
        look_of(palette[hue], style, style if dash else hue) | {"label": page.words.of(group.settings)}
        for group, hue, style in zip(groups, hues, styles, strict=True)
    ]
    legend = []
    if colour:
        plain = {"marker": ""} if dash else {}
        legend = [handle(w, **{**look_of(palette[k], 0, k), **plain}) for k, w in enumerate(hue_words)]
    if dash:
        black = handle("").get_color()
        legend += [handle(words, **look_of(black, k, k)) for k, words in enumerate(style_words)]
    return Encoding(list(zip(groups, panels, looks, strict=True)), titles, legend)


def varying_on_data(runs: Sequence[Summary]) -> list[str]:
    """Return settings in which runs on the same data differ: those of other sources tell nothing apart."""
    by_data = by_rows(runs, ["data"], lambda run: run.row)
    return [*dict.fromkeys(name for of_one in by_data.values() for name in varying(of_one))]


def loss_label(runs: Iterable[Summary], words: str = "test loss") -> str:
    """Return the axis label of losses, with their unit if they have one."""
    return f"{words} (nats)" if in_nats(runs) else words


def measures(runs: Sequence[Summary]) -> tuple[tuple[str, str, float], ...]:
    """Return measurement, axis label and factor to its unit, of the loss and of the score."""
    learned = {run.labels for run in runs}
    losses = sorted({run.experiment.loss for run in runs})
    if len(learned) > 1 or (len(losses) > 1 and not in_nats(runs)):
        words = f"the losses of these runs (loss = {', '.join(losses)}) have no unit or no score in common"
        raise refusal(words, "loss")
    return ("test_loss", loss_label(runs), 1.0), SCORES[learned.pop()]


def mean_history(runs: Sequence[Summary], x: str, y: str) -> pandas.DataFrame:
    """Return means of columns `x` and `y`, and the `deviation` of `y`, at the rounds that all measured."""
    frames = []
    for run in runs:
        # The last measurements belong together, also where they are of different rounds.
        columns = {"x": getattr(run.history, x), "y": getattr(run.history, y)}
        frames.append(pandas.DataFrame({"at": [*run.history.round[:-1], math.inf], **columns}))
    rounds = pandas.concat(frames).groupby("at")
    found = rounds.agg(x=("x", "mean"), y=("y", "mean"), deviation=("y", "std"), count=("y", "count"))
    return found[found["count"] == len(runs)]


def fitted_exponent(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Slope of y over x in logarithms by least squares; NaN of too few points, or where y is not positive."""
    is_fitted = len(x) >= MIN_POINTS and min(y) > 0
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if is_fitted else math.nan


def draw_exponents(
    runs: Sequence[Summary],
    page: Page,
    row_of: Callable[[Summary], dict[str, Any]],
    parts: tuple[Names, Names, Names],
    x: Callable[[Summary], float],
    xlabel: str,
    symbol: str,
    line_name: Callable[[Summary], str],
) -> Sheet:
    """Draw excess losses with fitted exponents where they are known, and else test losses.

    Of the settings that `row_of` returns, `parts` make panels, colours and dashes.
    """
    panels, colour, dash = [*dict.fromkeys(["data", *parts[0]])], *parts[1:]
    names = [*dict.fromkeys([*panels, *colour, *dash])]
    groups = [Group(dict(zip(names, k, strict=True)), of) for k, of in by_rows(runs, names, row_of).items()]
    encoding = encode_groups(groups, page, panels, colour, dash)
    count = len(encoding.titles)
    if count > LIMITS["panels"]:
        titles = "; ".join(encoding.titles)
        raise refusal(f"these runs make {count} panels ({titles}), too many for a figure", "rho")
    sheet = Sheet(page, 1, count, 2.6, encoding.titles)
    exponents: dict[str, list[str]] = {}
    looks: dict[str, dict[str, Any]] = {}
    for group, k, look in encoding.groups:
        panel, line = sheet.panels[0, k], line_name(group.runs[0])
        here = [run for other, at, _ in encoding.groups if at == k for run in other.runs]
        is_known = all(math.isfinite(run.figures.get("excess_loss", math.nan)) for run in here)
        name = "excess_loss" if is_known else "test_loss"
        # Lines become narrower, so that one that lies on another covers it not.
        looks.setdefault(line, look | {"linewidth": max(1.0, 2.6 - 0.3 * len(looks))})
        look = look | {"linewidth": looks[line]["linewidth"]}
        means = sheet.draw_means(panel, map(x, group.runs), [run.row[name] for run in group.runs], **look)
        found = exponents.setdefault(line, ["–"] * count)
        if is_known and not math.isnan(slope := fitted_exponent(means.index.to_numpy(), means.to_numpy())):
            found[k] = f"{slope:z.2f}".replace("-", "−")
            panel.set_yscale("log")
        panel.set(xlabel=xlabel, ylabel=loss_label(here, name.replace("_", " ")))
        log_ticks(panel.xaxis, map(x, here))
    has_exponents = any(text != "–" for texts in exponents.values() for text in texts)
    for line, look in looks.items():
        label = f"{line}: {' | '.join(exponents[line])}" if has_exponents else line
        sheet.legend.append(handle(label, **look))
    if has_exponents:
        where = ", panel by panel" * (count > 1)
        sheet.legend.append(handle(f"numbers: fitted exponents of {symbol}{where}", linestyle=""))
    return sheet
