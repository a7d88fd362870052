"""Text for a terminal: messages, tables, paragraphs and lists."""

import sys
import textwrap
from collections.abc import Sequence

Row = Sequence[str]
Block = Sequence[Row]


def say(message: str) -> None:
    """Print a message on standard error."""
    print(message, file=sys.stderr, flush=True)


def warn(*warnings: str) -> None:
    """Print warnings on standard error."""
    for warning in warnings:
        say(f"mu2mpi: warning: {warning}")


def as_text(header: Row, blocks: Sequence[Block]) -> str:
    """Return aligned columns for a terminal, with a rule above each block of rows."""
    rows = [header, *(row for block in blocks for row in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = [header, *(row for block in blocks for row in (rule, *block))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def as_paragraph(text: str) -> str:
    """Return text wrapped for a terminal."""
    return textwrap.fill(text, width=96, break_long_words=False, break_on_hyphens=False)


def as_bullets(texts: Sequence[str]) -> str:
    """Return a list for a terminal."""
    return "\n".join(textwrap.indent(as_paragraph(text), "  ").replace("  ", "- ", 1) for text in texts)
