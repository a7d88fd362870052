"""Two sets of results side by side: in what they differ, and whether results do by more than seeds."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mu2mpi.analysis.cells import Key, by_settings, estimate, without_repeats
from mu2mpi.analysis.formats import Entry, aligned, as_paragraph, as_text
from mu2mpi.analysis.grids import label_of, scale_of
from mu2mpi.analysis.layouts import check_values, usual_values
from mu2mpi.analysis.settings import own_settings, settings_of, varying
from mu2mpi.analysis.words import MISSING, Words, number_text
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result

SIGNIFICANT = 0.05

CHANGING = ("elapsed_seconds", "created")
"""What a file says of itself that is another each time."""

POINTS = 20_001
"""Of the integral of Student's distribution, which is exact to nine digits with as many."""

WORDS = Words()


class Pair(NamedTuple):
    """Runs of both sides with the same settings, but for those in which the sides differ as a whole."""

    key: Key
    sides: tuple[list[Summary], list[Summary]]


def compare(first: Sequence[Summary], second: Sequence[Summary], values: Sequence[str] = ()) -> str:
    """Say in paragraphs for a terminal in what two sets of results differ, called A and B."""
    sides = tuple(without_repeats(side, "ranks")[0] for side in (first, second))
    if not all(sides):
        raise InputError("there are no results to compare")
    runs = [run for side in sides for run in side]
    values = tuple(values) or usual_values(runs)
    check_values(runs, values)
    names = _matched_by(sides)
    pairs, alone = _pairs(sides, names)
    parts = [_settings(sides), _places(sides)]
    if pairs:
        parts += [_results(pairs, names, values), _bits(pairs), _verdict(pairs, values)]
    for side, count in zip("AB", alone, strict=True):
        if count:
            what = f"{count:,} run{'s' * (count > 1)} of {side}"
            parts.append(f"{what} without a counterpart that has the same settings.")
    return "\n\n".join(filter(None, parts))


def _matched_by(sides: Sequence[Sequence[Summary]]) -> list[str]:
    """Return the settings by which runs are matched: those that vary, but not from side to side alone."""
    within = {name for side in sides for name in varying(side)}
    return [name for name in varying([run for side in sides for run in side]) if name in within]


def _pairs(sides: Sequence[Sequence[Summary]], names: Sequence[str]) -> tuple[list[Pair], tuple[int, int]]:
    """Return the runs that can be compared, and how many runs of each side cannot."""
    one, other = (by_settings(side, names) for side in sides)
    pairs = [Pair(key, (one[key], other[key])) for key in one if key in other]
    alone = tuple(
        sum(len(runs) for key, runs in side.items() if key not in against)
        for side, against in ((one, other), (other, one))
    )
    return pairs, (alone[0], alone[1])


def _settings(sides: Sequence[Sequence[Summary]]) -> str:
    """Return which settings the sides have other values of, seeds included, and from what some follow.

    What follows on both sides is left out, as that from which it follows is there.
    """
    rows = []
    for name in option_fields():
        found = [{(settings_of(run)[name], _cause(run, name)) for run in side} for side in sides]
        values = [{value for value, _ in of_side} for of_side in found]
        if values[0] != values[1] and not all(cause for of_side in found for _, cause in of_side):
            rows.append([name, *(_told(name, of_side) for of_side in found)])
    if not rows:
        return "Settings: the same."
    return as_text(["setting", "A", "B"], [rows])


def _cause(run: Summary, name: str) -> str:
    """Return from what a setting of a run follows; empty if from nothing."""
    if own_settings(run)[name] is not None or settings_of(run)[name] is None or name == "delta":
        return ""
    if name == "rho":
        return "by epsilon"
    return "by preset" if name in run.experiment.by_preset() else "by server"


def _told(name: str, found: Iterable[tuple[Any, str]]) -> str:
    """Return the values of a setting, each or all together with that from which they follow."""
    pairs = sorted(found, key=lambda pair: (_order(pair[0]), pair[1]))
    texts = [number_text(value) if value is None else WORDS.value(name, value) for value, _ in pairs]
    said = [f" ({cause})" * bool(cause) for _, cause in pairs]
    if len(set(said)) == 1:
        return ", ".join(texts) + said[0]
    return ", ".join(map("".join, zip(texts, said, strict=True)))


def _order(value: Any) -> tuple[bool, str | float]:
    return (
        isinstance(value, str),
        value if isinstance(value, str) else -math.inf if value is None else value,
    )


def _places(sides: Sequence[Sequence[Summary]]) -> str:
    """Return in what versions and machines differ, as the files say it."""
    facts: list[dict[str, Counter[str]]] = []
    for side in sides:
        found: dict[str, Counter[str]] = {}
        for run in side:
            for name, value in read_result(run.path).environment.items():
                if name not in CHANGING:
                    found.setdefault(name, Counter())[str(value)] += 1
        facts.append(found)
    rows = []
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        values = [sorted(found.get(name, {MISSING: 0})) for found in facts]
        if values[0] != values[1]:
            rows.append([name, *map(", ".join, values)])
    return as_text(["where they ran", "A", "B"], [rows]) if rows else "Versions and machines: the same."


def _results(pairs: Sequence[Pair], names: Sequence[str], values: Sequence[str]) -> str:
    """Return means and deviations of both sides, and how likely seeds alone make such a difference."""
    columns: list[list[Entry]] = [[], [], [], []]
    heads = []
    for pair in pairs:
        titles = [WORDS.in_table(name, value) for name, value in zip(names, pair.key, strict=True)]
        for value in values:
            samples = _samples(pair, value)
            one, other = map(estimate, samples)
            scale = scale_of(value, [one.mean, other.mean])
            heads.append([*titles, label_of(value, scale)])
            titles = [""] * len(names)
            for column, found in zip(columns, (one, other), strict=False):
                spread = "" if math.isnan(found.deviation) else scale.text(found.deviation)
                column.append(Entry(MISSING if math.isnan(found.mean) else scale.text(found.mean), spread))
            change, chance = other.mean - one.mean, p_value(*samples)
            columns[2].append(Entry(MISSING if math.isnan(change) else scale.text(change)))
            columns[3].append(Entry(MISSING if math.isnan(chance) else f"{chance:.2g}"))
    header = [*map(WORDS.name, names), "", "A", "B", "B - A", "p"]
    cells = zip(heads, *map(aligned, columns), strict=True)
    counts = sorted({len(side) for pair in pairs for side in pair.sides})
    text = as_text(header, [[[*head, *numbers] for head, *numbers in cells]])
    over = f"{' or '.join(map(str, counts))} runs" if counts != [1] else "one run"
    return f"{text}\n\n{as_paragraph(f'Of the output on the test set; {over} for each mean.')}"


def _samples(pair: Pair, value: str) -> tuple[list[float], list[float]]:
    one, other = ([float(run.row.get(value, math.nan)) for run in side] for side in pair.sides)
    return one, other


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Return how likely means are as far apart by chance, by Welch's t-test; NaN where one has less than two.

    Numbers without any spread differ for sure, or are the same.
    """
    if min(len(one), len(other)) < 2:
        return math.nan
    errors = np.array([np.var(side, ddof=1) / len(side) for side in (one, other)])
    gap = abs(float(np.mean(one) - np.mean(other)))
    if math.isnan(gap) or errors.sum() == 0:
        return math.nan if math.isnan(gap) else float(gap == 0)
    freedom = errors.sum() ** 2 / sum(errors**2 / [len(one) - 1, len(other) - 1])
    # With t = sqrt(freedom) tan(angle), the density of Student's t is a power of a cosine.
    angle = math.atan(gap / math.sqrt(errors.sum() * freedom))
    tail, whole = (_integral(lambda a: np.cos(a) ** (freedom - 1), low) for low in (angle, 0.0))
    return tail / whole


def _integral(density: Callable[[Any], Any], low: float) -> float:
    """Return an integral up to pi/2."""
    angles = np.linspace(low, math.pi / 2, POINTS)
    heights = density(angles)
    return float((heights[1:] + heights[:-1]).sum() / 2 * (angles[1] - angles[0]))


def _bits(pairs: Sequence[Pair]) -> str:
    """Say how many runs of the same seed have the same model to the last bit."""
    same, count = 0, 0
    for pair in pairs:
        seeds = [{run.experiment.seed: run for run in side} for side in pair.sides]
        # Runs without a seed have nothing in common.
        for seed in (seeds[0].keys() & seeds[1].keys()) - {None}:
            one, other = (read_result(of[seed].path) for of in seeds)
            count += 1
            same += np.array_equal(one.x, other.x) and np.array_equal(one.w, other.w)
    if not same:
        return ""
    return f"The same bits: {same:,} of {count:,} models of the same seed are equal to the last bit."


def _verdict(pairs: Sequence[Pair], values: Sequence[str]) -> str:
    """Say in words whether results differ by more than seeds do."""
    chances = [p_value(*_samples(pair, value)) for pair in pairs for value in values]
    tested = [chance for chance in chances if not math.isnan(chance)]
    if not tested:
        return _verdict_on_single_runs(pairs, values)
    differ = sum(chance < SIGNIFICANT for chance in tested)
    text = (
        f"{differ:,} of {len(tested):,} differences are larger than seeds alone would make them (p < "
        f"{SIGNIFICANT:g}, Welch's t-test)"
    )
    if len(tested) > 1:
        text += f"; about {SIGNIFICANT * len(tested):.2g} would be by chance if there were none"
    return as_paragraph(f"{text}.")


def _verdict_on_single_runs(pairs: Sequence[Pair], values: Sequence[str]) -> str:
    """Say what can be told where a side has one run: nothing, or how far it is from the runs of the other."""
    told = []
    for pair in pairs:
        for value in values:
            one, other = map(estimate, _samples(pair, value))
            spread = np.nanmax([0.0, *(e.deviation for e in (one, other) if e.deviation > 0)])
            if spread > 0:
                told.append(abs(other.mean - one.mean) / spread)
    if not told:
        return "One run on each side tells nothing of what another seed would change: repeat both with more."
    return as_paragraph(
        f"A side with one run is {' and '.join(f'{gap:.2g}' for gap in told)} standard deviations over seeds "
        f"from the other ({', '.join(values)}); with two seeds or more on both sides it can be tested."
    )
