"""Write HDF5 result files atomically."""

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike

from mu2mpi._version import __version__
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_creatable, write_atomically
from mu2mpi.core.hdf5 import create_group, hdf5_file_bytes, write_array, write_attributes
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts, column_metadata
from mu2mpi.results.records import RESULT_SCHEMA, History
from mu2mpi.results.result import Result

DIAGNOSTICS_NOTE = "computed from private data and not covered by the privacy guarantee"
CATALOGUE_TEXTS = {
    "Conventions": "ACDD-1.3",
    "summary": "Model of a federated optimisation, its measurements, and the guarantee of its noise, if any.",
    "keywords": "differential privacy, federated learning, stochastic optimisation",
    "references": "https://arxiv.org/abs/2407.12396",
}
# Variables with which users sign their results, by attribute of result files
OWNER_VARIABLES = {"creator_name": ("MU2MPI_CREATOR",), "license": ("MU2MPI_LICENSE",)}
DimensionScales = Sequence[h5py.Dataset]  # dimension scales, one per dimension of an array
OUTPUT_EXISTS_ERROR = "the output {} exists; give --overwrite to replace it, or another --output"


def check_output(path: Path, overwrite: bool) -> None:
    """Raise InputError unless a result file can be written to a path; leaves the disk unchanged."""
    _check_existing(path, overwrite)
    try:
        check_creatable(Path(os.path.realpath(path)))
    except OSError as error:
        raise InputError(f"cannot write the output {path}: {error.strerror} ({error.filename})") from None


def _check_existing(path: Path, overwrite: bool) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        raise InputError(f"the output {path} is a folder; name a file in it, such as {path / 'result.h5'}")
    if not stat.S_ISREG(mode):
        raise InputError(f"the output {path} is not an ordinary file; name another file")
    if not overwrite:
        raise InputError(OUTPUT_EXISTS_ERROR.format(path))


def write_result(result: Result, path: Path, overwrite: bool = False) -> None:
    """Write a result file atomically: readers see the complete file or none, and failures change nothing.

    Without `overwrite`, InputError is raised for an existing file, also for one created during the call.
    """
    _check_existing(path, overwrite)
    try:
        content = hdf5_file_bytes(lambda file: _write_result_groups(file, result))
        write_atomically(path, (content,), replace=overwrite)
    except FileExistsError:
        raise InputError(OUTPUT_EXISTS_ERROR.format(path)) from None


def _write_result_groups(file: h5py.File, result: Result) -> None:
    experiment, created = result.experiment, datetime.now(UTC).isoformat(timespec="seconds")
    header = {
        "schema": RESULT_SCHEMA,
        "created": created,
        "status": "complete",
        "experiment": experiment.to_toml(),
        **_catalogue_attributes(result, created),
    }
    # A copied result keeps the version that ran the experiment.
    software = {"mu2mpi_version": __version__, **result.environment, **set_variables(OWNER_VARIABLES)}
    write_attributes(file, {**header, **software, **header})
    create_group(file, "experiment", {name: _typed(v) for name, v in experiment.settings().items()})
    _write_model(create_group(file, "model"), result)
    history = create_group(file, "history")
    columns = History.column_attributes(result.label_kind, result.loss_unit)
    scales = [_write_dataset(history, "round", result.history.round, **columns.pop("round"))]
    for name, attributes in columns.items():
        _write_dataset(history, name, getattr(result.history, name), **attributes, scales=scales)
    privacy = create_group(file, "privacy", result.privacy.file_attributes())
    if result.accounts is not None:
        _write_accounts(create_group(privacy, "machines"), result.accounts)
    if result.theory is not None:
        create_group(file, "theory", {**asdict(result.theory), "units": result.loss_unit})
    if result.metrics or result.test_rows is not None:
        metrics = create_group(file, "metrics", result.metrics)
        if (rows := result.test_rows) is not None:
            _write_dataset(metrics, "test_row", rows, "row of a test sample in the data file, from 0")
        if (confusion := result.confusion) is not None:
            names = {"class": "true class of a test sample", "predicted": "class predicted by the output"}
            numbers, text = np.arange(len(confusion)), "test samples by true and predicted class"
            scales = [_write_dataset(metrics, name, numbers, each) for name, each in names.items()]
            _write_dataset(metrics, "confusion", confusion, text, scales=scales)
    if result.diagnostics is not None:
        create_group(file, "diagnostics", {**asdict(result.diagnostics), "note": DIAGNOSTICS_NOTE})
    if result.timing:
        timing, ranks = create_group(file, "timing"), len(next(iter(result.timing.values())))
        scales = [_write_dataset(timing, "rank", np.arange(ranks), "MPI rank")]
        for phase, seconds in result.timing.items():
            _write_dataset(timing, phase, seconds, f"time spent on {phase}", "s", scales)
    if result.cost:
        attributes = dict(result.cost)
        memory, cost = attributes.pop("peak_memory"), create_group(file, "cost", attributes)
        scales = [_write_dataset(cost, "rank", np.arange(len(memory)), "MPI rank")]
        _write_dataset(cost, "peak_memory", memory, "largest resident memory", "byte", scales)


def set_variables(variables: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the first environment variable that is set for each attribute of result files; none if unset."""
    values = {n: next(filter(None, map(os.environ.get, names)), None) for n, names in variables.items()}
    return {n: os.fsencode(value).decode(errors="replace") for n, value in values.items() if value}


def _catalogue_attributes(result: Result, created: str) -> dict[str, str]:
    """Return attributes of ACDD; without the command line, which may name folders."""
    experiment, method = result.experiment, result.experiment.chosen_method.name
    data, verb = Path(experiment.data).name, "published" if "published" in result.environment else "run"
    return {
        "title": f"{method} on {data}, M = {experiment.machines}, {experiment.server} server",
        **CATALOGUE_TEXTS,
        "history": f"{created}: {verb} with mu2mpi {__version__}",
        "source": f"mu2mpi {result.environment.get('mu2mpi_version', __version__)}, method {method}",
    }


def _typed(setting: Any) -> Any:
    """Return a setting as a number, text or array of numbers, with booleans as uint8; others as text."""
    kinds = {*map(type, np.asarray(setting, object).flat)}
    is_number = kinds <= {bool, int, float} and np.asarray(setting).dtype.kind in "biuf"
    return np.asarray(setting, np.uint8 if kinds == {bool} else None) if is_number else str(setting)


def _write_model(group: h5py.Group, result: Result) -> None:
    rows, features = np.shape(result.x)
    scales = [
        _write_dataset(group, "row", np.arange(rows), "row of the model, one per class if there are several"),
        _write_dataset(group, "feature", np.arange(features), "feature; the last is the bias"),
    ]
    facts = {} if result.public_facts is None else result.public_facts._asdict()
    attributes = {"scale": result.feature_scale, **facts, "label_range": result.label_range}
    attributes["schema_toml"] = result.schema_toml
    write_attributes(group, {name: value for name, value in attributes.items() if value is not None})
    _write_dataset(group, "x", np.asarray(result.x, np.float64), "output x_T of the algorithm", scales=scales)
    if result.class_names is not None:
        classes = _write_dataset(group, "class", np.arange(len(result.class_names)), "class")
        _write_strings(group, "label", result.class_names, "label of the class", classes)
    if result.feature_names is not None:
        feature_names = (*result.feature_names, "(bias)")
        _write_strings(group, "feature_name", feature_names, "name of the feature", scales[1])
    _write_dataset(group, "w", np.asarray(result.w, np.float64), "last iterate w_T", scales=scales)


def _write_accounts(group: h5py.Group, accounts: PerMachineAccounts) -> None:
    machines = _write_dataset(group, "machine", np.arange(len(accounts.samples)), "machine")
    if accounts.machine_owners is not None:
        _write_strings(group, "owner", accounts.machine_owners, "owner of the machine", machines)
    for name, attributes in PerMachineAccounts.columns().items():
        _write_dataset(group, name, getattr(accounts, name), **attributes, scales=[machines])
    if accounts.participation is not None:
        rounds = _write_dataset(group, "round", np.arange(1, len(accounts.participation) + 1), "round t")
        text, matrix = "1 if the machine takes part in the round", accounts.participation.astype(np.uint8)
        _write_dataset(group, "participation", matrix, text, scales=[rounds, machines])


def _write_strings(
    group: h5py.Group, name: str, strings: Sequence[str], long_name: str, scale: h5py.Dataset
) -> None:
    encoded = [string.encode() for string in strings]
    # netCDF reads strings of one byte as a character dimension, so that all have at least two.
    values = np.array(encoded, h5py.string_dtype("utf-8", max([2, *map(len, encoded)])))
    dataset = _write_dataset(group, name, values, long_name, scales=[scale])
    write_attributes(dataset, {"_Encoding": "utf-8"})


def _write_dataset(
    group: h5py.Group,
    name: str,
    values: ArrayLike,
    long_name: str,
    units: str = "1",
    scales: DimensionScales = (),
) -> h5py.Dataset:
    """Write an HDF5 array with dimension scales; without `scales`, the array becomes a dimension scale."""
    dataset = write_array(group, name, np.asarray(values), compression="gzip", shuffle=True)
    write_attributes(dataset, column_metadata(long_name, units))
    if not scales:
        dataset.make_scale(name)
    for dimension, scale in enumerate(scales):
        dataset.dims[dimension].attach_scale(scale)
    return dataset
