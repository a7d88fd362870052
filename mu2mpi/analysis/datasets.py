"""Runs as an xarray dataset over the settings that vary, and its statistics over seeds."""

import math
import warnings
from collections.abc import Iterable, Sequence
from itertools import combinations, count
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis import setting_labels
from mu2mpi.analysis.description import metric_label
from mu2mpi.analysis.setting_labels import AVERAGED_SETTINGS, GroupKey, Labels, format_value, sort_key
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import InputError, import_extra
from mu2mpi.core.hdf5 import booleans_as_ints
from mu2mpi.privacy.accounting.per_machine_accounts import column_metadata
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import SCORE_COLUMNS, History

if TYPE_CHECKING:
    import xarray

MAX_XARRAY_ELEMENTS = 50_000_000  # Largest size of an array (400 MB)
# Names of settings as dimensions and coordinates, where `sel` has another argument of their name
COORDINATE_NAMES = {"method": "algorithm"}


def build_xarray(runs: Sequence[RunSummary], include_history: bool) -> "xarray.Dataset":
    """Return runs on one data set as an xarray dataset over the settings that vary; repeats count once."""
    runs, notes = setting_labels.drop_repeated_runs(runs)
    for note in notes:
        warnings.warn(note, stacklevel=3)
    if len(data_sets := sorted({run.experiment.data for run in runs})) > 1:
        problem = f"runs on {', '.join(data_sets)} have no common axes"
        raise setting_labels.selection_error(problem, "data")
    pandas = import_extra("pandas")
    own_rows, all_rows = [run.independent_settings for run in runs], [run.settings for run in runs]
    axes = setting_labels.varying_settings(runs)
    keys = [tuple(own[name] for name in axes) for own in own_rows]
    levels = [[v for (v,) in sorted({(key[k],) for key in keys}, key=sort_key)] for k in range(len(axes))]
    # pandas has no index with None, so settings that may be unset are represented by their positions.
    index = pandas.DataFrame({n: [levels[k].index(key[k]) for key in keys] for k, n in enumerate(axes)})
    index["seed"] = _unique_seeds(runs, keys)
    rounds = {t for run in runs for t in run.history.round.tolist()} if include_history else {0}
    size = math.prod(map(len, levels)) * index["seed"].nunique() * len(rounds)
    if size > MAX_XARRAY_ELEMENTS:
        over = f"{', '.join(axes)}, seed and round"
        raise InputError(f"an array over {over} has {size:,} numbers. Select fewer runs, or history=False.")
    # Measurements of the output are prefixed with "final_" where the history has a column of that name.
    columns, settings = History.column_names(), option_fields()
    measured = pandas.DataFrame(
        {
            f"final_{name}" if name in columns else name: value
            for name, value in run.table_row.items()
            if name not in settings and isinstance(value, int | float) and not math.isnan(value)
        }
        for run in runs
    )
    arrays = _to_arrays(pandas.concat([index, measured], axis=1), [*axes, "seed"])
    unit = "nat" if setting_labels.are_losses_in_nats(runs) else "1"
    metadata: dict[str, dict[str, str]] = {}
    for label_kind in SCORE_COLUMNS:
        metadata |= History.column_attributes(label_kind, unit)
    if include_history:
        omitted = {*axes, *SCORE_COLUMNS.values()} - {SCORE_COLUMNS[run.label_kind] for run in runs}
        names = [name for name in columns if name not in omitted]
        frames = [pandas.DataFrame({name: getattr(run.history, name) for name in names}) for run in runs]
        frame = pandas.concat(frames, keys=range(len(runs))).reset_index(level=0, names="run")
        frame = frame.join(index, on="run").drop(columns="run")
        arrays = _to_arrays(frame, [*axes, "seed", "round"]).merge(arrays)
        arrays["round"].attrs = metadata["round"]
    for name, array in arrays.data_vars.items():
        is_loss, is_time = name.endswith("_loss") or name == "excess_loss_bound", name.endswith("_seconds")
        own = column_metadata(metric_label(name), "s" if is_time else unit if is_loss else "1")
        array.attrs = metadata.get(name, own)
    arrays["seed"].attrs = column_metadata("seed, or number of a run without a seed")
    values, labels = map(_coordinate_values, levels), Labels()
    coordinates = {n: (n, v, column_metadata(labels.name(n))) for n, v in zip(axes, values, strict=True)}
    coordinates |= _dependent_coordinates(index[axes], all_rows)
    dataset: xarray.Dataset = arrays.assign_coords(coordinates)
    common = {name: v for name, v in all_rows[0].items() if all(row[name] == v for row in all_rows)}
    omitted = {*axes, *AVERAGED_SETTINGS}
    dataset.attrs = booleans_as_ints({n: v for n, v in common.items() if v is not None and n not in omitted})
    return dataset.rename({n: name for n, name in COORDINATE_NAMES.items() if n in dataset.coords})


def _unique_seeds(runs: Sequence[RunSummary], keys: Sequence[GroupKey]) -> list[int]:
    """Return a distinct seed per run: a number above all seeds replaces missing and repeated seeds."""
    seeds, used, first = [], set[object](), 1 + max(run.experiment.seed or 0 for run in runs)
    for run, key in zip(runs, keys, strict=True):
        seed = run.experiment.seed
        if seed is None or (key, seed) in used:
            seed = next(n for n in count(first) if (key, n) not in used)
        used.add((key, seed))
        seeds.append(seed)
    return seeds


def _to_arrays(frame: Any, dimensions: list[str]) -> Any:
    """Return a long pandas data frame as an xarray dataset over some of its columns."""
    return frame.set_index(dimensions).sort_index().astype(float).to_xarray().transpose(*dimensions)


def _coordinate_values(values: Iterable[Any]) -> NDArray[Any]:
    """Return values of a setting as an array of numbers (NaN if unset), or of text if any is text."""
    known = [None if value != value else value for value in values]
    if any(isinstance(value, str) for value in known):
        return np.array([format_value(value) for value in known])
    return np.array([math.nan if value is None else value for value in known])


def _dependent_coordinates(index: Any, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return dataset coordinates for the settings that are functions of one or two axes."""
    axes, coordinates = list(index), {}
    for name in option_fields():
        column = [row[name] for row in rows]
        if name in (*axes, *AVERAGED_SETTINGS) or len({*column}) == 1:
            continue
        frame = index.assign(value=column).astype(object)
        for along in [*([n] for n in axes), *map(list, combinations(axes, 2))]:
            pairs = frame[[*along, "value"]].drop_duplicates()
            if not pairs.duplicated(along).any():
                array = pairs.set_index(along)["value"].sort_index().to_xarray()
                values = _coordinate_values(array.values.ravel()).reshape(array.shape)
                coordinates[name] = array.dims, values, column_metadata(Labels().name(name))
                break
    return coordinates


def seed_statistics(dataset: "xarray.Dataset", confidence: float) -> "xarray.Dataset":
    """Return mean, standard deviation, Student's confidence interval and number of runs over seeds."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, got {confidence}")
    xr, stdtrit = import_extra("xarray"), import_extra("scipy.special").stdtrit
    seeds = dataset.count("seed")
    mean, std = dataset.mean("seed", keep_attrs=True), dataset.std("seed", ddof=1).where(seeds > 1)
    half_width = std * xr.apply_ufunc(stdtrit, seeds - 1.0, (1 + confidence) / 2) / np.sqrt(seeds)
    names = ["mean", "deviation", "low", "high", "seeds"]
    attributes = column_metadata("statistic over seeds")
    axis = xr.DataArray(names, dims="statistic", name="statistic", attrs=attributes)
    arrays = [mean, std, mean - half_width, mean + half_width, seeds]
    statistics = xr.concat(arrays, axis, combine_attrs="override")
    ordered: xarray.Dataset = statistics.transpose(..., "statistic")
    return ordered
