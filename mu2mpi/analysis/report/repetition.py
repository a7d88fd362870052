"""What a report says of how its runs are repeated: as one sweep, where they are one."""

import math
import tomllib
from collections.abc import Sequence
from typing import Any

import tomli_w

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import filled, following
from mu2mpi.config.options import method_options
from mu2mpi.config.sweep import Sweep
from mu2mpi.config.task import task_of
from mu2mpi.config.together import machines_differ
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary, read_result
from mu2mpi.results.schema import Result


def repetition(runs: Sequence[Summary]) -> dict[str, Any]:
    """Return the configuration that repeats all runs, as one sweep if they are one, and its command."""
    experiments = {run.experiment: run for run in runs}
    # What is chosen may be so otherwise by a later version: it is left out only where it has to be.
    sweep = as_sweep([*experiments]) or as_sweep([asked(run) for run in experiments.values()])
    is_unseeded = any(experiment.seed is None for experiment in experiments)
    file, command = "sweep.toml", "mpirun -n 2 mu2mpi sweep sweep.toml --output runs/again"
    if len(experiments) == 1:
        file, command = "experiment.toml", "mu2mpi run --config experiment.toml --output runs/again.h5"
    return {
        "sweep": sweep and sweep.strip(),
        "file": file,
        "command": command,
        "reseeded": " Runs without a seed draw new noise." if is_unseeded else "",
        "experiments": [] if sweep else [experiment.to_toml().strip() for experiment in experiments],
    }


def asked(run: Summary) -> Experiment:
    """Return what to ask for to get a run, without what a preset, the server or the method then chooses."""
    made, result = run.experiment, read_result(run.path)
    follows = following(made, result.facts)
    chosen = [name for name, value in follows.items() if getattr(made, name) == value]
    sizes = [] if machines_differ(made) else ["rounds", *method_options(presets=False)]
    found = made
    # Sizes may follow together or one by one.
    for names in (chosen, sizes, *([name] for name in sizes)):
        if all(getattr(found, name) is None for name in names):
            continue
        left = found.having(**dict.fromkeys(names))
        try:
            same = _completed(left, result) == made
        except InputError:
            same = False
        found = left if same else found
    return found


def _completed(experiment: Experiment, result: Result) -> Experiment:
    """Return an experiment with what is chosen for it on the data of a result, from the file alone."""
    machines, facts = experiment.machines or 1, result.facts
    own = experiment.trust.complete(experiment.server_options, machines)
    full = filled(experiment, facts, **own)
    if facts is None or machines_differ(experiment):
        return full
    shape = machines, result.classes, result.x.shape[1], facts.samples // machines
    sizes = full.chosen_method.sizes(task_of(full, *shape, square=facts.square), full.rounds)
    return full.having(rounds=sizes.rounds, **sizes.options)


def as_sweep(experiments: Sequence[Experiment]) -> str | None:
    """Return the TOML of a sweep that has just these experiments, or None if there is none."""
    rows = [tomllib.loads(experiment.to_toml()) for experiment in experiments]
    _leave_out_defaults(rows, experiments)
    if len({frozenset(row) for row in rows}) > 1:
        return None
    lists: dict[str, list[Any]] = {name: sorted({row[name] for row in rows}) for name in rows[0]}
    if len(rows) != math.prod(map(len, lists.values())):
        return None
    settings = {name: values if len(values) > 1 else values[0] for name, values in lists.items()}
    try:
        is_all = {*Sweep(settings).experiments} == {*experiments}
    except InputError:
        return None
    return tomli_w.dumps(settings) if is_all else None


def _leave_out_defaults(rows: Sequence[dict[str, Any]], experiments: Sequence[Experiment]) -> None:
    """Take from rows what only some have, as options of a method, where it is the default."""
    common = set.intersection(*map(set, rows))
    for row, experiment in zip(rows, experiments, strict=True):
        usual = experiment.defaults
        for name in [name for name in row if name not in common and row[name] == usual.get(name)]:
            del row[name]
