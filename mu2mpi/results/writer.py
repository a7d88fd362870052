"""Writes a result file whole or not at all."""

import os
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
from mu2mpi.core.files import unfinished, write_whole
from mu2mpi.core.hdf5 import file_image, write_array, write_attributes
from mu2mpi.privacy.accounting.per_machine import Accounts
from mu2mpi.results.records import CONFUSION, OF_CONFUSION, SCHEMA, History
from mu2mpi.results.result import Result

DIAGNOSTICS_NOTE = "computed from private data and not covered by the privacy guarantee"
EXISTS = "the output {} exists; give --overwrite to replace it, or another --output"


def check_output(path: Path, overwrite: bool) -> None:
    """Find out whether a result can be written, and leave everything as it is; InputError if it cannot."""
    target = Path(os.path.realpath(path))
    if os.path.isdir(target):
        raise InputError(f"the output {path} is a folder; name a file in it, such as {path / 'result.h5'}")
    if os.path.exists(target) and not os.path.isfile(target):
        raise InputError(f"the output {path} is not an ordinary file; name another")
    if os.path.isfile(target) and not overwrite:
        raise InputError(EXISTS.format(path))
    folder = next(parent for parent in target.parents if os.path.lexists(parent))
    try:
        # Only trying tells: permission bits say nothing of a read-only or full file system.
        with unfinished(folder / target.name) as probe:
            probe.touch(exist_ok=False)
    except OSError as error:
        raise InputError(f"cannot write the output {path}: {error.strerror} ({error.filename})") from None


def write_result(result: Result, path: Path, overwrite: bool = False) -> None:
    """Write a result so that a reader sees either all of it or none; on any failure all is as it was.

    Without `overwrite`, not even a file is replaced that appears during the call.
    """
    check_output(path, overwrite)
    try:
        write_whole(path, (result_image(result),), replace=overwrite)
    except FileExistsError:
        raise InputError(EXISTS.format(path)) from None


def result_image(result: Result) -> bytes:
    """Bytes of the HDF5 file that holds a result."""
    return file_image(lambda file: _fill(file, result))


def _fill(file: h5py.File, result: Result) -> None:
    ours = {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": "complete",
        "experiment": result.experiment.to_toml(),
    }
    # The version that ran the experiment counts, should another one copy its result.
    software = {"mu2mpi_version": __version__, **result.environment}
    write_attributes(file, {**ours, **software, **ours})
    _write_model(_group(file, "model"), result)
    history = _group(file, "history")
    (rounds, said_of_rounds), *others = History.described(result.labels, result.unit).items()
    scales = [_put(history, rounds, result.history.round, **said_of_rounds)]
    for name, said in others:
        _put(history, name, getattr(result.history, name), **said, scales=scales)
    privacy = _group(file, "privacy", result.privacy.attributes())
    if result.accounts is not None:
        _write_accounts(_group(privacy, "machines"), result.accounts)
    if result.theory is not None:
        _group(file, "theory", {**asdict(result.theory), "units": result.unit})
    if result.metrics or result.test_rows is not None:
        metrics = _group(file, "metrics", result.metrics)
        if (rows := result.test_rows) is not None:
            _put(metrics, "test_row", rows, "row of the data file that is a test sample, from 0 on")
        if (confusion := result.confusion) is not None:
            K = np.arange(len(confusion))
            scales = [_put(metrics, name, K, text) for name, text in OF_CONFUSION.items()]
            _put(metrics, "confusion", confusion, CONFUSION, scales=scales)
    if result.diagnostics is not None:
        private = _group(file, "diagnostics", {**asdict(result.diagnostics), "note": DIAGNOSTICS_NOTE})
        if (counts := result.class_counts) is not None:
            machines = _put(private, "machine", np.arange(len(counts)), "machine")
            classes = _put(private, "class", np.arange(counts.shape[1]), "class, or part of the range")
            text = "samples of each class that each machine spent"
            _put(private, "class_counts", counts, text, scales=[machines, classes])
    if result.timing:
        timing, ranks = _group(file, "timing"), len(next(iter(result.timing.values())))
        scales = [_put(timing, "rank", np.arange(ranks), "MPI rank")]
        for phase, seconds in result.timing.items():
            _put(timing, phase, seconds, f"time spent on {phase}", "s", scales)


def _group(file: h5py.Group, name: str, attributes: Mapping[str, Any] | None = None) -> h5py.Group:
    group = file.create_group(name, track_order=True)
    write_attributes(group, attributes or {})
    return group


def _write_model(group: h5py.Group, result: Result) -> None:
    rows, features = np.shape(result.x)
    scales = [
        _put(group, "row", np.arange(rows), "row of the model: the class, where there is one for each"),
        _put(group, "feature", np.arange(features), "feature; the last is the bias"),
    ]
    known = {"scale": result.scale, **({} if result.facts is None else result.facts._asdict())}
    known |= {"label_range": result.label_range, "columns": result.columns}
    write_attributes(group, {name: value for name, value in known.items() if value is not None})
    _put(group, "x", np.asarray(result.x, np.float64), "output x_T of the algorithm", scales=scales)
    if result.class_names is not None:
        classes = _put(group, "class", np.arange(len(result.class_names)), "class")
        _put_names(group, "label", result.class_names, "label of the class", classes)
    if result.feature_names is not None:
        _put_names(group, "feature_name", (*result.feature_names, "(bias)"), "name of the feature", scales[1])
    _put(group, "w", np.asarray(result.w, np.float64), "last iterate w_T", scales=scales)


def _write_accounts(group: h5py.Group, accounts: Accounts) -> None:
    machines = _put(group, "machine", np.arange(len(accounts.samples)), "machine")
    if accounts.owners is not None:
        _put_names(group, "owner", accounts.owners, "owner of the machine", machines)
    for name, said in Accounts.columns().items():
        _put(group, name, getattr(accounts, name), **said, scales=[machines])
    if accounts.present is not None:
        rounds = _put(group, "round", np.arange(1, len(accounts.present) + 1), "round t")
        text = "1 if the machine takes part in the round"
        _put(group, "present", accounts.present.astype(np.uint8), text, scales=[rounds, machines])


def _put_names(
    group: h5py.Group, name: str, names: Sequence[str], long_name: str, scale: h5py.Dataset
) -> None:
    texts = [text.encode() for text in names]
    # netCDF takes texts of one byte for the characters of longer ones.
    values = np.array(texts, h5py.string_dtype("utf-8", max([2, *map(len, texts)])))
    dataset = _put(group, name, values, long_name, scales=[scale])
    write_attributes(dataset, {"_Encoding": "utf-8"})


def _put(
    group: h5py.Group,
    name: str,
    values: ArrayLike,
    long_name: str,
    units: str = "1",
    scales: Sequence[h5py.Dataset] | None = None,
) -> h5py.Dataset:
    """Write one array with the coordinates of its dimensions; without, it is those of a dimension itself."""
    dataset = write_array(group, name, np.asarray(values), compression="gzip", shuffle=True)
    write_attributes(dataset, {"long_name": long_name, "units": units})
    if scales is None:
        dataset.make_scale(name)
    for dimension, scale in enumerate(scales or ()):
        dataset.dims[dimension].attach_scale(scale)
    return dataset
