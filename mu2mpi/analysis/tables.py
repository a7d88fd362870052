"""Tables of result files, in the paper's layout or another, as text, CSV, markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mu2mpi.analysis.cells import VALUES, Section, build_sections
from mu2mpi.analysis.formats import Entry, as_csv, as_markdown, as_paragraph, as_text
from mu2mpi.analysis.grids import Grid, grids
from mu2mpi.analysis.latex import as_latex, escaped
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.words import Words, number_text
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
            return _render_csv(self.sections)
        if format not in FORMATS:
            raise InputError(f"unknown format {format!r}; the formats are text, csv, markdown and latex")
        found = grids(self.sections, dress.words, dress.best)
        parts = [FORMATS[format](grid, dress, k if len(found) > 1 else 0) for k, grid in enumerate(found, 1)]
        note = "%" if format == "latex" else "Note:"
        return "\n\n".join([*parts, *(f"{note} {text}" for text in self.notes)])


def build_table(runs: Iterable[Summary], layout: Layout | None = None) -> Table:
    """Arrange runs in a layout, the paper's by default; raises an InputError as `build_sections` does."""
    return Table(*build_sections(runs, layout or Layout()))


def _text(grid: Grid, dress: Dress, number: int) -> str:
    table = as_text(grid.header, grid.blocks_of(grid.aligned()))
    return f"{_caption(grid, dress, number)}\n\n{table}\n\n{as_paragraph(grid.legend.format(best='*'))}"


def _markdown(grid: Grid, dress: Dress, number: int) -> str:
    cells = [list(map(_in_markdown, line.entries)) for line in grid.lines]
    table = as_markdown(grid.header, grid.blocks_of(cells), len(grid.columns))
    return f"**{_caption(grid, dress, number)}**\n\n{table}\n\n{grid.legend.format(best='Bold')}"


def _in_markdown(entry: Entry) -> str:
    text = f"{entry.mean} ± {entry.deviation}" if entry.deviation else entry.mean
    text = f"**{text}**" if entry.is_best else text
    return f"{text} {entry.remark}" if entry.remark else text


def _latex(grid: Grid, dress: Dress, number: int) -> str:
    legend = grid.legend.format(best="Bold")
    said = f"{grid.heading}. {legend}"
    label = f"{dress.label}-{number}" if dress.label and number > 1 else dress.label
    if not dress.caption:
        return as_latex(grid, escaped(said), label, dress.siunitx)
    caption = f"{dress.caption} ({escaped(grid.heading)})" if number else dress.caption
    return f"% {said}\n{as_latex(grid, caption, label, dress.siunitx)}"


FORMATS = {"text": _text, "markdown": _markdown, "latex": _latex}


def _caption(grid: Grid, dress: Dress, number: int) -> str:
    """Return what stands above a table; several tables with one caption still say what they are of."""
    if not dress.caption:
        return grid.heading
    return f"{dress.caption} ({grid.heading})" if number else dress.caption


def _render_csv(sections: Sequence[Section]) -> str:
    layout = sections[0].layout
    names = list(dict.fromkeys(name for section in sections for name in (*section.settings, *section.follow)))
    header = [*names, *layout.rows, *layout.columns, "seeds"]
    for name in layout.values:
        header += [f"{name}_mean", f"{name}_sd", *[f"{name}_paper"] * (name in VALUES)]
    lines = []
    for section in sections:
        for (row, column), cell in section.cells.items():
            shared = [(section.settings | cell.settings).get(name) for name in names]
            settings = ["" if value is None else number_text(value) for value in (*shared, *row, *column)]
            numbers: list[float] = []
            for name in layout.values:
                numbers += [*cell.values[name], *[cell.paper.get(name, math.nan)] * (name in VALUES)]
            lines.append([*settings, str(cell.seeds), *("" if math.isnan(n) else repr(n) for n in numbers)])
    return as_csv(header, lines)
