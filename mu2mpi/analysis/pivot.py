"""A section of a table as it is read: short headers, rounded numbers, the best ones, and a legend."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from mu2mpi.analysis.aggregation import PLACES, Section
from mu2mpi.analysis.setting_labels import MISSING, PRIVACY, SHARE, Key, Words
from mu2mpi.core.text import Row
from mu2mpi.losses.metrics.metric import metrics

# Measurements, other than metrics and the loss, of which the lowest is the best
_COSTS = ("excess_loss", "elapsed_seconds", "gradient_evaluations")
# Settings that make a problem, not a way to solve it: what differs in one of these is not compared
_GIVEN = (
    "data", "test", "loss", "machines", "rounds", "samples", "features", "classes", "epsilon", "rho", "delta",
    "partition", "participation", "budgets", "seed", "ranks",
)  # fmt: skip


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


class Line(NamedTuple):
    """One line of a table: its block, the cells before its numbers, and these."""

    block: int
    heads: list[str]
    entries: list[Entry]


@dataclass(frozen=True)
class Grid:
    """A section in words: lines in blocks that share the first of their rows' settings."""

    heading: str
    heads: list[str]  # names of the rows' settings, and an empty one above labels of lines
    columns: list[str]
    lines: list[Line]
    legend: str

    @property
    def header(self) -> list[str]:
        """The words above all columns."""
        return [*self.heads, *self.columns]

    def blocks(self, write: Callable[[Sequence[Entry]], Sequence[str]]) -> list[list[list[str]]]:
        """Return the rows of each block, with the numbers of each column as they are written."""
        columns = zip(*(line.entries for line in self.lines), strict=True)
        rows = zip(self.lines, zip(*map(write, columns), strict=True), strict=True)
        blocks = groupby(rows, key=lambda pair: pair[0].block)
        return [[[*line.heads, *numbers] for line, numbers in block] for _, block in blocks]


class Scale(NamedTuple):
    """How a value is written: its label, with a power of ten if it has one, and its factor and decimals."""

    label: str
    factor: float
    decimals: int

    def text(self, number: float) -> str:
        """Return a number as it is written."""
        return f"{self.factor * number:,.{self.decimals}f}"


def _measure(name: str) -> tuple[str, int | None, int]:
    """Return label, decimals (None: by the numbers), and 1 or -1 where the best is the highest or lowest."""
    if name == "test_loss":
        return "loss", 4, -1
    if name in _COSTS or (metric := metrics().get(name.removeprefix("test_"))) is None:
        return name.replace("_", " "), None, -1 if name in _COSTS else 0
    decimals = {"%": 1, "1": 4, "label": None}[metric.unit]
    return metric.title + " %" * (metric.unit == "%"), decimals, 1 if metric.higher_is_better else -1


def scale_of(name: str, means: Iterable[float]) -> Scale:
    """Choose how the numbers of a value are written: all with as many decimals."""
    label, decimals, _ = _measure(name)
    means = [abs(float(mean)) for mean in means if math.isfinite(mean) and mean]
    if decimals is not None or not means:
        return Scale(label, 100 if label.endswith("%") else 1, decimals or 0)
    least, power = (math.floor(math.log10(mean)) for mean in (min(means), max(means)))
    if not -3 <= power < 7:
        raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return Scale(f"{label} (10{raised})", 10.0**-power, 3)
    digits = 0 if all(mean.is_integer() for mean in means) else 3 - max(least, power - 2)
    return Scale(label, 1, max(0, digits))


def grids(sections: Sequence[Section], words: Words, best: bool = False) -> list[Grid]:
    """Put sections in words; on request with the best mean of those that can be compared marked."""
    # All tables have the same rows, without settings that nothing changes.
    names = sections[0].layout.rows
    kept = [k for k in range(len(names)) if len({row[k] for s in sections for row in s.rows}) > 1]
    return [_grid(section, kept, words, best) for section in sections]


def _grid(section: Section, kept: Sequence[int], words: Words, best: bool) -> Grid:
    """Return a section with its rows' settings of these numbers."""
    layout, cells = section.layout, section.cells
    scales = {name: scale_of(name, [c.values[name].mean for c in cells.values()]) for name in layout.values}
    leaders, lead = _leaders(section, scales, words) if best else (set(), "")
    firsts = [row[kept[0]] if kept else None for row in section.rows]
    order = list(dict.fromkeys(firsts))
    is_labelled = len(section.seeds) > 1 or len(layout.values) > 1
    lines: list[Line] = []
    for row, first in zip(section.rows, firsts, strict=True):
        block = order.index(first) if len(order) < len(firsts) else 0
        titles = [words.in_table(layout.rows[k], row[k]) for k in kept]
        labelled = []
        for name, scale in scales.items():
            # The paper has three decimals of losses, and one of accuracies.
            decimals, entries = min(3, scale.decimals), []
            for column in section.columns:
                cell = cells[row, column]
                mean, deviation = ("" if math.isnan(n) else scale.text(n) for n in cell.values[name])
                paper = f"[{scale.factor * cell.paper[name]:.{decimals}f}]" if name in cell.paper else ""
                is_best = (name, row, column) in leaders
                entries.append(Entry(mean, deviation, paper, is_best) if mean else Entry(MISSING))
            labelled.append((scale.label, entries))
        if len(section.seeds) > 1:
            counted = [Entry(str(cells[row, column].seeds or MISSING)) for column in section.columns]
            labelled.append(("seeds", counted))
        for label, entries in labelled:
            lines.append(Line(block, [*titles, *[label] * is_labelled], entries))
            titles = [""] * len(kept)
    constant = {name: section.rows[0][k] for k, name in enumerate(layout.rows) if k not in kept}
    legend = [_legend(section, scales), *_followed(section, words), *[lead] * best]
    heads = [*(words.name(layout.rows[k]) for k in kept), *[""] * is_labelled]
    columns = []
    for key in section.columns:
        settings = dict(zip(layout.columns, key, strict=True))
        # Of epsilon and rho, the one by which privacy was not set is left out.
        left_out = PRIVACY if any(settings.get(name) is not None for name in PRIVACY) else ()
        told = [(n, value) for n, value in settings.items() if value is not None or n not in left_out]
        columns.append(", ".join(words.pair(*setting) for setting in told))
    # What is the same in the whole table, without names (other than the data's) by default.
    said = _said(section.settings, section.defaults) | {n: v for n, v in constant.items() if v is not None}
    heading = words.of({name: said[name] for name in sorted(said, key=PLACES.index)})
    return Grid(heading, heads, columns, lines, " ".join(legend))


def _leaders(
    section: Section, scales: dict[str, Scale], words: Words
) -> tuple[set[tuple[str, Key, Key]], str]:
    """Return where the best means are of those that can be compared, and say how many lead by chance perhaps.

    Means of the same problem and privacy can be, of the same server where methods differ, and excess losses
    in the same ball.
    """
    best: set[tuple[str, Key, Key]] = set()
    led, close, single, places = 0, 0, 0, section.layout.places
    given = (*_GIVEN, *["server", "colluders", SHARE] * ("method" in places))
    signs = {name: sign for name in scales if (sign := _measure(name)[2])}
    for name, sign in signs.items():
        values = {key: cell.values[name] for key, cell in section.cells.items()}
        sets: dict[Key, list[tuple[Key, Key]]] = {}
        for (row, column), cell in section.cells.items():
            if not math.isnan(cell.values[name].mean):
                key = tuple(v for n, v in zip(places, row + column, strict=True) if n in given)
                sets.setdefault((*key, name == "excess_loss" and cell.diameters), []).append((row, column))
        for keys in (keys for keys in sets.values() if len(keys) > 1):
            first, second = sorted(keys, key=lambda key: -sign * values[key].mean)[:2]
            written = scales[name].text(values[first].mean)
            best |= {(name, *key) for key in keys if scales[name].text(values[key].mean) == written}
            errors = [values[k].deviation / math.sqrt(section.cells[k].seeds) for k in (first, second)]
            led += 1
            # Of one seed the deviation is NaN.
            single += math.isnan(sum(errors))
            close += abs(values[first].mean - values[second].mean) <= 2 * math.hypot(*errors)
    if not led:
        return best, "No two means can be compared."
    same = [words.name(n) for n in _GIVEN if n in places and (n, "machines" in places) != ("rounds", True)]
    balls = {cell.diameters for cell in section.cells.values() if cell.seeds}
    if "excess_loss" in scales and len(balls) > 1:
        same.append(f"{words.name('diameter')} (of the excess loss)")
    at = f"at the same {' and '.join(same)}" if same else "of the table"
    said = f"{{best}}: the best mean {at}"
    said += f"; {close:,} of {led:,} lead by less than two standard errors" if close else ""
    which = f" of {single:,} of {led:,}" if single < led else ""
    said += f"; one seed tells nothing about the lead{which}" if single else ""
    return best, f"{said}."


def _legend(section: Section, scales: dict[str, Scale]) -> str:
    values, seeds, called = section.layout.values, section.seeds, [scale.label for scale in scales.values()]
    *others, last = (name.removesuffix(" %") for name in called)
    text = f"{', '.join(others)}{' and ' * bool(others)}{last}"
    if any(name.startswith("test_") for name in values):
        text = f"Test {text} of the output"
    text = text[0].upper() + text[1:] + " in %" * (len(values) == 1 and called[0].endswith("%"))
    over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the seeds counted in each cell"
    text += "; one seed." if seeds == {1} else f": mean ± standard deviation over {over}."
    if any(name in cell.paper for cell in section.cells.values() if cell.seeds for name in values):
        text += " In brackets: the paper's value."
    return text if all(cell.seeds for cell in section.cells.values()) else f"{text} {MISSING}: no run."


def _followed(section: Section, words: Words) -> list[str]:
    """Say which settings go with a method, or another place of the table."""
    told: dict[str, dict[str, None]] = {}
    for (row, column), cell in section.cells.items():
        at = dict(zip(section.layout.places, row + column, strict=True))
        for place in {by: None for by in section.follow.values() if by != SHARE}:
            own = {name: cell.settings.get(name) for name, by in section.follow.items() if by == place}
            if own := _said(own, section.defaults):
                told.setdefault(words.of(own), {})[words.pair(place, at[place])] = None
    said = [f"{' and '.join(those)} with {settings}" for settings, those in told.items()]
    return [f"{'; '.join(said)}."] * bool(said)


def _said(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that need to be named: not what is unset, or a name or a zero by default."""
    usual = {name: v for name, v in defaults.items() if isinstance(v, str) or v == 0}
    usual |= {"partition": "iid", "data": None}
    known = {name: value for name, value in settings.items() if value is not None and name != "schema"}
    return {name: value for name, value in known.items() if value != usual.get(name)}
