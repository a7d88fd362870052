"""Experiment or sweep file that repeats the runs of a report."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import tomli_w

from mu2mpi.analysis.setting_labels import sort_key
from mu2mpi.config.experiment import Experiment, preset_and_server_settings
from mu2mpi.core.errors import InputError
from mu2mpi.core.toml import parse_toml
from mu2mpi.results.reader import RunSummary

SettingRows = frozenset[frozenset[tuple[str, Any]]]  # settings of each run: pairs of name and value


def repeat_config(runs: Sequence[RunSummary]) -> str:
    """Return TOML of an experiment or sweep that repeats runs, with parts if they form no single grid."""
    rows = [_repeating_settings(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    grids = _split_into_grids(names, frozenset(frozenset(row.items()) for row in rows))
    first = grids[0].items()
    common = {name for name, value in first if all(grid.get(name) == value for grid in grids)}
    settings: dict[str, Any] = {name: grids[0][name] for name in names if name in common}
    parts = [{name: grid[name] for name in names if name in grid.keys() - common} for grid in grids]
    text = tomli_w.dumps(settings | ({"part": parts} if parts[1:] else {})).strip()
    # Each list on one line.
    return text.replace("[\n    ", "[").replace(",\n    ", ", ").replace(",\n]", "]")


def _repeating_settings(run: RunSummary) -> dict[str, Any]:
    """Return settings that repeat a run, without those that its preset and server choose again."""
    facts, stored = run.public_facts, run.experiment.to_toml()
    settings = parse_toml(stored, str(run.path))
    chosen = preset_and_server_settings(run.experiment, facts)
    own = {name: value for name, value in settings.items() if chosen.get(name) != value}
    with suppress(InputError):
        short = Experiment.from_settings(own)
        if short.replace(**preset_and_server_settings(short, facts) | own).to_toml() == stored:
            return own
    return settings


def _split_into_grids(names: Iterable[str], rows: SettingRows) -> list[dict[str, Any]]:
    """Return few grids, of single values and lists by name, whose combinations are the given rows."""
    grid, rows = _factor_out(names, rows)
    if rows == {frozenset()}:  # no settings are left
        return [grid]
    groupings = [_group_by_rest(name, rows) for name in sorted({name for row in rows for name, _ in row})]
    # The setting with which most of the others become factors.
    groups = min(groupings, key=lambda groups: sum(len(_factor_out(names, rest)[1]) for _, rest in groups))
    return [grid | own | other for own, rest in groups for other in _split_into_grids(names, rest)]


def _factor_out(names: Iterable[str], rows: SettingRows) -> tuple[dict[str, Any], SettingRows]:
    """Return a grid of the settings that combine with all other settings, and the rows of the others."""
    factors: dict[str, Any] = {}
    for name in names:
        (own, rest), *others = _group_by_rest(name, rows)
        if own and not others:
            factors, rows = factors | own, rest
    return factors, rows


def _group_by_rest(name: str, rows: SettingRows) -> list[tuple[dict[str, Any], SettingRows]]:
    """Return pairs of values of a setting ({} if unset) and the other settings that they combine with."""
    rests: dict[Any, set[frozenset[tuple[str, Any]]]] = {}
    for row in rows:
        value = dict(row).get(name)
        rests.setdefault(value, set()).add(row - {(name, value)})
    values_by_rest: dict[Any, list[Any]] = {}
    for value in sorted(rests, key=lambda value: sort_key((value,))):
        values_by_rest.setdefault((value is None, frozenset(rests[value])), []).append(value)
    return [
        ({} if is_unset else {name: values if values[1:] else values[0]}, rest)
        for (is_unset, rest), values in values_by_rest.items()
    ]
