"""Which settings become panels, colours and line styles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.style import DASHES, MARKERS, Theme, handle
from mu2mpi.analysis.groups import Group, grouped, in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["Encoding", "encode"]

MOST_COLOURS = 7


@dataclass(frozen=True)
class Encoding:
    """How groups of runs look.

    Attributes
    ----------
    groups : list of Group
        What is drawn.
    panel, colour, style : tuple of str
        The settings that choose the panel, the colour, and dashes and marker; any may be empty.
    theme : Theme
        The colours.
    """

    groups: list[Group]
    panel: tuple[str, ...]
    colour: tuple[str, ...]
    style: tuple[str, ...]
    theme: Theme

    def levels(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return the combinations of some settings that occur, in order; one empty one without settings."""
        return sorted({tuple(group.settings[n] for n in names) for group in self.groups}, key=sort_key)

    def panel_of(self, group: Group) -> int:
        """Return the number of the panel that a group belongs to."""
        return self.levels(self.panel).index(tuple(group.settings[n] for n in self.panel))

    def panel_titles(self) -> list[str]:
        """Return a title for each panel."""
        return [in_words(dict(zip(self.panel, level, strict=True))) for level in self.levels(self.panel)]

    def look(self, group: Group) -> dict[str, Any]:
        """Return colour, dashes and marker of a group, as matplotlib takes them."""
        colour = self.levels(self.colour).index(tuple(group.settings[n] for n in self.colour))
        style = self.levels(self.style).index(tuple(group.settings[n] for n in self.style))
        # Where colours are all there is, markers make up for their loss in grey.
        mark = style if self.style else colour
        return {
            "color": self.theme.colours(len(self.levels(self.colour)))[colour],
            "linestyle": DASHES[style],
            "marker": MARKERS[mark % len(MARKERS)],
        }

    def legend(self) -> list[Any]:
        """Return a handle for each colour, and one for each style."""
        handles = []
        if self.colour:
            colours = self.theme.colours(len(self.levels(self.colour)))
            for k, level in enumerate(self.levels(self.colour)):
                mark = "" if self.style else MARKERS[k % len(MARKERS)]
                words = in_words(dict(zip(self.colour, level, strict=True)))
                handles.append(handle(words, color=colours[k], marker=mark))
        if self.style:
            for k, level in enumerate(self.levels(self.style)):
                words = in_words(dict(zip(self.style, level, strict=True)))
                handles.append(
                    handle(words, color=self.theme.ink, linestyle=DASHES[k], marker=MARKERS[k % len(MARKERS)])
                )
        return handles


def encode(
    runs: Sequence[Summary],
    theme: Theme,
    apart: Sequence[str] = (),
    panel: Sequence[str] = ("server",),
    colour: Sequence[str] = ("rho", "machines"),
) -> Encoding:
    """Choose how groups of runs are told apart.

    Parameters
    ----------
    runs : sequence of Summary
        What is to be drawn.
    theme : Theme
        The colours.
    apart : sequence of str, optional
        Settings that an axis shows, so that they do not part groups.
    panel : sequence of str, optional
        Settings that make panels, where they vary.
    colour : sequence of str, optional
        Settings of which the first that varies makes colours.

    Raises
    ------
    InputError
        If the runs differ in more than a figure can show.
    """
    names = [name for name in varying(runs) if name not in apart]
    panels = tuple(name for name in names if name in panel)
    rest = [name for name in names if name not in panels]
    colours = tuple([name for name in colour if name in rest][:1] or rest[:1])
    styles = tuple(name for name in rest if name not in colours)
    encoding = Encoding(grouped(runs, names), panels, colours, styles, theme)
    for what, shown, most in (
        (panels, "panels", 3),
        (colours, "colours", MOST_COLOURS),
        (styles, "lines", len(DASHES)),
    ):
        if len(encoding.levels(what)) > most:
            raise InputError(
                f"these runs have {len(encoding.levels(what))} values of {', '.join(what)}, too many for "
                f"{shown}; choose some, for example with --where {what[0]}=..."
            )
    return encoding
