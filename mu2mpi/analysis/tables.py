"""Tables of result files, in the paper's layout or another, as text, CSV, markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from mu2mpi.analysis.cells import VALUES, Estimate, Layout, Section, build_sections, number_text
from mu2mpi.analysis.formats import as_csv, as_latex, as_markdown, as_text
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["Format", "Table", "build_table"]

Format = Literal["text", "csv", "markdown", "latex"]

MISSING = "–"
LETTERS = {"machines": "M", "rounds": "T"}
LABELS = {"test_loss": "loss", "test_accuracy": "accuracy %"}
LEGENDS = {"test_loss": "Test loss of the output", "test_accuracy": "Test accuracy of the output"}

Place = tuple[tuple[Any, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Table:
    """Sections, one for each set of shared settings, and what the reader should know of them."""

    sections: list[Section]
    notes: list[str]

    def render(self, format: Format = "text") -> str:
        """Return the table in one of the formats, without a line break at the end.

        Text, markdown and LaTeX have rows and columns; CSV has one line for each cell, missing ones
        included, with means, deviations and the paper's values at full precision.

        Raises
        ------
        InputError
            If there is no such format.
        """
        if format == "csv":
            return _render_csv(self.sections)
        if format == "latex":
            parts = [as_latex(*grid(s), caption=f"{s.heading}. {legend(s)}") for s in self.sections]
            return "\n\n".join([*parts, *(f"% {note}" for note in self.notes)])
        if format == "markdown":
            parts = [f"**{s.heading}**\n\n{as_markdown(*grid(s))}\n\n{legend(s)}" for s in self.sections]
        elif format == "text":
            parts = [f"{s.heading}\n\n{as_text(*grid(s))}\n\n{legend(s)}" for s in self.sections]
        else:
            raise InputError(f"unknown format {format!r}; the formats are text, csv, markdown and latex")
        return "\n\n".join([*parts, *(f"Note: {note}" for note in self.notes)])


def build_table(runs: Iterable[Summary], layout: Layout | None = None) -> Table:
    """Arrange runs in a layout, the paper's by default.

    Runs are averaged only if they differ in the seed alone (or in delta or evaluations, which change
    nothing in the model); any other difference that is neither row nor column, such as another diameter,
    makes a section of its own. A run that is there twice counts once.

    Raises
    ------
    InputError
        If there are no runs, or none has one of the values of the layout.
    """
    sections, notes = build_sections(runs, layout or Layout())
    if not sections:
        raise InputError("there are no results to make a table of")
    return Table(sections, notes)


def grid(section: Section) -> tuple[list[str], list[list[list[str]]]]:
    """Return the header, and the rows in blocks that share the first of their settings."""
    layout = section.layout
    header = [*layout.rows, "", *(_column_title(layout.columns, key) for key in section.columns)]
    groups = [list(rows) for _, rows in groupby(section.rows, key=lambda row: row[0])]
    if all(len(rows) == 1 for rows in groups):
        groups = [section.rows]
    blocks = [[line for row in rows for line in _lines(section, row)] for rows in groups]
    return header, blocks


def legend(section: Section) -> str:
    """Say what the numbers of a section are."""
    text = ", ".join(LEGENDS.get(name, name) for name in section.layout.values)
    if section.layout.values == VALUES:
        text = "Test loss and accuracy of the output"
    seeds = _seeds(section)
    if seeds == {1}:
        text += "; one seed."
    else:
        over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the seeds counted in each cell"
        text += f": mean ± standard deviation over {over}."
    if any(_paper(section, place, name) is not None for place in section.cells for name in LABELS):
        text += " In brackets: the paper's value."
    if len(section.cells) < len(section.rows) * len(section.columns):
        text += f" {MISSING}: no run."
    return text


def _column_title(names: Sequence[str], key: Sequence[Any]) -> str:
    return ", ".join(
        f"{LETTERS.get(n, n)} = {_setting_text(value)}" for n, value in zip(names, key, strict=True)
    )


def _setting_text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else number_text(value)


def _lines(section: Section, row: tuple[Any, ...]) -> list[list[str]]:
    """Return the lines of one row: each value and, unless the legend says it, the number of seeds."""
    places = [(row, column) for column in section.columns]
    lines = [
        [LABELS.get(name, name), *(_value_text(section, place, name) for place in places)]
        for name in section.layout.values
    ]
    if len(_seeds(section)) > 1:
        counts = [str(section.cells[place].seeds) if place in section.cells else MISSING for place in places]
        lines.append(["seeds", *counts])
    titles = [number_text(value) for value in row]
    return [[*(titles if k == 0 else [""] * len(row)), *line] for k, line in enumerate(lines)]


def _value_text(section: Section, place: Place, name: str) -> str:
    if place not in section.cells or math.isnan(section.cells[place].values[name].mean):
        return MISSING
    found, paper = section.cells[place].values[name], _paper(section, place, name)
    if name == "test_loss":
        return _spread(found, "{:.4f}") + (f" [{paper:.3f}]" if paper is not None else "")
    if name == "test_accuracy":
        percent = Estimate(100 * found.mean, 100 * found.deviation)
        return _spread(percent, "{:.1f}") + (f" [{100 * paper:.1f}]" if paper is not None else "")
    return _spread(found, "{:.4g}")


def _spread(estimate: Estimate, style: str) -> str:
    mean = style.format(estimate.mean)
    return mean if math.isnan(estimate.deviation) else f"{mean} ± {style.format(estimate.deviation)}"


def _paper(section: Section, place: Place, name: str) -> float | None:
    return section.paper.get(place, {}).get(name) if name in section.layout.values else None


def _seeds(section: Section) -> set[int]:
    return {cell.seeds for cell in section.cells.values()}


def _render_csv(sections: Sequence[Section]) -> str:
    layout = sections[0].layout
    names = list(dict.fromkeys(name for section in sections for name in section.settings))
    values = [
        f"{name}_{which}" for name in layout.values for which in ("mean", "sd", *["paper"] * (name in LABELS))
    ]
    rows = [
        [*(_csv_setting(s.settings.get(name)) for name in names), *_csv_cell(s, (row, column))]
        for s in sections
        for row in s.rows
        for column in s.columns
    ]
    return as_csv([*names, *layout.rows, *layout.columns, "seeds", *values], rows)


def _csv_cell(section: Section, place: Place) -> list[str]:
    cell, numbers = section.cells.get(place), []
    for name in section.layout.values:
        found = cell.values[name] if cell else Estimate(math.nan, math.nan)
        numbers += [found.mean, found.deviation]
        if name in LABELS:
            numbers.append(section.paper.get(place, {}).get(name, math.nan))
    settings = [_csv_setting(value) for key in place for value in key]
    texts = ["" if math.isnan(number) else repr(number) for number in numbers]
    return [*settings, str(cell.seeds if cell else 0), *texts]


def _csv_setting(value: Any) -> str:
    return "" if value is None else number_text(value)
