"""Merge results into a study file: one HDF5 file with a group for each."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import h5py

from mu2mpi._version import __version__
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import atomic_writer
from mu2mpi.core.hdf5 import copy_group, write_attributes
from mu2mpi.results.opening import open_result
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import RESULT_SUFFIX, STUDY_SCHEMA
from mu2mpi.results.result_files import (
    join_names,
    load_summaries,
    relative_paths,
    require_results,
    show_progress,
)
from mu2mpi.results.writer import OUTPUT_EXISTS_ERROR, check_output

USER_BLOCK_BYTES = 512  # In front of the HDF5 content: tells study files without opening them as HDF5


def merge_results(paths: Sequence[Path], output: Path, overwrite: bool = False) -> list[str]:
    """Write a study file with the results in files, folders and other study files; return their names.

    The names are the paths below the searched folders. A result that is found more than once is written once.
    Raises InputError, before anything is written, if a file is not a result or two results have one name.
    """
    check_output(output, overwrite)
    runs, _ = load_summaries(paths, strict=True, prefetch=("contents",))
    require_results(runs, paths)
    runs_by_name, clashes = dict[str, RunSummary](), dict[str, list[Path]]()
    relative = relative_paths([run.path for run in runs], paths)
    for run in runs:
        other = runs_by_name.setdefault(name := _result_name(relative[run.path]), run)
        if _identity(run) != _identity(other):
            clashes.setdefault(name, [other.path]).append(run.path)
    if clashes:
        text = "{} are different results and would become {}"
        lines = [text.format(join_names(files), name) for name, files in clashes.items()]
        raise InputError("\n".join([*lines, "Rename the files, or merge them into several study files."]))
    try:
        with atomic_writer(output, replace=overwrite) as file:
            options = {"libver": ("v110", "v110"), "userblock_size": USER_BLOCK_BYTES, "track_order": True}
            with h5py.File(file, "w", **options) as study:
                created = datetime.now(UTC).isoformat(timespec="seconds")
                header = {"schema": STUDY_SCHEMA, "created": created, "mu2mpi_version": __version__}
                write_attributes(study, header)
                for name, run in show_progress(runs_by_name.items(), len(runs_by_name), "merging"):
                    with open_result(run.path) as result:
                        copy_group(result, study, name)
            file.seek(0)
            file.write(f"{STUDY_SCHEMA}\n".encode())
    except FileExistsError:
        raise InputError(OUTPUT_EXISTS_ERROR.format(output)) from None
    return list(runs_by_name)


def _result_name(relative: Path) -> str:
    """Name in a study file of a result from a relative path, without the study files on the way."""
    folders = [part for part in relative.parts[:-1] if part != ".." and not part.endswith(RESULT_SUFFIX)]
    return PurePosixPath(*folders, relative.name.removesuffix(RESULT_SUFFIX) + RESULT_SUFFIX).as_posix()


def _identity(run: RunSummary) -> object:
    return run.experiment, run.created, run.contents.model_digest
