"""Open result files and checkpoints, and read the settings and the guarantee that both have.

A study file is a folder of results in one HDF5 file. Its results have paths such as ``study.h5/NAME.h5``.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import h5py

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import COMPONENT_KINDS
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.hdf5 import open_for_reading, read_attributes, read_text
from mu2mpi.core.registry import registered_options
from mu2mpi.core.toml import parse_toml
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import RESULT_SCHEMA, RESULT_SUFFIX, STUDY_SCHEMA

_SEED_LINE = re.compile(r"^seed = (0|[1-9]\d{0,17})$", re.MULTILINE)  # below the limit of 63 bits


def is_study(path: Path | str) -> bool:
    """Whether a file is a study file: one that begins with `STUDY_SCHEMA`."""
    # Opening a pipe blocks until it has a writer.
    if not os.path.isfile(path):
        return False
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(STUDY_SCHEMA)) == STUDY_SCHEMA.encode()
    return False


def study_of(path: Path) -> Path | None:
    """File of a path such as ``study.h5/NAME.h5``, of a result in a study file; None for other paths."""
    try:
        os.stat(path)
    except NotADirectoryError:
        return next(filter(os.path.isfile, path.parents), None)
    except (OSError, ValueError):
        pass
    return None


def path_exists(path: Path) -> bool:
    """Whether there is a file or folder of this path, or a study file with this result."""
    if (study := study_of(path)) is None:
        return os.path.exists(path)
    return path in study_results(study)


def study_results(study: Path) -> list[Path]:
    """Paths of the results in a study file, sorted as in a folder."""
    with open_mu2mpi_file(study) as file:
        return sorted(study / name for name in _result_names(file))


def _result_names(group: h5py.Group) -> Iterator[str]:
    # By names alone, so that a damaged result does not hide the others.
    for name in map(os.fsdecode, group):
        if name.endswith(RESULT_SUFFIX):
            yield name
        elif _has_member(group, name) and isinstance(below := group[os.fsencode(name)], h5py.Group):
            yield from (f"{name}/{result}" for result in _result_names(below))


def _has_member(group: h5py.Group, path: str) -> bool:
    """Whether a group has a path that follows no links to other files or groups."""
    links, paths = group.id.links, map(os.fsencode, accumulate(path.split("/"), "{}/{}".format))
    return all(links.exists(each) and links.get_info(each).type == h5py.h5l.TYPE_HARD for each in paths)


@contextmanager
def open_mu2mpi_file(path: Path, advice: str = "copy it again or repeat the run") -> Iterator[h5py.Group]:
    """Open an HDF5 file, or a result in a study file, for reading, as a group.

    Errors, also of the code in the with block, become InputError.
    """
    study = study_of(path)
    try:
        check_readable(study or path)
        # Files of mu2mpi are replaced, never changed in place, so that locks are not needed.
        with open_for_reading(study or path, locking=False) as file:
            name = path.relative_to(study).as_posix() if study else "/"
            if study and not _has_member(file, name):
                raise InputError(f"cannot read {path}: the study {study} has no result of this name")
            yield file[os.fsencode(name)]
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.strerror and error.filename:
            raise InputError(f"cannot read {path}: {error.strerror}") from None
        if not h5py.is_hdf5(study or path):
            raise InputError(f"{study or path} is not an HDF5 file, so not a file of mu2mpi") from None
        # The type of exception that HDF5 raises depends on where the file is damaged.
        raise InputError(f"{path} is damaged or incomplete ({error}); {advice}") from error


@contextmanager
def open_result(path: Path) -> Iterator[h5py.Group]:
    """Open a complete result, in a file of its own or in a study file, for reading."""
    with open_mu2mpi_file(path) as file:
        if not h5py.h5a.exists(file.id, b"schema"):
            raise InputError(f"{path} is an HDF5 file but not a result of mu2mpi: it has no 'schema'")
        if (schema := read_text(file.id, "schema")) == STUDY_SCHEMA:
            first, *others = sorted(_result_names(file))
            text = f"{path} is a study of {1 + len(others):,} results. Name one, such as {path / first}"
            raise InputError(text)
        if schema != RESULT_SCHEMA:
            known = f"this version of mu2mpi reads {RESULT_SCHEMA!r}"
            raise InputError(f"{path} has the schema {schema!r}; {known}")
        if (status := read_text(file.id, "status")) != "complete":
            raise InputError(f"{path} is not a finished run: its status is {status!r}")
        yield file


def stored_experiment(file: h5py.Group, path: Path) -> Experiment:
    """Return the settings of the run that are stored in an open result file or checkpoint."""
    try:
        experiment = _parse_experiment(read_text(file.id, "experiment"), str(path))
    except InputError as error:
        if not h5py.h5a.exists(file.id, b"imported_files"):
            raise
        # Not imported automatically: a file from somebody else could name any code to run.
        imports = re.sub(r" \(SHA-256 \w+\)", "", read_text(file.id, "imported_files"))
        raise InputError(f"{error}\n{path} was made with {imports}; give --import FILE for each") from None
    if experiment.machines is None or experiment.rounds is None:
        raise InputError(f"{path} is incomplete: its experiment lacks the number of machines or of rounds")
    return experiment


def _parse_experiment(text: str, origin: str) -> Experiment:
    """Experiment from TOML text; texts that differ in the seed alone are parsed and validated once."""
    seeds = _SEED_LINE.findall(text)
    # Without strings of several lines, a line ``seed = ...`` is the setting.
    if len(seeds) == 1 and not ('"""' in text or "'''" in text):
        with suppress(InputError):  # The error below has the right origin and seed.
            registered = registered_options(*COMPONENT_KINDS.values())
            template = _parse_template(_SEED_LINE.sub("seed = 0", text), registered)
            return template.replace_unvalidated(seed=int(seeds[0]))
    return Experiment.from_settings(parse_toml(text, origin), origin)


@lru_cache(maxsize=256)
def _parse_template(text: str, registered: tuple[object, ...]) -> Experiment:
    """Experiment from TOML text, cached until a component is registered."""
    return Experiment.from_settings(parse_toml(text, ""))


def stored_privacy(file: h5py.Group, path: Path) -> PrivacyStatement:
    """Return the privacy guarantee that is stored in an open result file or checkpoint."""
    try:
        statement = PrivacyStatement.from_attributes(read_attributes(file["privacy"]))
        if errors := statement.range_errors():
            raise InputError("; ".join(errors))
    except InputError as error:
        raise InputError(f"{path} cannot be used: {error}") from None
    return statement
