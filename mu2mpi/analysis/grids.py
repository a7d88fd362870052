"""A section of a table as it is read: short headers, rounded numbers, the best ones, and what they mean."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from mu2mpi.analysis.cells import Cell, Key, Section
from mu2mpi.analysis.formats import TEXT, Dialect, Entry, aligned
from mu2mpi.analysis.layouts import SHARE
from mu2mpi.analysis.words import MISSING, Words, told_privacy
from mu2mpi.config.options import option_fields

LABELS = {
    "test_loss": "loss", "test_accuracy": "accuracy %", "test_r2": "R²", "accuracy": "accuracy %",
    "balanced_accuracy": "balanced accuracy %", "auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²",
}  # fmt: skip

DECIMALS = {
    "test_loss": 4, "test_accuracy": 1, "test_r2": 4, "accuracy": 1, "balanced_accuracy": 1, "auc": 4,
    "r2": 4,
}  # fmt: skip
"""How many are written; of other values as many as make four digits of the least."""

PAPERS = {"test_loss": "[{:.3f}]", "test_accuracy": "[{:.1f}]"}
"""How the paper's number is written."""

PERCENT = ("test_accuracy", "accuracy", "balanced_accuracy")

HIGHEST = (*PERCENT, "auc", "test_r2", "r2")
LOWEST = ("test_loss", "excess_loss", "rmse", "mae", "elapsed_seconds", "gradient_evaluations")
"""Of which values the best is the highest, or the lowest."""

GIVEN = (
    "data", "test", "loss", "machines", "rounds", "samples", "features", "classes", "epsilon", "rho", "delta",
    "partition", "participation", "budgets", "seed", "ranks",
)  # fmt: skip
"""Settings that make a problem, not a way to solve it: what differs in one of these is not compared."""


class Line(NamedTuple):
    """One line of a table: its row's settings, empty where the line above has said them, and the numbers."""

    titles: Sequence[str]
    label: str
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Grid:
    """A section in words: lines in blocks that share the first of their rows' settings."""

    heading: str
    names: list[str]
    """What the rows' settings are called."""
    columns: list[str]
    blocks: list[list[Line]]
    legend: str

    @property
    def header(self) -> list[str]:
        """The words above all columns, those above the labels of lines included."""
        return [*self.names, *[""] * self.is_labelled, *self.columns]

    @property
    def lines(self) -> list[Line]:
        """All lines."""
        return [line for block in self.blocks for line in block]

    def aligned(self, dialect: Dialect = TEXT) -> list[tuple[str, ...]]:
        """Return the numbers of each line as text, with points below points."""
        columns = zip(*(line.entries for line in self.lines), strict=True)
        return list(zip(*(aligned(column, dialect) for column in columns), strict=True))

    def blocks_of(self, cells: Iterable[Sequence[str]]) -> list[list[list[str]]]:
        """Return the rows of each block, with these cells for the numbers of each line."""
        left = iter(cells)
        return [
            [[*line.titles, *[line.label] * self.is_labelled, *next(left)] for line in block]
            for block in self.blocks
        ]

    @property
    def is_labelled(self) -> bool:
        """Whether lines need to say what they measure."""
        return any(line.label for line in self.lines)


def grids(sections: Sequence[Section], words: Words, best: bool = False) -> list[Grid]:
    """Put sections in words; on request with the best mean of those that can be compared marked."""
    # All tables have the same rows, without settings that nothing changes.
    rows = [name for k, name in enumerate(sections[0].layout.rows) if len(_values_of(sections, k)) > 1]
    return [_grid(section, rows, words, best) for section in sections]


def _values_of(sections: Sequence[Section], k: int) -> set[Any]:
    return {row[k] for section in sections for row in section.rows}


def _grid(section: Section, names: Sequence[str], words: Words, best: bool) -> Grid:
    layout = section.layout
    kept = [k for k, name in enumerate(layout.rows) if name in names]
    columns = [_title(layout.columns, key, words) for key in section.columns]
    cells = section.cells.values()
    scales = {name: scale_of(name, [cell.values[name].mean for cell in cells]) for name in layout.values}
    leaders = {name: _Leaders(section, name, scales[name]) for name in layout.values if best}
    groups = [list(rows) for _, rows in groupby(section.rows, key=lambda row: [row[k] for k in kept[:1]])]
    if all(len(rows) == 1 for rows in groups):
        groups = [section.rows]
    shows_seeds = len(section.seeds) > 1
    blocks: list[list[Line]] = []
    for rows in groups:
        block = []
        for row in rows:
            titles = [words.in_table(layout.rows[k], row[k]) for k in kept]
            for line in _lines(section, row, scales, leaders, shows_seeds or len(layout.values) > 1):
                block.append(line._replace(titles=titles))
                titles = [""] * len(kept)
        blocks.append(block)
    constant = {name: section.rows[0][k] for k, name in enumerate(layout.rows) if name not in names}
    legend = " ".join(
        [_legend(section, scales), *_followed(section, words), *_on_best(leaders, section, words)]
    )
    return Grid(_heading(section, constant, words), [words.name(n) for n in names], columns, blocks, legend)


def _title(names: Sequence[str], key: Key, words: Words) -> str:
    told = told_privacy(dict(zip(names, key, strict=True)))
    return ", ".join(words.pair(name, value) for name, value in told.items())


def _heading(section: Section, constant: dict[str, Any], words: Words) -> str:
    """Say what is the same in the whole table, without names (other than the data's) that are the default."""
    said = _said(section.settings, section.defaults)
    said |= {name: value for name, value in constant.items() if value is not None}
    order = [*option_fields(), "ranks", SHARE]
    return words.of({name: said[name] for name in sorted(said, key=order.index)})


class Scale(NamedTuple):
    """How numbers of one value are written: times `factor`, which the label says, with so many decimals."""

    factor: float
    decimals: int
    power: int = 0

    def text(self, number: float) -> str:
        """Return a number as it is written."""
        return f"{self.factor * number:,.{self.decimals}f}"


def scale_of(name: str, means: Iterable[float]) -> Scale:
    """Choose how the numbers of a value are written: all with as many decimals."""
    if name in PERCENT:
        return Scale(100, 1)
    means = [abs(float(mean)) for mean in means if math.isfinite(mean) and mean]
    if name in DECIMALS or not means:
        return Scale(1, DECIMALS.get(name, 0))
    least, power = (math.floor(math.log10(mean)) for mean in (min(means), max(means)))
    if not -3 <= power < 7:
        return Scale(10.0**-power, 3, power)
    digits = 0 if all(mean.is_integer() for mean in means) else 3 - max(least, power - 2)
    return Scale(1, max(0, digits))


def label_of(name: str, scale: Scale) -> str:
    """Return what a value is called, with the power of ten that its numbers are times."""
    unit = f" (10{str(scale.power).translate(RAISED)})" if scale.power else ""
    return _called(name) + unit


def _called(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _lines(
    section: Section,
    row: Key,
    scales: dict[str, Scale],
    leaders: "dict[str, _Leaders]",
    is_labelled: bool,
) -> Iterator[Line]:
    """Yield the lines of one row: each value and, unless the legend says it, the number of seeds."""
    for name in section.layout.values:
        entries = [
            _entry(section.cells[row, c], name, scales[name])._replace(
                is_best=name in leaders and (row, c) in leaders[name].best
            )
            for c in section.columns
        ]
        yield Line([], label_of(name, scales[name]) if is_labelled else "", entries)
    if len(section.seeds) > 1:
        counts = (section.cells[row, column].seeds for column in section.columns)
        yield Line([], "seeds", [Entry(str(count or MISSING)) for count in counts])


def _entry(cell: Cell, name: str, scale: Scale) -> Entry:
    mean, deviation = cell.values[name]
    if math.isnan(mean):
        return Entry(MISSING)
    paper = PAPERS[name].format(scale.factor * cell.paper[name]) if name in cell.paper else ""
    return Entry(scale.text(mean), "" if math.isnan(deviation) else scale.text(deviation), paper)


class _Leaders:
    """The best cells of a section in one value: of each set that can be compared, those of the best mean."""

    def __init__(self, section: Section, name: str, scale: Scale) -> None:
        self.best: set[tuple[Key, Key]] = set()
        self.led, self.close, self.single = 0, 0, 0
        if name not in (*HIGHEST, *LOWEST):
            return
        sign = 1 if name in HIGHEST else -1
        for cells in _compared(section, name):
            means = {key: sign * section.cells[key].values[name].mean for key in cells}
            ranked = sorted(cells, key=lambda key: -means[key])
            written = scale.text(sign * means[ranked[0]])
            self.best |= {key for key in cells if scale.text(sign * means[key]) == written}
            first, second = (section.cells[key] for key in ranked[:2])
            self.led += 1
            if min(first.seeds, second.seeds) < 2:
                self.single += 1
            else:
                self.close += not _is_clear(first, second, name)


def _compared(section: Section, name: str) -> list[list[tuple[Key, Key]]]:
    """Return the cells that can be compared, at least two each: those of the same problem and privacy.

    Methods are compared for each server by itself, as who is trusted is given, too. The excess loss is
    measured from the smallest in the ball, and compared in the same ball alone.
    """
    places = section.layout.places
    given = (*GIVEN, *["server", "colluders", SHARE] * ("method" in places))
    sets: dict[Key, list[tuple[Key, Key]]] = {}
    for (row, column), cell in section.cells.items():
        if not math.isnan(cell.values[name].mean):
            key = tuple(v for n, v in zip(places, row + column, strict=True) if n in given)
            key += (cell.diameters,) * (name == "excess_loss")
            sets.setdefault(key, []).append((row, column))
    return [cells for cells in sets.values() if len(cells) > 1]


def _is_clear(first: Cell, second: Cell, name: str) -> bool:
    """Return whether two means, each of two seeds at least, are more than two standard errors apart."""
    (one, spread), (other, spread_of_other) = first.values[name], second.values[name]
    error = math.hypot(spread / math.sqrt(first.seeds), spread_of_other / math.sqrt(second.seeds))
    return abs(one - other) > 2 * error


def _on_best(leaders: dict[str, _Leaders], section: Section, words: Words) -> list[str]:
    """Say which means are marked, and how many of them lead by no more than chance may."""
    led, close, single = (sum(getattr(o, n) for o in leaders.values()) for n in ("led", "close", "single"))
    if not led:
        return ["No two means can be compared."] if leaders else []
    places = section.layout.places
    left_out = ["rounds"] * ("machines" in places)
    given = [words.name(n) for n in GIVEN if n in places and n not in left_out]
    balls = {cell.diameters for cell in section.cells.values() if cell.seeds}
    if "excess_loss" in leaders and len(balls) > 1:
        given.append(f"{words.name('diameter')} (of the excess loss)")
    at = f"at the same {' and '.join(given)}" if given else "of the table"
    noise = f"; {close:,} of {led:,} lead by less than two standard errors" if close else ""
    if single:
        which = "" if single == led else f" of {single:,} of {led:,}"
        noise += f"; one seed tells nothing about the lead{which}"
    return [f"{{best}}: the best mean {at}{noise}."]


def _legend(section: Section, scales: dict[str, Scale]) -> str:
    """Say what the numbers of a section are."""
    values, seeds = section.layout.values, section.seeds
    called = [label_of(name, scales[name]) if len(values) == 1 else _called(name) for name in values]
    *others, last = (name.removesuffix(" %") for name in called)
    text = f"{', '.join(others)}{' and ' * bool(others)}{last}"
    if any(name.startswith("test_") for name in values):
        text = f"Test {text} of the output"
    else:
        text = text[0].upper() + text[1:]
    if len(values) == 1 and values[0] in PERCENT:
        text += " in %"
    over = f"{min(seeds)} seeds" if len(seeds) == 1 else "the seeds counted in each cell"
    text += "; one seed." if seeds == {1} else f": mean ± standard deviation over {over}."
    if any(name in cell.paper for cell in section.cells.values() if cell.seeds for name in values):
        text += " In brackets: the paper's value."
    if not all(cell.seeds for cell in section.cells.values()):
        text += f" {MISSING}: no run."
    return text


def _followed(section: Section, words: Words) -> list[str]:
    """Say which settings go with a method, or another place of the table."""
    told: dict[str, dict[str, None]] = {}
    for (row, column), cell in section.cells.items():
        at = dict(zip(section.layout.places, row + column, strict=True))
        for place in dict.fromkeys(section.follow.values()):
            own = {name: cell.settings.get(name) for name, by in section.follow.items() if by == place}
            own = _said(own, section.defaults)
            if own and place != SHARE:
                told.setdefault(words.of(own), {})[words.pair(place, at[place])] = None
    said = [f"{' and '.join(those)} with {settings}" for settings, those in told.items()]
    return [f"{'; '.join(said)}."] * bool(said)


def _said(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that need to be named: not what is unset, or a name or a zero by default."""
    usual = {name: v for name, v in defaults.items() if isinstance(v, str) or v == 0}
    usual |= {"partition": "iid", "data": None}
    known = {name: value for name, value in settings.items() if value is not None and name != "schema"}
    return {name: value for name, value in known.items() if value != usual.get(name)}
