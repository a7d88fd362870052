"""Tables of result files, in the paper's layout or another, as text, CSV, markdown or LaTeX."""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mu2mpi.analysis.aggregation import VALUES, Layout, Section, build_sections
from mu2mpi.analysis.pivot import Entry, Grid, aligned, grids
from mu2mpi.analysis.setting_labels import Words, number_text
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import Block, Row, as_paragraph, as_text
from mu2mpi.results.reader import Summary

Format = Literal["text", "csv", "markdown", "latex"]

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "<": r"$<$", ">": r"$>$", "[": "{[}", "]": "{]}", "²": "$^2$", "·": r"$\cdot$",
}  # fmt: skip

_MATHS = {
    "ρ": r"\rho", "ε": r"\varepsilon", "δ": r"\delta", "λ": r"\lambda", "η": r"\eta", "μ": r"\mu",
    "∞": r"\infty", ",": "{,}", "²": "^2",
}  # fmt: skip

_RAISED = "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"

_LETTER = r"(?<![\w$\\])(?:[MTDCKS]|c/M|c|n|[ρεδλη])(?![\w/'-])"
_NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
# What is set as mathematics: letters of the paper, with their values, and powers of ten
_FORMULA = re.compile(
    rf"{_LETTER} = (?:{_NUMBER}|∞|[A-Z]\b)|(?<!\w)(?:[MTDCKS]|c/M|[ρεδλη])(?![\w/'])|"
    rf"10[{_RAISED}]+|(?<![\w.])[\d.]+e[-+]?\d+|μ²|[μρεδλη∞]"
)


@dataclass(frozen=True)
class Dress:
    """Appearance of a table: caption, marks, alignment and names of settings."""

    caption: str = ""  # in place of what all runs share; in LaTeX, LaTeX
    label: str = ""  # for references in LaTeX
    siunitx: bool = False  # numbers are aligned by that package
    best: bool = False  # the best mean of those that can be compared is marked
    words: Words = field(default_factory=Words)


@dataclass(frozen=True)
class Table:
    """Sections, one for each set of shared settings, and what the reader should know of them."""

    sections: list[Section]
    notes: list[str]

    def render(self, format: Format = "text", dress: Dress | None = None) -> str:
        """Return the table in one of the formats; CSV has a line for each cell, at full precision."""
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
    table, legend = as_text(grid.header, grid.blocks(aligned)), as_paragraph(grid.legend.format(best="*"))
    return f"{_caption(dress, grid.heading, number)}\n\n{table}\n\n{legend}"


def _markdown(grid: Grid, dress: Dress, number: int) -> str:
    blocks = grid.blocks(lambda column: [entry.text("**{}**") for entry in column])
    table = as_markdown(grid.header, blocks, len(grid.columns))
    return f"**{_caption(dress, grid.heading, number)}**\n\n{table}\n\n{grid.legend.format(best='Bold')}"


def _latex(grid: Grid, dress: Dress, number: int) -> str:
    """Return a table environment; a caption of the user's is LaTeX."""
    said = f"{grid.heading}. {grid.legend.format(best='Bold')}"
    caption = _caption(dress, escaped(grid.heading), number) if dress.caption else escaped(said)
    label = f"{dress.label}-{number}" if number > 1 else dress.label
    columns = [list(column) for column in zip(*(line.entries for line in grid.lines), strict=True)]
    kinds, write, heads = ["l"] * len(columns), _in_text, [escaped(title) for title in grid.columns]
    if dress.siunitx:
        kinds, write, heads = [*map(_column_type, columns)], _in_siunitx, [f"{{{head}}}" for head in heads]
    lines = [" & ".join([*map(escaped, grid.heads), *heads]) + r" \\"]
    before = len(grid.heads)
    for block in grid.blocks(lambda column: list(map(write, column))):
        lines.append(r"\midrule")
        lines += [" & ".join([*map(escaped, row[:before]), *row[before:]]) + r" \\" for row in block]
    return "\n".join([
        *[f"% {said}"] * bool(dress.caption),
        rf"% \usepackage{{booktabs{',siunitx' * dress.siunitx}}}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *[rf"\label{{{label}}}"] * bool(dress.label),
        *[r"\sisetup{separate-uncertainty=true, table-align-uncertainty=false}"] * dress.siunitx,
        rf"\begin{{tabular}}{{{' '.join(['l' * before, *kinds])}}}",
        r"\toprule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ])  # fmt: skip


def as_markdown(header: Row, blocks: Sequence[Block], numbers: int = 0) -> str:
    """Return a markdown table whose last `numbers` columns are right-aligned."""
    rules = ["---"] * (len(header) - numbers) + ["---:"] * numbers
    rows = [header, rules, *(row for block in blocks for row in block)]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def as_csv(header: Row, rows: Sequence[Row]) -> str:
    """Return comma-separated values without a final line break."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue().rstrip("\n")


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


def escaped(text: str) -> str:
    """Return text as LaTeX, with the paper's letters and their values as mathematics."""
    parts, end = [], 0
    for found in _FORMULA.finditer(text):
        parts += [_plain(text[end : found.start()]), f"${_formula(found[0])}$"]
        end = found.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


def _formula(text: str) -> str:
    if re.fullmatch(f"10[{_RAISED}]+", text):
        return f"10^{{{text[2:].translate(str.maketrans(_RAISED, '-0123456789'))}}}"
    text = re.sub(r"([\d.]+)e([-+]?\d+)", lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = re.sub(r"(?<![\d.])1 \\cdot ", "", text)
    return "".join(_MATHS.get(letter, letter) for letter in text)


def _in_text(entry: Entry) -> str:
    return entry.text(r"\textbf{{{}}}", lambda text: re.sub("^-", "$-$", _plain(text)))


def _in_siunitx(entry: Entry) -> str:
    """Return an entry for a column S, with the deviation in units of the last digit of the mean."""
    if not _is_number(entry):
        return f"{{{_plain(entry.mean)}}}"
    text = entry.mean.replace(",", "") + (f"({_digits(entry.deviation)})" if entry.deviation else "")
    text = rf"\bfseries {text}" if entry.is_best else text
    return f"{text} {{~{_plain(entry.remark)}}}" if entry.remark else text


def _is_number(entry: Entry) -> bool:
    return entry.mean.lstrip("-")[:1].isdigit()


def _digits(number: str) -> str:
    return re.sub(r"[.,]", "", number).lstrip("0") or "0" * bool(number)


def _column_type(column: Sequence[Entry]) -> str:
    numbers = list(filter(_is_number, column))
    if not numbers:
        return "c"
    parts = [entry.mean.replace(",", "").lstrip("-").partition(".") for entry in numbers]
    whole, digits = (max(len(part[k]) for part in parts) for k in (0, 2))
    spread = max(len(_digits(entry.deviation)) for entry in numbers)
    sign = "-" * any(entry.mean.startswith("-") for entry in numbers)
    options = [f"table-format={sign}{whole}.{digits}" + f"({spread})" * bool(spread)]
    if remark := max((entry.remark for entry in numbers), key=len):
        options.append(f"table-space-text-post={{~{_plain(remark)}}}")
    if any(entry.is_best for entry in numbers):
        options.append("detect-weight")
    return f"S[{', '.join(options)}]"
