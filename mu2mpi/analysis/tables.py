"""Tables of result files, in the paper's layout or another, as text, CSV, markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mu2mpi.analysis.cells import VALUES, Layout, Section, build_sections
from mu2mpi.analysis.formats import as_csv, as_markdown, as_paragraph, as_text
from mu2mpi.analysis.grids import Grid, grids
from mu2mpi.analysis.latex import as_latex, escaped
from mu2mpi.analysis.settings import number_text
from mu2mpi.analysis.words import Words
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

Format = Literal["text", "csv", "markdown", "latex"]


@dataclass(frozen=True)
class Dress:
    """What a table looks like beside what it says.

    `caption` takes the place of what is said of all runs, and is LaTeX in LaTeX, where `label` is for
    references; `siunitx` aligns numbers by that package, and `best` marks the best mean of those that
    can be compared. `words` say what settings are called.
    """

    caption: str = ""
    label: str = ""
    siunitx: bool = False
    best: bool = False
    words: Words = field(default_factory=Words)


@dataclass(frozen=True)
class Table:
    """Sections, one for each set of shared settings, and what the reader should know of them."""

    sections: list[Section]
    notes: list[str]

    def render(self, format: Format = "text", dress: Dress | None = None) -> str:
        """Return the table in one of the formats, without a line break at the end.

        Text, markdown and LaTeX have rows and columns; CSV has one line for each cell, missing ones
        included, with names of settings, means, deviations and the paper's values at full precision.
        """
        dress = dress or Dress()
        if format == "csv":
            return _csv(self.sections)
        renderers = {"text": _text, "markdown": _markdown, "latex": _latex}
        if format not in renderers:
            raise InputError(f"unknown format {format!r}; the formats are text, csv, markdown and latex")
        found = grids(self.sections, dress.words, dress.best)
        parts = [renderers[format](grid, dress, k * (len(found) > 1)) for k, grid in enumerate(found, 1)]
        note = "%" if format == "latex" else "Note:"
        return "\n\n".join([*parts, *(f"{note} {text}" for text in self.notes)])


def build_table(runs: Iterable[Summary], layout: Layout | None = None) -> Table:
    """Arrange runs in a layout, the paper's by default; raises an InputError as `build_sections` does."""
    return Table(*build_sections(runs, layout or Layout()))


def _text(grid: Grid, dress: Dress, number: int) -> str:
    table = as_text(grid.header, grid.blocks_of(grid.aligned()))
    caption = _caption(dress, grid.heading, number)
    return f"{caption}\n\n{table}\n\n{as_paragraph(grid.legend.format(best='*'))}"


def _markdown(grid: Grid, dress: Dress, number: int) -> str:
    cells = [[entry.text("**{}**") for entry in line.entries] for line in grid.lines]
    table = as_markdown(grid.header, grid.blocks_of(cells), len(grid.columns))
    return f"**{_caption(dress, grid.heading, number)}**\n\n{table}\n\n{grid.legend.format(best='Bold')}"


def _latex(grid: Grid, dress: Dress, number: int) -> str:
    said = f"{grid.heading}. {grid.legend.format(best='Bold')}"
    label = f"{dress.label}-{number}" if dress.label and number > 1 else dress.label
    if not dress.caption:
        return as_latex(grid, escaped(said), label, dress.siunitx)
    caption = _caption(dress, escaped(grid.heading), number)
    return f"% {said}\n{as_latex(grid, caption, label, dress.siunitx)}"


def _caption(dress: Dress, heading: str, number: int) -> str:
    """Return what stands above a table; several tables with one caption still say what they are of."""
    if not dress.caption:
        return heading
    return f"{dress.caption} ({heading})" if number else dress.caption


def _csv(sections: Sequence[Section]) -> str:
    layout, lines = sections[0].layout, []
    of_cells = [cell.settings for section in sections for cell in section.cells.values()]
    names = list(dict.fromkeys(name for of in (*(s.settings for s in sections), *of_cells) for name in of))
    columns = {name: ("mean", "sd", *["paper"] * (name in VALUES)) for name in layout.values}
    header = [*names, *layout.places, "seeds", *(f"{n}_{of}" for n, part in columns.items() for of in part)]
    for section in sections:
        for (row, column), cell in section.cells.items():
            shared = map((section.settings | cell.settings).get, names)
            settings = ["" if value is None else number_text(value) for value in (*shared, *row, *column)]
            measured = (
                (*cell.values[name], cell.paper.get(name, math.nan))[: len(part)]
                for name, part in columns.items()
            )
            numbers = ("" if math.isnan(n) else repr(n) for part in measured for n in part)
            lines.append([*settings, str(cell.seeds), *numbers])
    return as_csv(header, lines)
