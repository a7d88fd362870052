"""Tables of results as text, CSV, markdown or LaTeX, by default in the layout of the paper's tables."""

import csv
import io
import math
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
    "<": r"$<$", ">": r"$>$", "|": r"\textbar{}", "[": "{[}", "]": "{]}", "²": "$^2$", "·": r"$\cdot$",
})  # fmt: skip
_MATH_SYMBOLS = str.maketrans({
    "ρ": r"\rho", "ε": r"\varepsilon", "δ": r"\delta", "λ": r"\lambda", "η": r"\eta", "μ": r"\mu",
    "∞": r"\infty", ",": "{,}", "²": "^2",
})  # fmt: skip
# Text that a spreadsheet takes for a formula, unlike signed numbers
_FORMULA_CELL = re.compile(r"[=@\t\r]|[+-](?!(?:\d*\.?\d+(?:e[-+]?\d+)?|inf|nan)$)", re.IGNORECASE)
_SUPERSCRIPT_DIGITS = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"
_SYMBOL_PATTERN = r"(?<![\w$\\])(?:[MTDCKS]|c/M|c|n|[ρεδλη])(?![\w/'-])"
_NUMBER_PATTERN = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
# Text set as mathematics, in a group: the paper's symbols, with their values, and powers of ten
_FORMULA_PATTERN = re.compile(
    rf"({_SYMBOL_PATTERN} = (?:{_NUMBER_PATTERN}|∞|[A-Z]\b)|(?<!\w)(?:[MTDCKS]|c/M|[ρεδλη])(?![\w/'])|"
    rf"10[{_SUPERSCRIPT_DIGITS}]+|(?<![\w.])[\d.]+e[-+]?\d+|μ²|[μρεδλη∞])"
)


@dataclass(frozen=True)
class TableStyle:
    """Appearance of a table: caption, LaTeX label, alignment, marks and labels."""

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
    layout, lines = sections[0].layout, []
    aggregates = [aggregate for section in sections for aggregate in section.aggregates.values()]
    all_settings = [section.settings for section in sections] + [a.settings for a in aggregates]
    names = list(dict.fromkeys(name for settings in all_settings for name in settings))
    statistics = {name: ("mean", "sd", *["paper"] * (name in PAPER_MEASUREMENTS)) for name in layout.values}
    value_headers = [f"{name}_{column}" for name, columns in statistics.items() for column in columns]
    header = [*names, *layout.axes, "seeds", *value_headers]
    for section in sections:
        for (row, column), aggregate in section.aggregates.items():
            shared = map((section.settings | aggregate.settings).get, names)
            settings = ["" if value is None else format_value(value) for value in (*shared, *row, *column)]
            estimates = [(*aggregate.values[n], aggregate.paper_values.get(n, math.nan)) for n in statistics]
            numbers = (x for e, n in zip(estimates, statistics, strict=True) for x in e[: len(statistics[n])])
            texts = ("" if math.isnan(number) else repr(number) for number in numbers)
            lines.append([*settings, str(aggregate.seeds), *texts])
    return csv_table(header, lines)


def _escape_markdown(text: str) -> str:
    # An underscore between letters has no meaning.
    return re.sub(r"[\\`*<>\[\]|$~&]|\b_(?!\w)|(?<!\w)_", r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, with the paper's symbols and their values as mathematics."""
    pieces = enumerate(_FORMULA_PATTERN.split(text))  # Every second piece is a formula.
    return "".join(f"${_format_formula(s)}$" if k % 2 else s.translate(_LATEX_ESCAPES) for k, s in pieces)


def _format_formula(text: str) -> str:
    if re.fullmatch(f"10[{_SUPERSCRIPT_DIGITS}]+", text):
        return f"10^{{{text[2:].translate(str.maketrans(_SUPERSCRIPT_DIGITS, '-0123456789'))}}}"
    text = re.sub(r"([\d.]+)e([-+]?\d+)", lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = re.sub(r"(?<![\d.])1 \\cdot ", "", text)
    return text.translate(_MATH_SYMBOLS)


def _format_entry(entry: TableEntry) -> str:
    return entry.text(r"\textbf{{{}}}", lambda text: re.sub("^-", "$-$", text.translate(_LATEX_ESCAPES)))
