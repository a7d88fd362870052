"""Which settings become panels, colours and line styles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mu2mpi.analysis.cells import sort_key
from mu2mpi.analysis.figures.style import DASHES, Theme, dashed, handle
from mu2mpi.analysis.groups import Group, grouped, in_words, varying
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

MOST_PANELS, MOST_COLOURS = 3, 7


class Role:
    """Settings that choose one thing of how groups look, such as the colour; there may be none."""

    def __init__(self, names: tuple[str, ...], groups: Sequence[Group]) -> None:
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


@dataclass(frozen=True)
class Encoding:
    """How groups of runs look: which panel each is in, and its colour, dashes and marker."""

    groups: list[Group]
    theme: Theme
    panel: Role
    colour: Role
    style: Role

    @property
    def titles(self) -> list[str]:
        """A title for each panel."""
        return self.panel.words()

    def look(self, group: Group) -> dict[str, Any]:
        """Return colour, dashes and marker of a group, as matplotlib takes them."""
        colour, style = self.colour.of(group), self.style.of(group)
        # Where colours are all there is, markers make up for their loss in grey.
        return {"color": self._colours()[colour], **dashed(style, style if self.style.names else colour)}

    def legend(self) -> list[Any]:
        """Return a handle for each colour, and one for each style."""
        colours, styles = (role.words() if role.names else [] for role in (self.colour, self.style))
        plain = {"marker": ""} if styles else {}
        return [
            *(
                handle(words, **{"color": colour, **dashed(0, k), **plain})
                for k, (words, colour) in enumerate(zip(colours, self._colours(), strict=False))
            ),
            *(handle(words, color=self.theme.ink, **dashed(k, k)) for k, words in enumerate(styles)),
        ]

    def _colours(self) -> list[Any]:
        return self.theme.colours(len(self.colour.levels))


def encode(
    runs: Sequence[Summary],
    theme: Theme,
    apart: Sequence[str] = (),
    panel: Sequence[str] = ("server",),
    colour: Sequence[str] = ("rho", "machines"),
) -> Encoding:
    """Choose how groups of runs are told apart, in a theme.

    Settings in `apart` do not part groups, as an axis shows them; those in `panel` make panels, where they
    vary; and of those in `colour`, the first that varies makes colours. Raises an InputError if the runs
    differ in more than a figure can show.
    """
    names = [name for name in varying(runs) if name not in apart]
    panels = tuple(name for name in names if name in panel)
    rest = [name for name in names if name not in panels]
    colours = tuple([name for name in colour if name in rest][:1] or rest[:1])
    styles = tuple(name for name in rest if name not in colours)
    groups = grouped(runs, names)
    roles = [Role(chosen, groups) for chosen in (panels, colours, styles)]
    limits = {"panels": MOST_PANELS, "colours": MOST_COLOURS, "lines": len(DASHES)}
    for role, (shown, most) in zip(roles, limits.items(), strict=True):
        if len(role.levels) > most:
            raise InputError(
                f"these runs have {len(role.levels)} values of {', '.join(role.names)}, too many for "
                f"{shown}; choose some, for example with --where {role.names[0]}=..."
            )
    return Encoding(groups, theme, *roles)
