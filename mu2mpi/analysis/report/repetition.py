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


def repeat_config(runs: Sequence[RunSummary]) -> str:
    """Return TOML of an experiment or sweep that repeats runs, with parts if they form no single grid."""
    rows = [_repeating_settings(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    grids: list[dict[str, Any]] = [
        {name: values if values[1:] else values[0] for name, values in grid.items()}
        for grid in _merge_into_grids(names, rows)
    ]
    first = grids[0].items()
    settings = {name: value for name, value in first if all(grid.get(name) == value for grid in grids)}
    parts = [{name: value for name, value in grid.items() if name not in settings} for grid in grids]
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


def _merge_into_grids(names: Iterable[str], rows: Iterable[dict[str, Any]]) -> list[dict[str, list[Any]]]:
    """Merge rows that differ in one setting alone into a grid with the list of its values, name by name."""
    grids = [{name: [value] for name, value in row.items()} for row in rows]
    for name in names:
        merged: dict[Any, dict[str, list[Any]]] = {}
        for grid in grids:
            others = frozenset((other, *values) for other, values in grid.items() if other != name)
            own = merged.setdefault((name in grid, others), grid)
            if name in grid:
                own[name] = sorted({*own[name], *grid[name]}, key=lambda value: sort_key((value,)))
        grids = list(merged.values())
    return grids
