"""Text as aligned columns, markdown, CSV, LaTeX and paragraphs, and rounded numbers; not what they say."""

import csv
import io
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

Row = Sequence[str]
Block = Sequence[Row]

LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
    "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--",
    "∞": r"$\infty$", "<": r"$<$", ">": r"$>$", "[": "{[}", "]": "{]}",
})  # fmt: skip


def as_text(header: Row, blocks: Sequence[Block]) -> str:
    """Return aligned columns for a terminal, with a rule under the header and between blocks of rows."""
    rows = [header, *(row for block in blocks for row in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = [header, *(row for block in blocks for row in (rule, *block))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def as_paragraph(text: str) -> str:
    """Return text in lines for a terminal."""
    return textwrap.fill(text, width=96, break_long_words=False, break_on_hyphens=False)


def as_bullets(texts: Sequence[str]) -> str:
    """Return a list for a terminal."""
    return "\n".join(textwrap.indent(as_paragraph(text), "  ").replace("  ", "- ", 1) for text in texts)


def as_markdown(header: Row, blocks: Sequence[Block]) -> str:
    """Return a markdown table."""
    rows = [header, ["---"] * len(header), *(row for block in blocks for row in block)]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def as_csv(header: Row, rows: Sequence[Row]) -> str:
    """Return comma-separated values without a line break at the end."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue().rstrip("\n")


def as_latex(header: Row, blocks: Sequence[Block], caption: str) -> str:
    """Return a LaTeX table that needs the package booktabs."""
    head = rf"""\begin{{table}}
\centering
\caption{{{caption.translate(LATEX)}}}
\begin{{tabular}}{{{"l" * len(header)}}}
\toprule"""
    rules = [row for block in blocks for row in (r"\midrule", *map(_latex_row, block))]
    return "\n".join([head, _latex_row(header), *rules, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _latex_row(row: Row) -> str:
    return " & ".join(cell.translate(LATEX) for cell in row) + r" \\"


def rounded_up(value: float) -> str:
    """Return four significant digits, rounded up: a guarantee must not look stronger than it is."""
    return _rounded(value, ROUND_CEILING)


def rounded_down(value: float) -> str:
    """Return four significant digits, rounded down: a demand must not look weaker than it is."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float, rounding: str) -> str:
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.10g}"
