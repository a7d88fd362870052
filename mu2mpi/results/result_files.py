"""Finds result files among files and folders, and reads what tables and figures need of all of them."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import Summary, read_summary

MOST_NAMES = 3
MANY = 100  # From so many files on, a log hears that they are being read


def find_summaries(paths: Iterable[Path], strict: bool = False) -> tuple[list[Summary], list[str]]:
    """Read all results that `find_files` finds, and a warning for each that, unless `strict`, was skipped."""
    files, warnings = find_files(paths)
    summaries = []
    for path in shown(files, "reading"):
        try:
            summaries.append(read_summary(path))
        except InputError as error:
            warnings.append(str(error))
    if strict and warnings:
        raise InputError("\n".join(warnings))
    return summaries, warnings


def shown(files: Sequence[Any], action: str) -> Iterable[Any]:
    """Return an iterator over files with a bar on a terminal, or a line in a log, where there are many."""
    if len(files) < MANY:
        return files
    if not sys.stderr.isatty():
        print(f"mu2mpi: {action} {len(files):,} files", file=sys.stderr, flush=True)
        return files
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(files, desc=action, unit="file", leave=False, delay=0.5)
    return bar


def find_files(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """List the files that may be results, each once, and a warning for each folder that cannot be listed.

    A folder stands for every ``*.h5`` in it and below, in sorted order, without hidden ones.
    """
    files: dict[str, Path] = {}
    errors: list[OSError] = []
    for path in paths:
        if not os.path.exists(path):
            raise InputError(f"there is no file or folder {path}")
        found = [path]
        if os.path.isdir(path):
            found = []
            for parent, folders, names in os.walk(path, onerror=errors.append):
                folders[:] = [name for name in folders if not name.startswith(".")]
                there = (name for name in names if name.endswith(".h5") and not name.startswith("."))
                found += [Path(parent, name) for name in there]
        for file in sorted(found):
            files.setdefault(os.path.realpath(file), file)
    return list(files.values()), [f"{e.filename} cannot be listed: {e.strerror}" for e in errors]


def list_files(paths: Iterable[Path]) -> list[Path]:
    """List the files that may be results, as `find_files`, but raise an InputError if it leaves any out."""
    paths = list(paths)
    files, unlisted = find_files(paths)
    if unlisted:
        raise InputError("\n".join(unlisted))
    check_some(files, paths)
    return files


def check_some(found: Sequence[object], paths: Iterable[Path | str]) -> None:
    """Raise an InputError if nothing was found at some paths."""
    if not found:
        raise InputError(f"no results in {', '.join(map(str, paths))}")


def names_of(files: Sequence[object], joint: str = " and ") -> str:
    """Return the names of files for a sentence: all of a few, or the first and how many more there are."""
    *others, last = map(str, files)
    if len(others) >= MOST_NAMES:
        return f"{others[0]} and {len(others)} more"
    return f"{', '.join(others)}{joint}{last}" if others else last
