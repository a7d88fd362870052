"""Tables as text, markdown and CSV, paragraphs for a terminal, and numbers rounded to the safe side."""

import csv
import io
import textwrap
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple

Row = Sequence[str]
Block = Sequence[Row]


class Entry(NamedTuple):
    """A number of a table with its standard deviation and a remark, or the mark of a missing one."""

    mean: str
    deviation: str = ""
    remark: str = ""
    is_best: bool = False


class Dialect(NamedTuple):
    """How a format pads numbers and marks the best; `blank` returns padding as wide as a text."""

    blank: Callable[[str], str] = lambda text: " " * len(text)
    plus_minus: str = " ± "
    best: Callable[[str], str] = lambda mean: f"{mean}*"
    other: Callable[[str], str] = lambda mean: f"{mean} "
    """Applied to the other means of a column with a best one."""
    number: Callable[[str], str] = str


TEXT = Dialect()


def as_text(header: Row, blocks: Sequence[Block]) -> str:
    """Return aligned columns for a terminal, with a rule above each block of rows."""
    rows = [header, *(row for block in blocks for row in block)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ["-" * width for width in widths]
    lines = [header, *(row for block in blocks for row in (rule, *block))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in lines)


def aligned(column: Sequence[Entry], dialect: Dialect = TEXT) -> list[str]:
    """Return entries of a column as text, aligned at decimal points and plus-minus signs."""
    blank, has_best = dialect.blank, any(entry.is_best for entry in column)
    means, deviations = [entry.mean for entry in column], [entry.deviation for entry in column]
    paddings = _paddings(means, blank), _paddings(deviations, blank)
    texts = []
    for entry, (before, after), (ahead, behind) in zip(column, *paddings, strict=True):
        mark = dialect.best if entry.is_best else dialect.other if has_best else str
        text = before + mark(dialect.number(entry.mean))
        if entry.deviation:
            text += after + dialect.plus_minus + ahead + dialect.number(entry.deviation)
        if entry.remark:
            text += (behind if entry.deviation else after) + " " + dialect.number(entry.remark)
        texts.append(text)
    return texts


def _paddings(numbers: Row, blank: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return the padding before and after each number that aligns their decimal points."""
    parts = [(whole, point + digits) for whole, point, digits in (text.partition(".") for text in numbers)]
    longest, deepest = (max(column, key=len) for column in zip(*parts, strict=True))
    return [(blank(longest[: len(longest) - len(w)]), blank(deepest[len(d) :])) for w, d in parts]


def as_paragraph(text: str) -> str:
    """Return text wrapped for a terminal."""
    return textwrap.fill(text, width=96, break_long_words=False, break_on_hyphens=False)


def as_bullets(texts: Sequence[str]) -> str:
    """Return a list for a terminal."""
    return "\n".join(textwrap.indent(as_paragraph(text), "  ").replace("  ", "- ", 1) for text in texts)


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


def rounded_up(value: float, rounding: str = ROUND_CEILING) -> str:
    """Return four significant digits, rounded up: a guarantee must not look stronger than it is."""
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(repr(value))):.10g}"


def rounded_down(value: float) -> str:
    """Return four significant digits, rounded down: a demand must not look weaker than it is."""
    return rounded_up(value, ROUND_FLOOR)
