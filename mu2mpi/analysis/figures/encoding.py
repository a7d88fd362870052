"""Which settings become panels, colours and line styles, and what is drawn along the rounds of runs."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.style import DASHES, Figure, Theme, canvas, dashed, handle
from mu2mpi.analysis.groups import Group, grouped, in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.collection import shown
from mu2mpi.results.reader import Summary

MOST_PANELS, MOST_COLOURS = 3, 7

Names = Sequence[str]


class Role:
    """Settings that choose one thing of how groups look, such as the colour; there may be none."""

    def __init__(self, names: Names, groups: Sequence[Group]) -> None:
        self.names = names
        self.levels = sorted({self._level(group) for group in groups}, key=sort_key)

    def of(self, group: Group) -> int:
        """Return which of its values a group has, as a number from 0."""
        return self.levels.index(self._level(group))

    def words(self) -> list[str]:
        """Return what each of its values is called."""
        return [in_words(dict(zip(self.names, level, strict=True))) for level in self.levels]

    def _level(self, group: Group) -> tuple[Any, ...]:
        return tuple(group.settings[name] for name in self.names)


class Encoding:
    """How groups of runs look, by the names of the settings that choose panel, colour, dashes and marker."""

    def __init__(
        self, groups: Sequence[Group], theme: Theme, panel: Names, colour: Names, style: Names
    ) -> None:
        self.groups, self.theme = groups, theme
        self.panel, self.colour, self.style = (Role(names, groups) for names in (panel, colour, style))
        self._colours = theme.colours(len(self.colour.levels))

    def look(self, group: Group) -> dict[str, Any]:
        """Return colour, dashes and marker of a group, as matplotlib takes them."""
        colour, style = self.colour.of(group), self.style.of(group)
        # Where colours are all there is, markers make up for their loss in grey.
        return {"color": self._colours[colour], **dashed(style, style if self.style.names else colour)}

    def legend(self) -> list[Any]:
        """Return a handle for each colour, and one for each style."""
        handles = []
        if self.colour.names:
            plain = {"marker": ""} if self.style.names else {}
            for k, (words, colour) in enumerate(zip(self.colour.words(), self._colours, strict=True)):
                handles.append(handle(words, **{"color": colour, **dashed(0, k), **plain}))
        if self.style.names:
            styles = enumerate(self.style.words())
            handles += [handle(words, color=self.theme.ink, **dashed(k, k)) for k, words in styles]
        return handles


def encode(
    runs: Sequence[Summary],
    theme: Theme,
    apart: Names = (),
    panel: Names = ("server",),
    colour: Names = ("rho", "machines"),
) -> Encoding:
    """Choose how groups of runs are told apart, in a theme.

    Settings in `apart` do not part groups, as an axis shows them; those in `panel` make panels, where they
    vary; and of those in `colour`, the first that varies makes colours. Raises an InputError if the runs
    differ in more than a figure can show.
    """
    names = [name for name in varying(runs) if name not in apart]
    panels = [name for name in names if name in panel]
    rest = [name for name in names if name not in panels]
    colours = [name for name in colour if name in rest][:1] or rest[:1]
    styles = [name for name in rest if name not in colours]
    encoding = Encoding(grouped(runs, names), theme, panels, colours, styles)
    limits = {"panels": MOST_PANELS, "colours": MOST_COLOURS, "lines": len(DASHES)}
    roles = (encoding.panel, encoding.colour, encoding.style)
    for role, (what, most) in zip(roles, limits.items(), strict=True):
        if len(role.levels) > most:
            raise InputError(
                f"these runs have {len(role.levels)} values of {', '.join(role.names)}, too many for "
                f"{what}; choose some, for example with --where {role.names[0]}=..."
            )
    return encoding


def read_histories(runs: Sequence[Summary]) -> None:
    """Read the histories that were not read before, and say so where there are many."""
    for run in shown([run for run in runs if "history" not in vars(run)], "reading the histories of"):
        _ = run.history


def histories_of(group: Group, against: str, name: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the rounds (or samples) at which all runs of a group were measured, and one row a run."""
    members = [run.history for run in group.runs]
    common = reduce(np.intersect1d, [history.round for history in members])
    values = np.array([getattr(history, name)[np.isin(history.round, common)] for history in members])
    across: NDArray[Any] = getattr(members[0], against)
    return across[np.isin(members[0].round, common)], values


def along_rounds(encoding: Encoding, label: str) -> tuple[Figure, Any]:
    """Return a figure with a panel for each server, everything logarithmic, and these panels."""
    titles = encoding.panel.words()
    figure, axes = canvas(1, len(titles), 3.4, titles, sharey=True, sharex=True)
    for panel in axes[0]:
        panel.set(xscale="log", yscale="log", xlabel="round t")
    axes[0, 0].set_ylabel(label)
    return figure, axes[0]
