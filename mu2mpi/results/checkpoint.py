"""Write and read checkpoints, from which a run resumes with identical bits on any number of ranks.

A checkpoint is a file beside the output, removed when the run is complete. Only its owner may read it: it
contains message sums without noise, a digest of the data and, without a seed, the noise key.
"""

import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import h5py
import numpy as np

from mu2mpi._version import __version__
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import link_or_copy, remove_stale_temporaries, write_atomically
from mu2mpi.core.hdf5 import create_group, hdf5_file_bytes, read_attributes, write_array, write_attributes
from mu2mpi.core.registry import describe_imported_files
from mu2mpi.core.text import warn
from mu2mpi.results.opening import open_mu2mpi_file, stored_experiment, stored_privacy
from mu2mpi.results.reader import stored_history
from mu2mpi.results.records import CHECKPOINT_ADVICE, Checkpoint, History, previous_checkpoint_path

CHECKPOINT_SCHEMA = "mu2mpi-checkpoint-11"
ROOT_DATASETS = ("q", "last_messages")  # datasets at the root of the file, named as fields of `Checkpoint`
# Attributes named as fields of `Checkpoint`, with their types
SCALAR_ATTRIBUTES: dict[str, Any] = {f.name: f.type for f in fields(Checkpoint) if f.type in (int, float)}


def write_checkpoint(checkpoint: Checkpoint, path: Path, replace: bool = True) -> None:
    """Write a checkpoint atomically with mode 0600; `previous_checkpoint_path` keeps the replaced one.

    Unless it replaces another one, it is flushed to the disk only if it has the noise key. That of a run with
    a seed may be empty after a power failure: the run starts over, and its messages are the same.
    """
    content = hdf5_file_bytes(lambda file: _write_checkpoint_data(file, checkpoint))
    if replace and path.exists():
        link_or_copy(path, previous_checkpoint_path(path))
    durable = replace or checkpoint.root_key is not None
    write_atomically(path, (content,), mode=0o600, replace=replace, durable=durable)
    if not replace:
        # Other files of a new checkpoint can only be left over from killed writers.
        previous_checkpoint_path(path).unlink(missing_ok=True)
        remove_stale_temporaries(path)


def _write_checkpoint_data(file: h5py.File, checkpoint: Checkpoint) -> None:
    key = {} if checkpoint.root_key is None else {"key": checkpoint.root_key.hex()}
    imports = {"imported_files": imported_files} if (imported_files := describe_imported_files()) else {}
    attributes = {
        "schema": CHECKPOINT_SCHEMA,
        "mu2mpi_version": __version__,
        "experiment": checkpoint.experiment.to_toml(),
        **{name: number_type(getattr(checkpoint, name)) for name, number_type in SCALAR_ATTRIBUTES.items()},
        "run_id": checkpoint.run_id,
        "numeric_platforms": "\n".join(checkpoint.numeric_platforms),
        "data_digest": checkpoint.data_digest.hex(),
    }
    write_attributes(file, attributes | key | imports)
    create_group(file, "privacy", checkpoint.privacy.file_attributes())
    arrays = {name: getattr(checkpoint, name) for name in ROOT_DATASETS}
    arrays |= {f"iterates/{name}": array for name, array in checkpoint.iterates.items()}
    arrays |= {f"history/{name}": getattr(checkpoint.history, name) for name in History.column_names()}
    for name, array in arrays.items():
        write_array(file, name, array)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, its predecessor and their temporary files, which may hold the noise key."""
    # The checkpoint is removed last: a later run looks for the other files only if it exists.
    remove_stale_temporaries(path)
    previous_checkpoint_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def read_latest_valid_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or its predecessor if it is damaged, and remove its temporary files."""
    try:
        checkpoint = read_checkpoint(path)
    except InputError as error:
        previous = previous_checkpoint_path(path)
        if not previous.exists():
            raise
        try:
            checkpoint = read_checkpoint(previous)
        except InputError:
            raise error from None
        warn(
            f"the checkpoint {path} cannot be read ({error.__cause__ or error}). The previous one is used; "
            f"rounds after {checkpoint.rounds_done} are repeated with equal messages."
        )
        os.replace(previous, path)
    remove_stale_temporaries(path)
    return checkpoint


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint file; InputError if it is damaged, or of another schema or version of mu2mpi."""
    with open_mu2mpi_file(path, advice=CHECKPOINT_ADVICE) as file:
        attributes = read_attributes(file)
        for name, expected in (("schema", CHECKPOINT_SCHEMA), ("mu2mpi_version", __version__)):
            stored = attributes.get(name, "absent")
            if stored != expected:
                raise InputError(
                    f"the checkpoint {path} has {name} {stored!r}, and this mu2mpi needs {expected!r}. "
                    "Finish the run with the version that wrote it, or remove the checkpoint."
                )
        key = attributes.get("key")
        fields_by_name: dict[str, Any] = {name: attributes[name].item() for name in SCALAR_ATTRIBUTES}
        fields_by_name |= {name: file[name][()] for name in ROOT_DATASETS}
        checkpoint = Checkpoint(
            experiment=stored_experiment(file, path),
            root_key=None if key is None else bytes.fromhex(key),
            iterates={name: array[()] for name, array in file["iterates"].items()},
            privacy=stored_privacy(file, path),
            history=stored_history(file),
            numeric_platforms=tuple(attributes["numeric_platforms"].splitlines()),
            data_digest=bytes.fromhex(attributes["data_digest"]),
            run_id=str(UUID(attributes["run_id"]) if "run_id" in attributes else uuid4()),
            **fields_by_name,
        )
        _check_fields(checkpoint)
        return checkpoint


def _check_fields(checkpoint: Checkpoint) -> None:
    experiment, rounds_done = checkpoint.experiment, checkpoint.rounds_done
    for name, scalar_type in SCALAR_ATTRIBUTES.items():
        number: float = getattr(checkpoint, name)
        if type(number) is not scalar_type or not 0 <= number < math.inf:
            raise ValueError(f"{name} = {number!r} is not a finite {scalar_type.__name__} of at least 0")
    key_bytes = 32 if experiment.seed is None else 0
    if (len(checkpoint.root_key or b""), len(checkpoint.data_digest)) != (key_bytes, 32):
        raise ValueError("the noise key (only without a seed) or the data digest does not have 32 bytes")
    if not rounds_done < (experiment.rounds or 0):
        raise ValueError(f"rounds_done = {rounds_done} is not less than {experiment.rounds} rounds")
    if np.any(np.diff(checkpoint.history.round, prepend=0, append=rounds_done + 1) <= 0):
        raise ValueError(f"the rounds of the history do not increase from 1 to at most {rounds_done}")
