"""Checkpoints: what a run needs to go on, on any number of ranks, as if it had never stopped.

A checkpoint lies beside the output and is removed when the run is complete. It holds sums without noise,
a digest of the data and perhaps the noise key, so only its owner may read it.
"""

import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import h5py

from mu2mpi._version import __version__
from mu2mpi.errors import InputError
from mu2mpi.files import write_whole
from mu2mpi.results.reader import open_sealed, stored_experiment, stored_privacy
from mu2mpi.results.schema import Checkpoint, History
from mu2mpi.results.seal import seal_of
from mu2mpi.results.writer import plain

__all__ = ["CHECKPOINT_SCHEMA", "SUFFIX", "checkpoint_path", "read_checkpoint", "write_checkpoint"]

CHECKPOINT_SCHEMA = "mu2mpi-checkpoint-5"

SUFFIX = ".checkpoint"
"""What follows the name of the output."""


ARRAYS = ("q", "class_counts")
SCALARS = ("rounds_done", "elapsed_seconds", "largest_squared_norm", "clipped")


def checkpoint_path(output: Path) -> Path:
    """Return where the checkpoint of a run with this output lies."""
    return output.with_name(output.name + SUFFIX)


def write_checkpoint(checkpoint: Checkpoint, path: Path, replace: bool = True) -> None:
    """Write a checkpoint whole or not at all, readable by its owner alone.

    Raises
    ------
    FileExistsError
        If there is one that may not be replaced.
    OSError
        If the file system fails; an older checkpoint is then untouched.
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
        for column in fields(History):
            file.create_dataset(f"history/{column.name}", data=getattr(checkpoint.history, column.name))
    image = buffer.getbuffer()
    write_whole(path, (image, seal_of(image)), mode=0o600, replace=replace)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    InputError
        If it is damaged, or of another schema or version of mu2mpi.
    """
    with open_sealed(path) as file:
        _check_origin(file, path)
        key: Any = file.attrs.get("key")
        history: dict[str, Any] = {name: file[f"history/{name}"][()] for name in History.columns()}
        arrays: dict[str, Any] = {name: file[name][()] for name in ARRAYS}
        return Checkpoint(
            experiment=stored_experiment(file, path),
            rounds_done=int(file.attrs["rounds_done"]),
            key=None if key is None else bytes.fromhex(key),
            iterates={name: array[()] for name, array in file["iterates"].items()},
            privacy=stored_privacy(file, path),
            history=History(**history),
            elapsed_seconds=float(file.attrs["elapsed_seconds"]),
            largest_squared_norm=float(file.attrs["largest_squared_norm"]),
            clipped=int(file.attrs["clipped"]),
            builds=tuple(str(file.attrs["builds"]).splitlines()),
            data=bytes.fromhex(str(file.attrs["data"])),
            **arrays,
        )


def _check_origin(file: h5py.File, path: Path) -> None:
    for name, ours in (("schema", CHECKPOINT_SCHEMA), ("mu2mpi_version", __version__)):
        theirs = file.attrs.get(name, "absent")
        if theirs != ours:
            raise InputError(
                f"the checkpoint {path} cannot be used: its {name} is {theirs!r}, and this is {ours!r}; "
                "finish the run with what wrote it, or remove the checkpoint to start again"
            )
