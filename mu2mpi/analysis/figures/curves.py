"""What several figures draw: groups of runs told apart by looks, histories, means with bars, and axes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.cells import Key, sort_key
from mu2mpi.analysis.figures.style import DASHES, Axes, Figure, Page, canvas, dashed, handle
from mu2mpi.analysis.groups import Group, grouped, in_nats, listed
from mu2mpi.analysis.settings import varying
from mu2mpi.analysis.words import PRIVACY
from mu2mpi.errors import InputError
from mu2mpi.results.collection import shown
from mu2mpi.results.reader import Summary

MOST = {"panels": 4, "colours": 7, "lines": len(DASHES)}
"""How many of each are told apart in a figure."""

MOST_SETTINGS = 6
"""In which runs may differ, and how they are told apart is still searched for."""

SCORES = {"classes": ("test_accuracy", "test accuracy (%)", 100.0), "numbers": ("test_r2", "test R²", 1.0)}
"""By what was learned: a measurement, what its axis says, and the factor to its unit."""

Names = Sequence[str]


@dataclass(frozen=True)
class Encoding:
    """Groups of runs, each with the number of its panel and its look, as matplotlib takes it."""

    groups: list[tuple[Group, int, dict[str, Any]]]
    titles: list[str]
    """One for each panel."""
    legend: list[Any]
    """A handle for each colour, and one for each style."""


def encode(
    runs: Sequence[Summary],
    page: Page,
    apart: Names = (),
    panel: Names = ("server",),
    colour: Names = ("epsilon", "rho", "machines"),
) -> Encoding:
    """Choose how groups of runs are told apart, in a theme.

    Settings in `apart` do not part groups, as an axis shows them; those in `panel` make panels, where they
    vary; of those in `colour`, the first that varies makes colours, and the rest makes lines. Where that are
    too many of one, settings change places, as few as can be. Raises an InputError if the runs differ in more
    than a figure can show.
    """
    names = [name for name in varying(runs) if name not in apart]
    rest = [name for name in names if name not in panel]
    hue = next((name for name in (*colour, *rest) if name in rest), None)
    units: list[Names] = [(name,) for name in names]
    if {*PRIVACY} <= {*names}:
        # Each run has one of these, and so they are one thing.
        units = [PRIVACY, *((name,) for name in names if name not in PRIVACY)]
    usual = tuple("panels" if u[0] in panel else "colours" if hue in u else "lines" for u in units)
    groups = grouped(runs, names)
    panels, colours, styles = _places(groups, units, usual)
    return encoded(groups, page, panels, colours, styles)


def _places(groups: Sequence[Group], names: Sequence[Names], usual: Names) -> list[list[str]]:
    """Return which settings make panels, colours and lines: as usual, or as near to it as there is room."""

    def changes(places: Names) -> int:
        return sum(place != before for place, before in zip(places, usual, strict=True))

    def number(places: Names, place: str) -> int:
        return len({key_of(group, _of_place(names, places, place)) for group in groups})

    several = len(names) <= MOST_SETTINGS
    for places in sorted(product(MOST, repeat=len(names)), key=changes) if several else [usual]:
        full = [place for place, most in MOST.items() if number(places, place) > most]
        if not full and ("colours" in places or not names):
            return [_of_place(names, places, place) for place in MOST]
    place = next((place for place, most in MOST.items() if number(usual, place) > most), "lines")
    most_values = max(_of_place(names, usual, place), key=lambda n: len({g.settings[n] for g in groups}))
    raise InputError(
        f"these runs have {number(usual, place)} values of {', '.join(_of_place(names, usual, place))}, too "
        f"many for {place}; choose some, for example with --where {most_values}="
        f"{','.join(listed(g.settings[most_values] for g in groups).split(', ')[:2])}"
    )


def _of_place(names: Sequence[Names], places: Names, place: str) -> list[str]:
    return [name for of, of_name in zip(names, places, strict=True) if of_name == place for name in of]


def key_of(group: Group, names: Names) -> Key:
    """Return the values of some settings of a group."""
    return tuple(group.settings[name] for name in names)


def encoded(groups: Sequence[Group], page: Page, panels: Names, colours: Names, styles: Names) -> Encoding:
    """Tell groups apart by settings that choose panels, colours, and dashes with markers; any may be none."""
    of_panel, titles = _parted(groups, panels, page)
    of_colour, hues = _parted(groups, colours, page)
    of_style, kinds = _parted(groups, styles, page)
    palette = page.theme.colours(len(hues))
    # Where colours are all there is, markers make up for their loss in grey.
    looks = [
        {"color": palette[k], **dashed(style, style if styles else k), "label": page.words.of(group.settings)}
        for group, k, style in zip(groups, of_colour, of_style, strict=True)
    ]
    legend = []
    if colours:
        plain = {"marker": ""} if styles else {}
        for k, words in enumerate(hues):
            legend.append(handle(words, **{"color": palette[k], **dashed(0, k), **plain}))
    if styles:
        legend += [handle(words, color=page.theme.ink, **dashed(k, k)) for k, words in enumerate(kinds)]
    return Encoding(list(zip(groups, of_panel, looks, strict=True)), titles, legend)


def _parted(groups: Sequence[Group], names: Names, page: Page) -> tuple[list[int], list[str]]:
    """Return which value of some settings each group has, counted from 0, and what each is called."""
    keys = [key_of(group, names) for group in groups]
    levels = sorted(set(keys), key=sort_key)
    words = [page.words.of(dict(zip(names, level, strict=True))) for level in levels]
    return [levels.index(key) for key in keys], words


def loss_words(runs: Iterable[Summary], words: str = "test loss") -> str:
    """Return what an axis of losses says, with their unit if they have one."""
    return f"{words} (nats)" if in_nats(runs) else words


def measured(runs: Sequence[Summary]) -> tuple[tuple[str, str, float], ...]:
    """Return measurements, what their axis says, and the factor to its unit: of the loss, and of the score.

    Raises an InputError if some runs learn classes and some numbers, or their losses have different units.
    """
    learned = {run.labels for run in runs}
    losses = sorted({run.experiment.loss for run in runs})
    if len(learned) > 1:
        raise InputError(
            f"some of these runs learn classes and some numbers (loss = {', '.join(losses)}), which have no "
            "score in common; choose some, for example with --where loss=..."
        )
    if len(losses) > 1 and not in_nats(runs):
        raise InputError(
            f"the losses of these runs (loss = {', '.join(losses)}) have no unit in common; choose some, for "
            "example with --where loss=..."
        )
    return ("test_loss", loss_words(runs), 1.0), SCORES[learned.pop()]


def read_histories(runs: Sequence[Summary]) -> None:
    """Read the histories that were not read before, and say so where there are many."""
    for run in shown([run for run in runs if "history" not in vars(run)], "reading the histories of"):
        _ = run.history


def histories_of(group: Group, against: str, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the rounds (or samples) at which all runs of a group were measured, and one row a run.

    What runs end with belongs together, even if they end at different rounds; these are means then.
    """
    members = [run.history for run in group.runs]
    common = reduce(np.intersect1d, [history.round[:-1] for history in members])
    kept = [np.append(np.flatnonzero(np.isin(history.round[:-1], common)), -1) for history in members]
    across, values = (
        np.array([getattr(history, column)[at] for history, at in zip(members, kept, strict=True)])
        for column in (against, name)
    )
    return across.mean(axis=0), values


def along_rounds(encoding: Encoding, label: str, page: Page) -> tuple[Figure, Any]:
    """Return a figure with a panel for each server, everything logarithmic, and these panels."""
    figure, axes = canvas(page, 1, len(encoding.titles), 3.4, encoding.titles, sharey=True, sharex=True)
    for panel in axes[0]:
        panel.set(xscale="log", yscale="log", xlabel="round t")
    axes[0, 0].set_ylabel(label)
    return figure, axes[0]


def bars_handle(page: Page) -> Any:
    """Return what a legend says of error bars."""
    return handle(
        "bars: ± 1 standard deviation", color=page.theme.ink, linestyle="", marker="|", markersize=9
    )


def draw_means(
    panel: Axes, x: Sequence[float] | NDArray[Any], estimates: Iterable[Any], factor: float = 1.0, **look: Any
) -> bool:
    """Draw means with bars, from pairs of mean and deviation; return whether any bar is to be seen."""
    means, deviations = factor * np.array([*estimates], float).T
    bars = np.nan_to_num(deviations)
    # Of one run there is no bar, and no caps of one either.
    drawn = panel.errorbar(
        x, means, deviations if np.any(bars > 0) else None, **{"capsize": 2.5, "elinewidth": 0.9, **look}
    )
    drawn.lines[0].set_label(drawn.get_label())
    return bool(np.any(bars > 0))
