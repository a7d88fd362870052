"""Entries of tables, tables as markdown and CSV, and numbers rounded to the safe side."""

import csv
import io
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple

from mu2mpi.core.text import Block, Row


class Entry(NamedTuple):
    """A number of a table with its standard deviation and a remark, or the mark of a missing one."""

    mean: str
    deviation: str = ""
    remark: str = ""
    is_best: bool = False

    def text(self, bold: str, escape: Callable[[str], str] = str) -> str:
        """Return the entry for a format that does not align, with the best in bold."""
        number = escape(f"{self.mean} ± {self.deviation}" if self.deviation else self.mean)
        number = bold.format(number) if self.is_best else number
        return f"{number} {escape(self.remark)}" if self.remark else number


def aligned(column: Sequence[Entry], blank: Callable[[str], str] = lambda text: " " * len(text)) -> list[str]:
    """Return entries of a column as text, aligned at points and plus-minus signs by blanks."""
    has_best = any(entry.is_best for entry in column)
    columns = [entry.mean for entry in column], [entry.deviation for entry in column]
    texts = []
    for entry, (before, after), (ahead, behind) in zip(
        column, *(_paddings(numbers, blank) for numbers in columns), strict=True
    ):
        text = before + entry.mean + ("*" if entry.is_best else " " * has_best)
        text += f"{after} ± {ahead}{entry.deviation}" if entry.deviation else ""
        texts.append(f"{text}{behind if entry.deviation else after} {entry.remark}" if entry.remark else text)
    return texts


def _paddings(numbers: Row, blank: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return the padding before and after each number that aligns their decimal points."""
    parts = [(whole, point + digits) for whole, point, digits in (text.partition(".") for text in numbers)]
    longest, deepest = (max(column, key=len) for column in zip(*parts, strict=True))
    return [(blank(longest[: len(longest) - len(w)]), blank(deepest[len(d) :])) for w, d in parts]


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
