"""Checkpoints: what a run needs to go on, on any number of ranks, as if it had never stopped.

A checkpoint lies beside the output and is removed when the run is complete. It holds sums without noise,
a digest of the data and perhaps the noise key, so only its owner may read it.
"""

import errno
import io
import math
import os
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mu2mpi._version import __version__
from mu2mpi.errors import InputError
from mu2mpi.files import remove_stale_temporaries, second_name, write_whole
from mu2mpi.results.reader import open_sealed, stored_experiment, stored_history, stored_privacy
from mu2mpi.results.schema import COUNTS, OF_CHECKPOINT, Checkpoint, History, previous_path
from mu2mpi.results.seal import seal_of
from mu2mpi.results.writer import plain

CHECKPOINT_SCHEMA = "mu2mpi-checkpoint-6"

ARRAYS = ("q", "class_counts")
SCALARS: dict[str, type[np.generic]] = {
    "rounds_done": np.int64,
    "elapsed_seconds": np.float64,
    "largest_squared_norm": np.float64,
    "clipped": np.int64,
}


def write_checkpoint(checkpoint: Checkpoint, path: Path, replace: bool = True) -> None:
    """Write a checkpoint whole or not at all, readable by its owner alone; raises like `write_whole`.

    The one that it replaces is kept beside it. One that replaces none is the first of its run, and removes
    what killed writers of earlier runs left.
    """
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=("v110", "v110")) as file:
        file.attrs["schema"] = CHECKPOINT_SCHEMA
        file.attrs["mu2mpi_version"] = __version__
        file.attrs["experiment"] = checkpoint.experiment.to_toml()
        for name in SCALARS:
            file.attrs[name] = getattr(checkpoint, name)
        file.attrs["builds"] = "\n".join(checkpoint.builds)
        file.attrs["data"] = checkpoint.data.hex()
        if checkpoint.key is not None:
            file.attrs["key"] = checkpoint.key.hex()
        for name in ARRAYS:
            file.create_dataset(name, data=getattr(checkpoint, name), fletcher32=True)
        for name, array in checkpoint.iterates.items():
            file.create_dataset(f"iterates/{name}", data=array, fletcher32=True)
        file.create_group("privacy").attrs.update(plain(checkpoint.privacy.attributes()))
        for name in History.columns():
            file.create_dataset(f"history/{name}", data=getattr(checkpoint.history, name))
    image = buffer.getbuffer()
    content = image, seal_of(image)
    try:
        _write(path, content, replace)
    except OSError as error:
        # A job that starts or finishes the same run removes all temporary files, also those in use.
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        _write(path, content, replace)
    if not replace:
        previous_path(path).unlink(missing_ok=True)
        remove_stale_temporaries(path)


def _write(path: Path, content: tuple[memoryview, bytes], replace: bool) -> None:
    if replace and path.exists():
        second_name(path, previous_path(path))
    write_whole(path, content, mode=0o600, replace=replace)


def remove_checkpoint(path: Path) -> None:
    """Remove a checkpoint, if it is there, the one before it, and temporary files of both.

    Each may hold the noise key. The checkpoint goes last: while it is there, so may be the others.
    """
    remove_stale_temporaries(path)
    previous_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def read_last_whole_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or if it cannot be read the one before, which takes its place.

    What killed writers left beside it is removed. Raises like `read_checkpoint`, of the last one, if neither
    can be read.
    """
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
    """Read a checkpoint; InputError if it is not as it was written, or of another schema or version.

    Whether its arrays fit the run is for `mu2mpi.execution.resume.check_state` to say.
    """
    with open_sealed(path, required=True, way_out=OF_CHECKPOINT) as file:
        for name, ours in (("schema", CHECKPOINT_SCHEMA), ("mu2mpi_version", __version__)):
            theirs = file.attrs.get(name, "absent")
            if theirs != ours:
                raise InputError(
                    f"the checkpoint {path} cannot be used: its {name} is {theirs!r}, and this is {ours!r}; "
                    "finish the run with what wrote it, or remove the checkpoint to start again"
                )
        key = file.attrs.get("key")
        state: dict[str, Any] = {name: _number(file, name, kind) for name, kind in SCALARS.items()}
        state |= {name: file[name][()] for name in ARRAYS}
        checkpoint = Checkpoint(
            experiment=stored_experiment(file, path),
            key=None if key is None else bytes.fromhex(key),
            iterates={name: array[()] for name, array in file["iterates"].items()},
            privacy=stored_privacy(file, path),
            history=stored_history(file),
            builds=tuple(file.attrs["builds"].splitlines()),
            data=bytes.fromhex(file.attrs["data"]),
            **state,
        )
        _check(checkpoint)
        return checkpoint


def _number(file: h5py.File, name: str, kind: type[np.generic]) -> int | float:
    value: Any = file.attrs[name]
    number: int | float = value.item()
    if type(value) is not kind or not 0 <= number < math.inf:
        raise ValueError(f"{name} = {number!r} should be a {kind.__name__}, finite and not below 0")
    return number


def _check(checkpoint: Checkpoint) -> None:
    """Raise ValueError if the parts of a checkpoint do not belong together."""
    experiment, done, rounds = checkpoint.experiment, checkpoint.rounds_done, checkpoint.history.round
    if len(checkpoint.key or b"") != (32 if experiment.seed is None else 0) or len(checkpoint.data) != 32:
        raise ValueError("its key, which a run without a seed has, or its digest of the data is no 32 bytes")
    types = {name: getattr(checkpoint.history, name).dtype for name in History.columns()}
    if any(kind != (np.int64 if name in COUNTS else np.float64) for name, kind in types.items()):
        raise ValueError(f"the columns of its history have other types: {types}")
    if not done < (experiment.rounds or 0):
        raise ValueError(f"rounds_done = {done} should be less than {experiment.rounds} rounds")
    if np.any(np.diff(rounds, prepend=0, append=done + 1) <= 0):
        raise ValueError(f"the rounds of its history should rise, from 1 to {done} at most")
