"""Many runs as one labelled dataset over what varies among them, and its statistics over seeds."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.cells import Key, sort_key, without_repeats
from mu2mpi.analysis.groups import in_nats
from mu2mpi.analysis.settings import POOLED, own_settings, settings_of, varying_among
from mu2mpi.analysis.words import Words, number_text
from mu2mpi.config.options import option_fields
from mu2mpi.errors import InputError
from mu2mpi.extra import needed
from mu2mpi.privacy.accounts import described
from mu2mpi.results.reader import Summary
from mu2mpi.results.schema import SCORES, History
from mu2mpi.results.writer import plain

if TYPE_CHECKING:
    import xarray

MOST_NUMBERS = 50_000_000
"""Of one array: 400 MB."""

STATISTICS = ("mean", "deviation", "low", "high", "seeds")

MEASURES = {
    "final_test_loss": "mean loss of the output on the test set",
    "final_test_accuracy": "share of test samples that the output classifies correctly",
    "final_test_r2": "share of the variance of test labels that the output explains: R^2",
    "final_gradient_evaluations": "gradients computed by all machines",
    "final_elapsed_seconds": "wall-clock time of all rounds",
    "samples_used": "training samples used by all machines",
    "epsilon_paper": "epsilon by the paper's lemma",
    "epsilon_exact": "epsilon, exactly",
    "sigma": "standard deviation of the noise in a coordinate",
    "excess_loss": "test loss of the output above the smallest in the ball",
    "excess_loss_bound": "what the theorem allows of the expected excess loss",
    "minimum_loss": "smallest test loss in the ball",
    "first_slope": "norm of the gradient of the test loss at the start",
    "last_slope": "norm of the gradient of the test loss at the output",
    "parameters": "parameters d of the model",
    "ranks": "MPI ranks",
    "cores": "cores that the ranks could use",
    "accuracy": "share of test samples that the output classifies correctly",
    "balanced_accuracy": "mean over classes of the share that the output classifies correctly",
    "auc": "area under the ROC",
    "rmse": "root mean squared error in the label's own units",
    "mae": "mean absolute error in the label's own units",
    "r2": "share of the variance of test labels that the output explains: R^2",
}
"""What the measurements of an output are; of others, times by phase, the name says it."""


def arrays_of(
    runs: Sequence[Summary], history: bool, then: Callable[[Any], Any] = lambda dataset: dataset
) -> "xarray.Dataset | xarray.DataTree":
    """Return runs as `Runs.to_xarray` does, and what `then` makes of each dataset."""
    kept, notes = without_repeats(runs)
    if not kept:
        raise InputError("there are no results to make arrays of")
    for note in notes:
        warnings.warn(note, stacklevel=3)
    of_data: dict[Any, list[Summary]] = {}
    for run in kept:
        of_data.setdefault(run.experiment.data, []).append(run)
    found = [then(dataset_of(members, history)) for members in of_data.values()]
    if len(found) == 1:
        dataset: xarray.Dataset = found[0]
        return dataset
    short = [Path(data).name for data in of_data]
    names = short if len({*short}) == len(short) else [data.replace("/", "|") for data in of_data]
    tree: xarray.DataTree = needed("xarray").DataTree.from_dict(dict(zip(names, found, strict=True)))
    return tree


def dataset_of(runs: Sequence[Summary], history: bool) -> "xarray.Dataset":
    """Return runs on the same data, each of them another, as one dataset."""
    owns, whole = [own_settings(run) for run in runs], [settings_of(run) for run in runs]
    axes = varying_among(owns)
    keys = [tuple(own[name] for name in axes) for own in owns]
    values = [[v for (v,) in sorted({(key[k],) for key in keys}, key=sort_key)] for k in range(len(axes))]
    numbers = numbered(runs, keys)
    seeds = sorted({*numbers})
    places = [
        (*(values[k].index(v) for k, v in enumerate(key)), seeds.index(n))
        for key, n in zip(keys, numbers, strict=True)
    ]
    shape, dimensions = (*map(len, values), len(seeds)), (*axes, "seed")
    rounds = np.unique(np.concatenate([run.history.round for run in runs if history] or [np.empty(0, int)]))
    check_size(math.prod(shape) * max(1, len(rounds)), axes)
    coordinates: dict[str, Any] = {
        name: (name, as_coordinate(v), described(Words().name(name)))
        for name, v in zip(axes, values, strict=True)
    }
    coordinates["seed"] = "seed", seeds, described("seed, or number of a run that has none")
    coordinates |= following(axes, values, keys, whole)
    arrays: dict[str, Any] = {}
    unit = "nat" if in_nats(runs) else "1"
    if history:
        coordinates["round"] = "round", rounds, described("round t")
        for name, column in histories(runs, (*shape, len(rounds)), places, rounds).items():
            arrays[name] = (*dimensions, "round"), column, said_of_history(unit)[name]
    for name, column in finals(runs, shape, places).items():
        arrays[name] = dimensions, column, said_of_final(name, unit)
    shared = {name: v for name, v in whole[0].items() if all(other[name] == v for other in whole)}
    attributes = {n: v for n, v in shared.items() if v is not None and n not in (*axes, *POOLED)}
    dataset: xarray.Dataset = needed("xarray").Dataset(arrays, coordinates, plain(attributes))
    return dataset


def numbered(runs: Sequence[Summary], keys: Sequence[Key]) -> list[int]:
    """Return the seed of each run, or where it has none or one that is taken, a number behind all seeds."""
    given = [run.experiment.seed for run in runs]
    first = max((seed for seed in given if seed is not None), default=0) + 1
    taken: dict[Key, set[int]] = {}
    numbers = []
    for seed, key in zip(given, keys, strict=True):
        used = taken.setdefault(key, set())
        free = next(n for n in count(first) if n not in used) if seed is None or seed in used else seed
        used.add(free)
        numbers.append(free)
    return numbers


def check_size(numbers: int, axes: Iterable[str]) -> None:
    """Raise an InputError if an array would not fit: it has a place for every combination of settings."""
    if numbers > MOST_NUMBERS:
        raise InputError(
            f"an array over all combinations of {', '.join(axes)}, seed and round would have {numbers:,} "
            f"numbers; select fewer runs, or leave out the history (history=False)"
        )


def as_coordinate(values: Sequence[Any]) -> NDArray[Any]:
    """Return settings as numbers, NaN where one is unset; or if any is a name, all as texts."""
    if any(isinstance(value, str) for value in values):
        return np.array([number_text(value) for value in values])
    return np.array([math.nan if value is None else value for value in values])


def following(
    axes: Sequence[str], values: Sequence[list[Any]], keys: Sequence[Key], settings: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return settings that vary because others do, as coordinates along one of these or along two."""
    found = {}
    others = [n for n in option_fields() if n not in (*axes, *POOLED) and len({s[n] for s in settings}) > 1]
    along = [(k,) for k in range(len(axes))] + list(combinations(range(len(axes)), 2))
    for name in others:
        for axis in along:
            known: dict[Key, Any] = {}
            parts = [tuple(key[k] for k in axis) for key in keys]
            if all(known.setdefault(p, s[name]) == s[name] for p, s in zip(parts, settings, strict=True)):
                grid = np.meshgrid(*(range(len(values[k])) for k in axis), indexing="ij")
                places = zip(*(part.ravel() for part in grid), strict=True)
                row = [known.get(tuple(values[k][i] for k, i in zip(axis, p, strict=True))) for p in places]
                dimensions = tuple(axes[k] for k in axis)
                column = as_coordinate(row).reshape([len(values[k]) for k in axis])
                found[name] = dimensions, column, described(Words().name(name))
                break
    return found


def histories(
    runs: Sequence[Summary], shape: Key, places: Sequence[Key], rounds: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Return the columns of all histories, NaN where there is no run, or it was not evaluated."""
    names = [n for n in History.columns() if n not in {"round", *SCORES.values()}]
    names += {SCORES[run.labels]: None for run in runs}
    columns = {name: np.full(shape, math.nan) for name in names}
    for run, place in zip(runs, places, strict=True):
        at = np.searchsorted(rounds, run.history.round)
        for name, column in columns.items():
            column[place][at] = getattr(run.history, name)
    return columns


def finals(runs: Sequence[Summary], shape: Key, places: Sequence[Key]) -> dict[str, NDArray[np.float64]]:
    """Return what was measured of each run, NaN where there is none; what no run has is left out."""
    columns: dict[str, NDArray[np.float64]] = {}
    left_out = option_fields()
    for run, place in zip(runs, places, strict=True):
        for name, value in run.row.items():
            if name not in left_out and isinstance(value, int | float) and not math.isnan(value):
                full = f"final_{name}" if name in History.columns() else name
                columns.setdefault(full, np.full(shape, math.nan))[place] = value
    return columns


def said_of_history(unit: str) -> dict[str, dict[str, str]]:
    """Return what is said of each column of a history."""
    return {n: said for labels in SCORES for n, said in History.described(labels, unit).items()}


def said_of_final(name: str, unit: str) -> dict[str, str]:
    """Return what is said of a measurement."""
    phase = name.removesuffix("_seconds")
    if name in MEASURES:
        is_loss = name.endswith("_loss") or name == "excess_loss_bound"
        return described(MEASURES[name], unit if is_loss else "s" if phase != name else "1")
    return described(f"time spent on {phase}, mean over ranks", "s") if phase != name else described(name)


def statistics(dataset: "xarray.Dataset", confidence: float) -> "xarray.Dataset":
    """Return mean, deviation, an interval for the expectation and the number of runs over the seeds."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence} should lie between 0 and 1")
    xr, stdtrit = needed("xarray"), needed("scipy.special").stdtrit
    seeds = dataset.count("seed")
    mean, spread = dataset.mean("seed", keep_attrs=True), dataset.std("seed", ddof=1).where(seeds > 1)
    half = spread * xr.apply_ufunc(stdtrit, seeds - 1.0, (1 + confidence) / 2) / np.sqrt(seeds)
    said = described("statistic over seeds")
    names = xr.DataArray(list(STATISTICS), dims="statistic", name="statistic", attrs=said)
    found = xr.concat([mean, spread, mean - half, mean + half, seeds], names, combine_attrs="override")
    ordered: xarray.Dataset = found.transpose(..., "statistic")
    return ordered
