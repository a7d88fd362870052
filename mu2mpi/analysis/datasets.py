"""Many runs as one labelled dataset over what varies among them, and its statistics over seeds."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.description import metric_words
from mu2mpi.analysis.setting_labels import (
    POOLED,
    Words,
    in_nats,
    number_text,
    sort_key,
    varying,
    without_repeats,
)
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError, needed
from mu2mpi.core.hdf5 import plain
from mu2mpi.privacy.accounting.per_machine import described
from mu2mpi.results.reader import Summary
from mu2mpi.results.records import SCORES, History

if TYPE_CHECKING:
    import xarray

MAX_CELLS = 50_000_000  # Largest number of elements of an array: 400 MB


def arrays_of(
    runs: Sequence[Summary], history: bool, then: "Callable[[xarray.Dataset], xarray.Dataset]" = lambda of: of
) -> "xarray.Dataset | xarray.DataTree":
    """Return runs as `Runs.to_xarray` does, and what `then` makes of each dataset."""
    kept, notes = without_repeats(runs)
    for note in notes:
        warnings.warn(note, stacklevel=3)
    of_data: dict[Any, list[Summary]] = {}
    for run in kept:
        of_data.setdefault(run.experiment.data, []).append(run)
    found = [then(_dataset(members, history)) for members in of_data.values()]
    if len(found) == 1:
        return found[0]
    short = [Path(data).name for data in of_data]
    names = short if len({*short}) == len(short) else [data.replace("/", "|") for data in of_data]
    tree: xarray.DataTree = needed("xarray").DataTree.from_dict(dict(zip(names, found, strict=True)))
    return tree


def _dataset(runs: Sequence[Summary], history: bool) -> "xarray.Dataset":
    """Return runs on the same data, each of them another, as one dataset."""
    pandas = needed("pandas")
    owns, whole = [run.own_settings for run in runs], [run.settings for run in runs]
    axes = varying(runs)
    keys = [tuple(own[name] for name in axes) for own in owns]
    values = {
        n: [v for (v,) in sorted({(key[k],) for key in keys}, key=sort_key)] for k, n in enumerate(axes)
    }
    # Where a run has no seed, or one that is taken, it has a number behind all seeds.
    seeds, taken, first = [], set[object](), 1 + max(run.experiment.seed or 0 for run in runs)
    for run, key in zip(runs, keys, strict=True):
        seed = run.experiment.seed
        if seed is None or (key, seed) in taken:
            seed = next(n for n in count(first) if (key, n) not in taken)
        taken.add((key, seed))
        seeds.append(seed)
    # Settings may be unset, which no index of pandas may: the index holds their places on the axes.
    index = pandas.DataFrame({n: [values[n].index(key[k]) for key in keys] for k, n in enumerate(axes)})
    index["seed"] = seeds
    rounds = {t for run in runs for t in run.history.round.tolist()} if history else {0}
    # An array has a place for every combination of settings.
    cells = math.prod(map(len, values.values())) * len({*seeds}) * len(rounds)
    if cells > MAX_CELLS:
        over = f"{', '.join(axes)}, seed and round"
        raise InputError(f"an array over {over} has {cells:,} numbers; select fewer runs, or history=False")
    # Measurements of the output that a history has, too, have a name of their own.
    columns, settings = History.columns(), option_fields()
    measured = pandas.DataFrame(
        {
            f"final_{name}" if name in columns else name: value
            for name, value in run.row.items()
            if name not in settings and isinstance(value, int | float) and not math.isnan(value)
        }
        for run in runs
    )
    found = _array_of(pandas.concat([index, measured], axis=1), [*axes, "seed"])
    unit = "nat" if in_nats(runs) else "1"
    said = {name: text for labels in SCORES for name, text in History.described(labels, unit).items()}
    if history:
        left_out = {*axes, *SCORES.values()} - {SCORES[run.labels] for run in runs}
        kept = [name for name in columns if name not in left_out]
        frames = [pandas.DataFrame({name: getattr(run.history, name) for name in kept}) for run in runs]
        long = pandas.concat(frames, keys=range(len(runs))).reset_index(level=0, names="run")
        long = long.join(index, on="run").drop(columns="run")
        found = _array_of(long, [*axes, "seed", "round"]).merge(found)
        found["round"].attrs = said["round"]
    for name, array in found.data_vars.items():
        is_loss, is_time = name.endswith("_loss") or name == "excess_loss_bound", name.endswith("_seconds")
        own = described(metric_words(name), "s" if is_time else unit if is_loss else "1")
        array.attrs = said.get(name, own)
    found["seed"].attrs = described("seed, or number of a run that has none")
    places = {n: (n, _as_coordinate(of), described(Words().name(n))) for n, of in values.items()}
    dataset: xarray.Dataset = found.assign_coords(places | _following(index[axes], whole))
    shared = {name: v for name, v in whole[0].items() if all(other[name] == v for other in whole)}
    dataset.attrs = plain({n: v for n, v in shared.items() if v is not None and n not in (*axes, *POOLED)})
    return dataset


def _array_of(frame: Any, dimensions: list[str]) -> Any:
    return frame.set_index(dimensions).sort_index().astype(float).to_xarray().transpose(*dimensions)


def _as_coordinate(values: Iterable[Any]) -> NDArray[Any]:
    """Return settings as numbers, NaN where one is unset; or if any is a name, all as texts."""
    known = [None if value != value else value for value in values]
    if any(isinstance(value, str) for value in known):
        return np.array([number_text(value) for value in known])
    return np.array([math.nan if value is None else value for value in known])


def _following(index: Any, settings: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return settings that vary because others do, as coordinates along one of these or along two."""
    axes, found = list(index), {}
    for name in option_fields():
        column = [of_run[name] for of_run in settings]
        if name in (*axes, *POOLED) or len({*column}) == 1:
            continue
        frame = index.assign(value=column).astype(object)
        for along in [*([n] for n in axes), *map(list, combinations(axes, 2))]:
            pairs = frame[[*along, "value"]].drop_duplicates()
            if not pairs.duplicated(along).any():
                array = pairs.set_index(along)["value"].sort_index().to_xarray()
                values = _as_coordinate(array.values.ravel()).reshape(array.shape)
                found[name] = array.dims, values, described(Words().name(name))
                break
    return found


def statistics(dataset: "xarray.Dataset", confidence: float) -> "xarray.Dataset":
    """Return mean, deviation, an interval for the expectation and the number of runs over the seeds."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence = {confidence} should lie between 0 and 1")
    xr, stdtrit = needed("xarray"), needed("scipy.special").stdtrit
    seeds = dataset.count("seed")
    mean, spread = dataset.mean("seed", keep_attrs=True), dataset.std("seed", ddof=1).where(seeds > 1)
    half = spread * xr.apply_ufunc(stdtrit, seeds - 1.0, (1 + confidence) / 2) / np.sqrt(seeds)
    names = ["mean", "deviation", "low", "high", "seeds"]
    axis = xr.DataArray(names, dims="statistic", name="statistic", attrs=described("statistic over seeds"))
    found = xr.concat([mean, spread, mean - half, mean + half, seeds], axis, combine_attrs="override")
    ordered: xarray.Dataset = found.transpose(..., "statistic")
    return ordered
