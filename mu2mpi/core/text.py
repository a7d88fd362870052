"""Messages on standard error, and tables, paragraphs, lists and rounded bounds as text."""

import html
import sys
import textwrap
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context

TableRow = Sequence[str]  # Cells
TableRowGroup = Sequence[TableRow]  # Rows between two rules


def print_messages(*messages: str) -> None:
    """Print messages on standard error."""
    for message in messages:
        print(message, file=sys.stderr, flush=True)


def warn(*warnings: str) -> None:
    """Print warnings on standard error."""
    print_messages(*(f"mu2mpi: warning: {warning}" for warning in warnings))


def text_table(header: TableRow, blocks: Sequence[TableRowGroup]) -> str:
    """Format a table as text with aligned columns, a header, and a rule above each block of rows."""
    rows = [header, *(row for block in blocks for row in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = [header, *(row for block in blocks for row in (rule, *block))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def html_table(rows: Iterable[TableRow]) -> str:
    """Format rows as an HTML table for a notebook."""
    cells = ([f'<td style="text-align: left">{html.escape(cell)}</td>' for cell in row] for row in rows)
    return "\n".join(["<table>", *(f"<tr>{''.join(row)}</tr>" for row in cells), "</table>"])


def wrap_paragraph(text: str) -> str:
    """Wrap text at 96 columns without breaking words."""
    return textwrap.fill(text, width=96, break_long_words=False, break_on_hyphens=False)


def bullet_list(items: Sequence[str]) -> str:
    """Format texts as a bullet list, each item wrapped at 96 columns and indented."""
    return "\n".join(textwrap.indent(wrap_paragraph(item), "  ").replace("  ", "- ", 1) for item in items)


def rounded_up(value: float) -> str:
    """Format an upper bound with four significant digits, rounded up."""
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))):.10g}"
