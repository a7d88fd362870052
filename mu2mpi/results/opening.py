"""Open result files and checkpoints, and read the settings and the guarantee that both have."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.hdf5 import open_for_reading, read_attributes, read_text
from mu2mpi.core.toml import parse_toml
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import RESULT_SCHEMA


@contextmanager
def open_mu2mpi_file(path: Path, advice: str = "copy it again or repeat the run") -> Iterator[h5py.File]:
    """Open an HDF5 file for reading; errors, also of the code in the with block, become InputError."""
    try:
        check_readable(path)
        # Files of mu2mpi are replaced, never changed in place, so that locks are not needed.
        with open_for_reading(path, locking=False) as file:
            yield file
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror and error.filename:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        if not h5py.is_hdf5(path):
            raise InputError(f"{path} is not an HDF5 file, so not a file of mu2mpi") from None
        # The type of exception that HDF5 raises depends on where the file is damaged.
        raise InputError(f"{path} is damaged or incomplete ({error}); {advice}") from error


@contextmanager
def open_result(path: Path) -> Iterator[h5py.File]:
    """Open a complete result for reading."""
    with open_mu2mpi_file(path) as file:
        if not h5py.h5a.exists(file.id, b"schema"):
            raise InputError(f"{path} is an HDF5 file but not a result of mu2mpi: it has no 'schema'")
        if (schema := read_text(file.id, "schema")) != RESULT_SCHEMA:
            known = f"this version of mu2mpi reads {RESULT_SCHEMA!r}"
            raise InputError(f"{path} has the schema {schema!r}; {known}")
        if (status := read_text(file.id, "status")) != "complete":
            raise InputError(f"{path} is not a finished run: its status is {status!r}")
        yield file


def stored_experiment(file: h5py.Group, path: Path) -> Experiment:
    """Return the settings of the run that are stored in an open result file or checkpoint."""
    text = read_text(file.id, "experiment")
    try:
        experiment = Experiment.from_settings(parse_toml(text, str(path)), str(path))
    except InputError as error:
        if not h5py.h5a.exists(file.id, b"imported_files"):
            raise
        # Not imported automatically: a file from somebody else could name any code to run.
        imports = re.sub(r" \(SHA-256 \w+\)", "", read_text(file.id, "imported_files"))
        raise InputError(f"{error}\n{path} was made with {imports}; give --import FILE for each") from None
    if experiment.machines is None or experiment.rounds is None:
        raise InputError(f"{path} is incomplete: its experiment lacks the number of machines or of rounds")
    return experiment


def stored_privacy(file: h5py.Group, path: Path) -> PrivacyStatement:
    """Return the privacy guarantee that is stored in an open result file or checkpoint."""
    try:
        statement = PrivacyStatement.from_attributes(read_attributes(file["privacy"]))
        if errors := statement.range_errors():
            raise InputError("; ".join(errors))
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from None
    return statement
