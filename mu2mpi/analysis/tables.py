"""Tables of results as text, CSV, markdown or LaTeX, by default in the layout of the paper's tables."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mu2mpi.analysis.aggregation import PAPER_MEASUREMENTS, TableLayout, TableSection, build_sections
from mu2mpi.analysis.pivot import PivotTable, TableEntry, align_column, pivot_tables
from mu2mpi.analysis.setting_labels import Labels, format_value
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import TableRow, text_table, wrap_paragraph
from mu2mpi.results.reader import RunSummary

TableFormat = Literal["text", "csv", "markdown", "latex"]

_LATEX_ESCAPES = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "<": r"$<$", ">": r"$>$", "|": r"\textbar{}", "[": "{[}", "]": "{]}", "·": r"$\cdot$", "∞": r"$\infty$",
    "ρ": r"$\rho$", "ε": r"$\varepsilon$", "δ": r"$\delta$", "λ": r"$\lambda$", "η": r"$\eta$", "μ": r"$\mu$",
    **{superscript: f"$^{digit}$" for superscript, digit in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
})  # fmt: skip
# Text that a spreadsheet takes for a formula, unlike signed numbers
_FORMULA_CELL = re.compile(r"[=@\t\r]|[+-](?!(?:\d*\.?\d+(?:e[-+]?\d+)?|inf|nan)$)", re.IGNORECASE)


@dataclass(frozen=True)
class TableStyle:
    """Appearance of a table: caption, LaTeX label, marks and labels."""

    caption: str = ""  # in place of the common settings; LaTeX source in the LaTeX format
    label: str = ""  # LaTeX label
    best: bool = False  # whether the best of comparable means are marked
    labels: Labels = field(default_factory=Labels)


@dataclass(frozen=True)
class Table:
    """Table of runs: one section for each set of common settings, and notes for the reader."""

    sections: list[TableSection]
    notes: list[str]

    def render(self, format: TableFormat = "text", style: TableStyle | None = None) -> str:
        """Return the table as text, CSV (one line per entry, at full precision), markdown or LaTeX."""
        style = style or TableStyle()
        if format == "csv":
            return _render_csv(self.sections)
        renderers = {"text": _render_text, "markdown": _render_markdown, "latex": _render_latex}
        if format not in renderers:
            raise InputError(f"unknown format {format!r}. Choose text, csv, markdown or latex.")
        tables = pivot_tables(self.sections, style.labels, style.best)
        texts = [renderers[format](table, style, k * (len(tables) > 1)) for k, table in enumerate(tables, 1)]
        note = "%" if format == "latex" else "Note:"
        return "\n\n".join([*texts, *(f"{note} {' '.join(text.split())}" for text in self.notes)])


def build_table(runs: Iterable[RunSummary], layout: TableLayout | None = None) -> Table:
    """Return the table of runs in a layout; raises the errors of `build_sections`."""
    return Table(*build_sections(runs, layout or TableLayout()))


def _render_text(table: PivotTable, style: TableStyle, table_number: int) -> str:
    body, legend = text_table(table.header, table.blocks(align_column)), table.legend.replace("{best}", "*")
    return f"{_format_caption(style, table.title, table_number)}\n\n{body}\n\n{wrap_paragraph(legend)}"


def _render_markdown(table: PivotTable, style: TableStyle, table_number: int) -> str:
    blocks = table.blocks(lambda column: [entry.text("**{}**") for entry in column])
    rules = ["---"] * len(table.row_headers) + ["---:"] * len(table.columns)
    n, escape = len(table.row_headers), _escape_markdown
    labelled = ([*map(escape, row[:n]), *row[n:]] for block in blocks for row in block)
    rows = [[*map(escape, table.header)], rules, *labelled]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    caption = _format_caption(style, escape(table.title), table_number)
    return f"**{caption}**\n\n{body}\n\n{escape(table.legend.replace('{best}', 'Bold'))}"


def _render_latex(table: PivotTable, style: TableStyle, table_number: int) -> str:
    """Return a LaTeX table environment; `table_number` counts tables from 1, or is 0 for a single table."""
    description = " ".join(f"{table.title}. {table.legend.replace('{best}', 'Bold')}".split())
    title = escape_latex(table.title)
    caption = _format_caption(style, title, table_number) if style.caption else escape_latex(description)
    label = f"{style.label}-{table_number}" if table_number > 1 else style.label
    lines, n = [" & ".join(map(escape_latex, table.header)) + r" \\"], len(table.row_headers)
    for block in table.blocks(lambda column: list(map(_format_entry, column))):
        lines.append(r"\midrule")
        lines += [" & ".join([*map(escape_latex, row[:n]), *row[n:]]) + r" \\" for row in block]
    return "\n".join([
        *[f"% {description}"] * bool(style.caption),
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *[rf"\label{{{label}}}"] * bool(style.label),
        rf"\begin{{tabular}}{{{'l' * n} {'r' * len(table.columns)}}}",
        r"\toprule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ])  # fmt: skip


def csv_table(header: TableRow, rows: Sequence[TableRow]) -> str:
    """Return a header and rows as comma-separated values, without a final line break.

    An apostrophe precedes text, other than numbers, that a spreadsheet would execute as a formula.
    """
    stream = io.StringIO()
    safe = ([f"'{cell}" if _FORMULA_CELL.match(cell) else cell for cell in row] for row in [header, *rows])
    csv.writer(stream, lineterminator="\n").writerows(safe)
    return stream.getvalue().rstrip("\n")


def _format_caption(style: TableStyle, title: str, table_number: int) -> str:
    suffix = f" ({title})" if table_number else ""
    return f"{style.caption}{suffix}" if style.caption else title


def _render_csv(sections: Sequence[TableSection]) -> str:
    lines = []
    for section in sections:
        for (row, column), aggregate in section.aggregates.items():
            axes = zip(section.layout.axes, row + column, strict=True)
            line = section.settings | aggregate.settings | dict(axes) | {"seeds": aggregate.seeds}
            for name, (mean, std) in aggregate.values.items():
                line |= {f"{name}_mean": mean, f"{name}_sd": std}
                if name in PAPER_MEASUREMENTS:
                    line[f"{name}_paper"] = aggregate.paper_values.get(name)
            lines.append(line)
    names = list(dict.fromkeys(name for line in lines for name in line))
    return csv_table(names, [[_format_csv_value(line.get(name)) for name in names] for line in lines])


def _format_csv_value(value: object) -> str:
    """Format a setting or number at full precision; empty for None and NaN."""
    return "" if value is None or value != value else format_value(value)


def _escape_markdown(text: str) -> str:
    # An underscore between letters has no meaning.
    return re.sub(r"[\\`*<>\[\]|$~&]|\b_(?!\w)|(?<!\w)_", r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, with Greek letters and superscripts as mathematics."""
    return text.translate(_LATEX_ESCAPES)


def _format_entry(entry: TableEntry) -> str:
    return entry.text(r"\textbf{{{}}}", lambda text: re.sub("^-", "$-$", escape_latex(text)))
