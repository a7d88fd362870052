"""The paper's tables from result files, as text, CSV, markdown or LaTeX."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mu2mpi.analysis.cells import Cell, Column, Estimate, Row, Section, build_sections, number_text
from mu2mpi.analysis.formats import as_csv, as_latex, as_markdown, as_text
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary

__all__ = ["Format", "Table", "build_table"]

Format = Literal["text", "csv", "markdown", "latex"]

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """Sections, one for each set of shared settings, and what the reader should know of them."""

    sections: list[Section]
    notes: list[str]

    def render(self, format: Format = "text") -> str:
        """Return the table in one of the formats, without a line break at the end.

        Text, markdown and LaTeX have the paper's layout; CSV has one line for each cell, missing ones
        included, with means, deviations and the paper's values at full precision.

        Raises
        ------
        InputError
            If there is no such format.
        """
        if format == "csv":
            return _render_csv(self.sections)
        if format == "latex":
            parts = [as_latex(*_grid(s), caption=f"{s.heading}. {_legend(s)}") for s in self.sections]
            return "\n\n".join([*parts, *(f"% {note}" for note in self.notes)])
        if format == "markdown":
            parts = [f"**{s.heading}**\n\n{as_markdown(*_grid(s))}\n\n{_legend(s)}" for s in self.sections]
        elif format == "text":
            parts = [f"{s.heading}\n\n{as_text(*_grid(s))}\n\n{_legend(s)}" for s in self.sections]
        else:
            raise InputError(f"unknown format {format!r}; the formats are text, csv, markdown and latex")
        return "\n\n".join([*parts, *(f"Note: {note}" for note in self.notes)])


def build_table(summaries: Iterable[Summary]) -> Table:
    """Arrange runs in the paper's layout.

    Runs are averaged only if they differ in the seed alone (or in delta or evaluations, which change
    nothing in the model); any other difference, such as another diameter, makes a section of its own.
    A run that is there twice counts once.

    Raises
    ------
    InputError
        If there are no runs.
    """
    sections, notes = build_sections(summaries)
    if not sections:
        raise InputError("there are no results to make a table of")
    return Table(sections, notes)


def _grid(section: Section) -> tuple[list[str], list[list[list[str]]]]:
    """Return the header, and the rows in one block for each server."""
    header = ["server", "rho", "", *(f"M = {c.machines:,}, T = {c.rounds:,}" for c in section.columns)]
    blocks: dict[str, list[list[str]]] = {}
    for row in section.rows:
        blocks.setdefault(row.server, []).extend(_lines(section, row))
    return header, list(blocks.values())


def _lines(section: Section, row: Row) -> list[list[str]]:
    """Return the lines of one row: loss, accuracy and, unless the legend says it, number of seeds."""
    places = [(row, column) for column in section.columns]
    lines = [
        [row.server, number_text(row.rho), "loss", *(_loss(section, place) for place in places)],
        ["", "", "accuracy %", *(_accuracy(section, place) for place in places)],
    ]
    if len(_seeds(section)) > 1:
        counts = [str(section.cells[place].seeds) if place in section.cells else MISSING for place in places]
        lines.append(["", "", "seeds", *counts])
    return lines


def _loss(section: Section, place: tuple[Row, Column]) -> str:
    if place not in section.cells:
        return MISSING
    paper = f" [{section.paper[place][0]:.3f}]" if place in section.paper else ""
    return _spread(section.cells[place].loss, 4) + paper


def _accuracy(section: Section, place: tuple[Row, Column]) -> str:
    if place not in section.cells:
        return MISSING
    paper = f" [{100 * section.paper[place][1]:.1f}]" if place in section.paper else ""
    mean, deviation = section.cells[place].accuracy
    return _spread(Estimate(100 * mean, 100 * deviation), 1) + paper


def _spread(estimate: Estimate, decimals: int) -> str:
    mean = f"{estimate.mean:.{decimals}f}"
    return mean if math.isnan(estimate.deviation) else f"{mean} ± {estimate.deviation:.{decimals}f}"


def _seeds(section: Section) -> set[int]:
    return {cell.seeds for cell in section.cells.values()}


def _legend(section: Section) -> str:
    seeds = _seeds(section)
    if seeds == {1}:
        text = "Test loss and accuracy of the output; one seed."
    else:
        over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the seeds counted in each cell"
        text = f"Test loss and accuracy of the output: mean ± standard deviation over {over}."
    if any(place in section.paper for place in section.cells):
        text += " In brackets: the paper's value."
    return text


def _render_csv(sections: Sequence[Section]) -> str:
    names = list(dict.fromkeys(name for section in sections for name in section.settings))
    values = [f"test_{what}_{which}" for what in ("loss", "accuracy") for which in ("mean", "sd", "paper")]
    rows = [
        [*(number_text(s.settings.get(name, "")) for name in names), *_csv_cell(s, row, column)]
        for s in sections
        for row in s.rows
        for column in s.columns
    ]
    return as_csv([*names, *Row._fields, *Column._fields, "seeds", *values], rows)


def _csv_cell(section: Section, row: Row, column: Column) -> list[str]:
    cell = section.cells.get((row, column), Cell(0, *[Estimate(math.nan, math.nan)] * 2))
    paper = section.paper.get((row, column), (math.nan, math.nan))
    numbers = [*cell.loss, paper[0], *cell.accuracy, paper[1]]
    place = [row.server, number_text(row.rho), str(column.machines), str(column.rounds)]
    return [*place, str(cell.seeds), *("" if math.isnan(value) else repr(value) for value in numbers)]
