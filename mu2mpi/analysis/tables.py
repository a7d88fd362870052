"""Tables of result files, in the paper's layout or another, as text, CSV, markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from mu2mpi.analysis.cells import VALUES, Cell, Key, Layout, Section, build_sections
from mu2mpi.analysis.formats import as_csv, as_latex, as_markdown, as_text
from mu2mpi.analysis.words import counted, number_text
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

Format = Literal["text", "csv", "markdown", "latex"]

MISSING = "–"
LETTERS = {"machines": "M", "rounds": "T"}
LABELS = {"test_loss": "loss", "test_accuracy": "accuracy %", "test_r2": "R2"}
LEGENDS = {"test_loss": "loss", "test_accuracy": "accuracy", "test_r2": "R2"}

PRECISION = {
    "test_loss": (1, "{:.4f}", " [{:.3f}]"),
    "test_accuracy": (100, "{:.1f}", " [{:.1f}]"),
    "test_r2": (1, "{:.4f}", ""),
}
"""Factors, and how a number and the paper's are written."""


@dataclass(frozen=True)
class Table:
    """Sections, one for each set of shared settings, and what the reader should know of them."""

    sections: list[Section]
    notes: list[str]

    def render(self, format: Format = "text") -> str:
        """Return the table in one of the formats, without a line break at the end.

        Text, markdown and LaTeX have rows and columns; CSV has one line for each cell, missing ones
        included, with means, deviations and the paper's values at full precision.
        """
        if format == "csv":
            return _render_csv(self.sections)
        note, sections = "Note:", self.sections
        if format == "latex":
            note, parts = "%", [as_latex(*grid(s), caption=f"{s.heading}. {legend(s)}") for s in sections]
        elif format == "markdown":
            parts = [f"**{s.heading}**\n\n{as_markdown(*grid(s))}\n\n{legend(s)}" for s in sections]
        elif format == "text":
            parts = [f"{s.heading}\n\n{as_text(*grid(s))}\n\n{legend(s)}" for s in sections]
        else:
            raise InputError(f"unknown format {format!r}; the formats are text, csv, markdown and latex")
        return "\n\n".join([*parts, *(f"{note} {text}" for text in self.notes)])


def build_table(runs: Iterable[Summary], layout: Layout | None = None) -> Table:
    """Arrange runs in a layout, the paper's by default; raises an InputError as `build_sections` does."""
    return Table(*build_sections(runs, layout or Layout()))


def grid(section: Section) -> tuple[list[str], list[list[list[str]]]]:
    """Return the header, and the rows in blocks that share the first of their settings."""
    letters = [LETTERS.get(name, name) for name in section.layout.columns]
    titles = [
        ", ".join(f"{letter} = {counted(value)}" for letter, value in zip(letters, key, strict=True))
        for key in section.columns
    ]
    groups = [list(rows) for _, rows in groupby(section.rows, key=lambda row: row[0])]
    if all(len(rows) == 1 for rows in groups):
        groups = [section.rows]
    blocks = [[line for row in rows for line in _lines(section, row)] for rows in groups]
    return [*section.layout.rows, "", *titles], blocks


def legend(section: Section) -> str:
    """Say what the numbers of a section are."""
    values, seeds = section.layout.values, section.seeds
    if set(values) <= LEGENDS.keys():
        *others, last = (LEGENDS[name] for name in values)
        text = f"Test {', '.join(others)}{' and ' * bool(others)}{last} of the output"
    else:
        text = ", ".join(f"test {LEGENDS[name]}" if name in LEGENDS else name for name in values)
    over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the seeds counted in each cell"
    text += "; one seed." if seeds == {1} else f": mean ± standard deviation over {over}."
    if any(name in cell.paper for cell in section.cells.values() if cell.seeds for name in values):
        text += " In brackets: the paper's value."
    if not all(cell.seeds for cell in section.cells.values()):
        text += f" {MISSING}: no run."
    return text


def _lines(section: Section, row: Key) -> list[list[str]]:
    """Return the lines of one row: each value and, unless the legend says it, the number of seeds."""
    cells = [section.cells[row, column] for column in section.columns]
    lines = [
        [LABELS.get(name, name), *(_value_text(cell, name) for cell in cells)]
        for name in section.layout.values
    ]
    if len(section.seeds) > 1:
        lines.append(["seeds", *(str(cell.seeds or MISSING) for cell in cells)])
    titles = [number_text(value) for value in row]
    return [[*(titles if k == 0 else [""] * len(row)), *line] for k, line in enumerate(lines)]


def _value_text(cell: Cell, name: str) -> str:
    factor, style, papers_style = PRECISION.get(name, (1, "{:.4g}", ""))
    mean, deviation = (factor * number for number in cell.values[name])
    if math.isnan(mean):
        return MISSING
    text = style.format(mean) + ("" if math.isnan(deviation) else f" ± {style.format(deviation)}")
    return text + papers_style.format(factor * cell.paper[name]) if name in cell.paper else text


def _render_csv(sections: Sequence[Section]) -> str:
    layout = sections[0].layout
    names = list(dict.fromkeys(name for section in sections for name in section.settings))
    header = [*names, *layout.rows, *layout.columns, "seeds"]
    for name in layout.values:
        header += [f"{name}_mean", f"{name}_sd", *[f"{name}_paper"] * (name in VALUES)]
    lines = []
    for section in sections:
        shared = [section.settings.get(name) for name in names]
        for (row, column), cell in section.cells.items():
            settings = ["" if value is None else number_text(value) for value in (*shared, *row, *column)]
            numbers: list[float] = []
            for name in layout.values:
                numbers += [*cell.values[name], *[cell.paper.get(name, math.nan)] * (name in VALUES)]
            lines.append([*settings, str(cell.seeds), *("" if math.isnan(n) else repr(n) for n in numbers)])
    return as_csv(header, lines)
