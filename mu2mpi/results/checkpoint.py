"""Checkpoints: what a run needs to go on, on any number of ranks, as if it had never stopped.

A checkpoint lies beside the output and is removed when the run is complete. It holds sums without noise,
a digest of the data and perhaps the noise key, so only its owner may read it.
"""

import errno
import math
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mu2mpi._version import __version__
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import remove_stale_temporaries, second_name, write_whole
from mu2mpi.core.hdf5 import attributes_of, file_image, write_array, write_attributes
from mu2mpi.core.registry import describe_imports
from mu2mpi.results.reader import open_own, stored_experiment, stored_history, stored_privacy
from mu2mpi.results.records import OF_CHECKPOINT, Checkpoint, History, previous_path

CHECKPOINT_SCHEMA = "mu2mpi-checkpoint-6"

ARRAYS = ("q", "class_counts")
SCALARS: dict[str, Any] = {f.name: f.type for f in fields(Checkpoint) if f.type in (int, float)}


def write_checkpoint(checkpoint: Checkpoint, path: Path, replace: bool = True) -> None:
    """Write a checkpoint as `write_whole` does, readable by its owner alone, and keep the one before."""
    image = file_image(lambda file: _fill(file, checkpoint))
    for is_again in (False, True):
        try:
            if replace and path.exists():
                second_name(path, previous_path(path))
            write_whole(path, (image,), mode=0o600, replace=replace)
            break
        except OSError as error:
            # A job that starts or finishes the same run removes all temporary files, also those in use.
            if is_again or error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
    if not replace:
        # Nothing but what killed writers left can be there.
        previous_path(path).unlink(missing_ok=True)
        remove_stale_temporaries(path)


def _fill(file: h5py.File, checkpoint: Checkpoint) -> None:
    key = {} if checkpoint.key is None else {"key": checkpoint.key.hex()}
    imports = {"imported_files": text} if (text := describe_imports()) else {}
    attributes = {
        "schema": CHECKPOINT_SCHEMA,
        "mu2mpi_version": __version__,
        "experiment": checkpoint.experiment.to_toml(),
        **{name: kind(getattr(checkpoint, name)) for name, kind in SCALARS.items()},
        "builds": "\n".join(checkpoint.builds),
        "data": checkpoint.data.hex(),
        **key,
        **imports,
    }
    write_attributes(file, attributes)
    write_attributes(file.create_group("privacy"), checkpoint.privacy.attributes())
    arrays = {name: getattr(checkpoint, name) for name in ARRAYS}
    arrays |= {f"iterates/{name}": array for name, array in checkpoint.iterates.items()}
    arrays |= {f"history/{name}": getattr(checkpoint.history, name) for name in History.columns()}
    for name, array in arrays.items():
        write_array(file, name, array)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, the one before it, and temporary files of both: each may hold the noise key."""
    # The checkpoint goes last: while it is there, so may be the others.
    remove_stale_temporaries(path)
    previous_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def read_last_whole_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or if it cannot be read the one before; remove what killed writers left."""
    try:
        checkpoint = read_checkpoint(path)
    except InputError as error:
        previous = previous_path(path)
        if not previous.exists():
            raise
        try:
            checkpoint = read_checkpoint(previous)
        except InputError:
            raise error from None
        print(
            f"mu2mpi: warning: the checkpoint {path} cannot be read ({error.__cause__ or error}); the one "
            f"before it takes its place, and rounds after {checkpoint.rounds_done} are repeated to the bit",
            file=sys.stderr,
            flush=True,
        )
        os.replace(previous, path)
    remove_stale_temporaries(path)
    return checkpoint


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; InputError if it is damaged, or of another schema or version."""
    with open_own(path, way_out=OF_CHECKPOINT) as file:
        attributes = attributes_of(file)
        for name, ours in (("schema", CHECKPOINT_SCHEMA), ("mu2mpi_version", __version__)):
            theirs = attributes.get(name, "absent")
            if theirs != ours:
                words = f"the checkpoint {path} cannot be used: its {name} is {theirs!r}, not {ours!r}"
                raise InputError(f"{words}; finish the run with what wrote it, or remove the checkpoint")
        key = attributes.get("key")
        state: dict[str, Any] = {name: attributes[name].item() for name in SCALARS}
        state |= {name: file[name][()] for name in ARRAYS}
        checkpoint = Checkpoint(
            experiment=stored_experiment(file, path),
            key=None if key is None else bytes.fromhex(key),
            iterates={name: array[()] for name, array in file["iterates"].items()},
            privacy=stored_privacy(file, path),
            history=stored_history(file),
            builds=tuple(attributes["builds"].splitlines()),
            data=bytes.fromhex(attributes["data"]),
            **state,
        )
        _check(checkpoint)
        return checkpoint


def _check(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the parts of a checkpoint do not belong together."""
    experiment, done, rounds = checkpoint.experiment, checkpoint.rounds_done, checkpoint.history.round
    for name, kind in SCALARS.items():
        number: float = getattr(checkpoint, name)
        if type(number) is not kind or not 0 <= number < math.inf:
            raise ValueError(f"{name} = {number!r} should be a finite {kind.__name__}, not below 0")
    if len(checkpoint.key or b"") != (32 if experiment.seed is None else 0) or len(checkpoint.data) != 32:
        raise ValueError("its key, which a run without a seed has, or its digest of the data is no 32 bytes")
    if not done < (experiment.rounds or 0):
        raise ValueError(f"rounds_done = {done} should be less than {experiment.rounds} rounds")
    if np.any(np.diff(rounds, prepend=0, append=done + 1) <= 0):
        raise ValueError(f"the rounds of its history should rise, from 1 to {done} at most")
