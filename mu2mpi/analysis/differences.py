"""Two sets of results side by side: in what they differ, and whether results do by more than seeds."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.aggregation import check_values, estimate, usual_values
from mu2mpi.analysis.pivot import Entry, Grid, Line, aligned, scale_of
from mu2mpi.analysis.privacy_reports import bits
from mu2mpi.analysis.setting_labels import (
    MISSING,
    Key,
    Words,
    by_settings,
    sort_key,
    varying,
    without_repeats,
)
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import needed
from mu2mpi.core.text import as_paragraph, as_text
from mu2mpi.results.reader import Summary, read_result

SIGNIFICANT = 0.05

_WORDS = Words()

Sides = tuple[list[Summary], list[Summary]]
# Runs of both sides with the same settings, but for those in which the sides differ as a whole
Pairs = Mapping[Key, Sides]
Files = dict[Path, tuple[dict[str, Any], tuple[bytes, bytes]]]


def compare(first: Sequence[Summary], second: Sequence[Summary], values: Sequence[str] = ()) -> str:
    """Say in paragraphs for a terminal in what two sets of results differ, called A and B."""
    sides = without_repeats(first, "ranks")[0], without_repeats(second, "ranks")[0]
    runs = [*sides[0], *sides[1]]
    values = tuple(values) or usual_values(runs)
    check_values(runs, values)
    # Runs are matched by the settings that vary, but not from side to side alone.
    within = {name for side in sides for name in varying(side)}
    names = [name for name in varying(runs) if name in within]
    one, other = (by_settings(side, names) for side in sides)
    pairs = {key: (one[key], other[key]) for key in one if key in other}
    results = ((path, read_result(path)) for path in dict.fromkeys(run.path for run in runs))
    files = {path: (result.environment, bits(result)) for path, result in results}
    parts = [_settings(sides), _places(sides, files)]
    if pairs:
        parts += [_results(pairs, names, values), _bits(pairs, files), _verdict(pairs, values)]
    for letter, side, against in (("A", one, other), ("B", other, one)):
        if count := sum(len(members) for key, members in side.items() if key not in against):
            what = f"{count:,} run{'s' * (count > 1)} of {letter}"
            parts.append(f"{what} without a counterpart that has the same settings.")
    return "\n\n".join(filter(None, parts))


def _settings(sides: Sides) -> str:
    """Return which settings the sides have other values of, but for those that follow on both sides."""
    rows = []
    for name in option_fields():
        found = [{(run.settings[name], _cause(run, name)) for run in side} for side in sides]
        values = [{value for value, _ in of_side} for of_side in found]
        if values[0] != values[1] and not all(cause for of_side in found for _, cause in of_side):
            ordered = (sorted(of_side, key=sort_key) for of_side in found)
            texts = (", ".join(_WORDS.value(name, value) + by for value, by in pairs) for pairs in ordered)
            rows.append([name, *texts])
    return as_text(["setting", "A", "B"], [rows]) if rows else "Settings: the same."


def _cause(run: Summary, name: str) -> str:
    """Return from what a setting of a run follows; empty if from nothing."""
    if run.own_settings[name] is not None or run.settings[name] is None or name == "delta":
        return ""
    if name == "rho":
        return " (by epsilon)"
    return " (by preset)" if name in run.experiment.by_preset() else " (by server)"


def _places(sides: Sides, files: Files) -> str:
    """Return in what versions and machines differ, as the files say it."""
    facts = [[files[run.path][0] for run in side] for side in sides]
    names = dict.fromkeys(name for side in facts for of_run in side for name in of_run)
    rows = [
        [name, *(", ".join(sorted({str(of_run.get(name, MISSING)) for of_run in side})) for side in facts)]
        for name in names
        if name not in ("elapsed_seconds", "created")
    ]
    rows = [row for row in rows if row[1] != row[2]]
    return as_text(["where they ran", "A", "B"], [rows]) if rows else "Versions and machines: the same."


def _measured(sides: Sides, value: str) -> list[list[float]]:
    """Return a measurement of the runs of each side."""
    return [[run.row.get(value, math.nan) for run in side] for side in sides]


def _results(pairs: Pairs, names: Sequence[str], values: Sequence[str]) -> str:
    """Return means and deviations of both sides, and how likely seeds alone make such a difference."""
    lines = []
    for key, sides in pairs.items():
        titles = [_WORDS.in_table(name, value) for name, value in zip(names, key, strict=True)]
        for value in values:
            one, other = map(estimate, samples := _measured(sides, value))
            scale = scale_of(value, [one.mean, other.mean])
            change, chance = scale.text(other.mean - one.mean), p_value(*samples)
            numbers = [(scale.text(e.mean), scale.text(e.deviation)) for e in (one, other)]
            numbers += [(change, ""), (f"{chance:.2g}", "")]
            entries = [
                Entry(MISSING) if mean == "nan" else Entry(mean, deviation.replace("nan", ""))
                for mean, deviation in numbers
            ]
            lines.append(Line(0, [*titles, scale.label], entries))
            titles = [""] * len(names)
    grid = Grid("", [*map(_WORDS.name, names), ""], ["A", "B", "B - A", "p"], lines, "")
    text = as_text(grid.header, grid.blocks(aligned))
    counts = sorted({len(side) for sides in pairs.values() for side in sides})
    over = f"{' or '.join(map(str, counts))} runs" if counts != [1] else "one run"
    return f"{text}\n\n{as_paragraph(f'Of the output on the test set; {over} for each mean.')}"


def p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """p-value of Welch's t-test for equal means; NaN with fewer than two values on a side."""
    if min(len(one), len(other)) < 2:
        return math.nan
    # scipy.stats.ttest_ind would do it, but importing scipy.stats takes longer than all the rest.
    stdtr = needed("scipy.special").stdtr
    errors = np.array([np.var(side, ddof=1) / len(side) for side in (one, other)])
    gap = abs(float(np.mean(one) - np.mean(other)))
    if math.isnan(gap) or not errors.any():
        return math.nan if math.isnan(gap) else float(gap == 0)
    freedom = errors.sum() ** 2 / sum(errors**2 / [len(one) - 1, len(other) - 1])
    return float(2 * stdtr(freedom, -gap / math.sqrt(errors.sum())))


def _bits(pairs: Pairs, files: Files) -> str:
    """Say how many runs of the same seed have the same model to the last bit."""
    same: list[bool] = []
    for sides in pairs.values():
        one, other = ({run.experiment.seed: files[run.path][1] for run in side} for side in sides)
        # Runs without a seed have nothing in common.
        same += [one[seed] == other[seed] for seed in one.keys() & other.keys() if seed is not None]
    if not any(same):
        return ""
    return f"The same bits: {sum(same):,} of {len(same):,} models of the same seed are equal to the last bit."


def _verdict(pairs: Pairs, values: Sequence[str]) -> str:
    measured = [_measured(sides, value) for sides in pairs.values() for value in values]
    chances = (p_value(*samples) for samples in measured)
    tested = [chance for chance in chances if not math.isnan(chance)]
    if tested:
        text = (
            f"{sum(chance < SIGNIFICANT for chance in tested):,} of {len(tested):,} differences are larger "
            f"than seeds alone would make them (p < {SIGNIFICANT:g}, Welch's t-test)"
        )
        if len(tested) > 1:
            text += f"; about {SIGNIFICANT * len(tested):.2g} would be by chance if there were none"
        return as_paragraph(f"{text}.")
    # Where a side has one run, it is told how far that is from the runs of the other.
    gaps = []
    for one, other in (map(estimate, samples) for samples in measured):
        if (spread := np.nanmax([0.0, one.deviation, other.deviation])) > 0:
            gaps.append(abs(other.mean - one.mean) / spread)
    if not gaps:
        return "One run on each side tells nothing of what another seed would change: repeat both with more."
    return as_paragraph(
        f"A side with one run is {' and '.join(f'{gap:.2g}' for gap in gaps)} standard deviations over seeds "
        f"from the other ({', '.join(values)}); with two seeds or more on both sides it can be tested."
    )
