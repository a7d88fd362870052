"""Text as aligned columns, markdown, CSV and paragraphs, and rounded numbers; not what they say."""

import csv
import io
import textwrap
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple

Row = Sequence[str]
Block = Sequence[Row]


class Entry(NamedTuple):
    """A number of a table with its deviation and a remark, where it has them; or that it is missing."""

    mean: str
    deviation: str = ""
    remark: str = ""
    is_best: bool = False


def as_text(header: Row, blocks: Sequence[Block]) -> str:
    """Return aligned columns for a terminal, with a rule under the header and between blocks of rows."""
    rows = [header, *(row for block in blocks for row in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = [header, *(row for block in blocks for row in (rule, *block))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


class Dialect(NamedTuple):
    """How a kind of text writes what stands about a number: `blank` is what is as wide as a text."""

    blank: Callable[[str], str] = lambda text: " " * len(text)
    plus_minus: str = " ± "
    best: Callable[[str], str] = lambda mean: f"{mean}*"
    other: Callable[[str], str] = lambda mean: f"{mean} "
    """What marks the best mean, and any other below or above one that is marked."""
    number: Callable[[str], str] = str


TEXT = Dialect()


def aligned(column: Sequence[Entry], dialect: Dialect = TEXT) -> list[str]:
    """Return the entries of a column with points, signs and remarks below one another."""
    blank, has_best = dialect.blank, any(entry.is_best for entry in column)
    means = _pads([entry.mean for entry in column], blank)
    spreads = _pads([entry.deviation for entry in column], blank)
    texts = []
    for entry, (before, after), (ahead, behind) in zip(column, means, spreads, strict=True):
        mark = dialect.best if entry.is_best else dialect.other if has_best else str
        text = before + mark(dialect.number(entry.mean))
        if entry.deviation:
            text += after + dialect.plus_minus + ahead + dialect.number(entry.deviation)
        if entry.remark:
            text += (behind if entry.deviation else after) + " " + dialect.number(entry.remark)
        texts.append(text)
    return texts


def _pads(numbers: Row, blank: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return what stands before and after each number for their points to be below one another."""
    parts = [(whole, point + digits) for whole, point, digits in (text.partition(".") for text in numbers)]
    longest, deepest = (max(column, key=len) for column in zip(*parts, strict=True))
    return [(blank(longest[: len(longest) - len(w)]), blank(deepest[len(d) :])) for w, d in parts]


def as_paragraph(text: str) -> str:
    """Return text in lines for a terminal."""
    return textwrap.fill(text, width=96, break_long_words=False, break_on_hyphens=False)


def as_bullets(texts: Sequence[str]) -> str:
    """Return a list for a terminal."""
    return "\n".join(textwrap.indent(as_paragraph(text), "  ").replace("  ", "- ", 1) for text in texts)


def as_markdown(header: Row, blocks: Sequence[Block], numbers: int = 0) -> str:
    """Return a markdown table, of which so many columns at the end are numbers."""
    rules = ["---"] * (len(header) - numbers) + ["---:"] * numbers
    rows = [header, rules, *(row for block in blocks for row in block)]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows)


def as_csv(header: Row, rows: Sequence[Row]) -> str:
    """Return comma-separated values without a line break at the end."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return stream.getvalue().rstrip("\n")


def rounded_up(value: float) -> str:
    """Return four significant digits, rounded up: a guarantee must not look stronger than it is."""
    return _rounded(value, ROUND_CEILING)


def rounded_down(value: float) -> str:
    """Return four significant digits, rounded down: a demand must not look weaker than it is."""
    return _rounded(value, ROUND_FLOOR)


def _rounded(value: float, rounding: str) -> str:
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.10g}"
