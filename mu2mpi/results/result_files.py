"""Search for results in folders, and read the summaries that tables and figures need."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from mu2mpi.core.errors import InputError
from mu2mpi.core.text import print_messages
from mu2mpi.results.reader import RunSummary, read_summary
from mu2mpi.results.records import RESULT_SUFFIX

MAX_JOINED_NAMES = 3  # Longest list of names that `join_names` writes out
PROGRESS_MIN_FILES = 100  # Smallest number of files for which progress is shown
F = TypeVar("F")
T = TypeVar("T")


def load_summaries(paths: Iterable[Path], strict: bool = False) -> tuple[list[RunSummary], list[str]]:
    """Read the summaries of result files in files and folders, with a warning for each reason to skip some.

    With `strict`, raise InputError instead of skipping. Folders are searched by `find_result_files`.
    """
    files, warnings = find_result_files(paths)
    summaries, skipped = [], dict[str, list[Path]]()
    for path, summary in zip(files, map_files(_read_summary_or_error, files, "reading"), strict=True):
        if isinstance(summary, RunSummary):
            summaries.append(summary)
        else:
            # Equal messages, as on a missing extension, count once.
            skipped.setdefault(summary.replace(str(path), "\0"), []).append(path)
    for message, (first, *others) in skipped.items():
        also = f" (likewise {join_names(others)})" if others else ""
        warnings.append(message.replace("\0", str(first)) + also)
    if strict and warnings:
        raise InputError("\n".join(warnings))
    return summaries, warnings


def _read_summary_or_error(path: Path) -> RunSummary | str:
    try:
        return read_summary(path)
    except InputError as error:
        return str(error)


def map_files(function: Callable[[F], T], files: Sequence[F], action: str) -> Iterator[T]:
    """Yield `function(file)` of each file in order; of many, with a progress bar, or a line in a log."""
    results = map(function, files)
    if len(files) >= PROGRESS_MIN_FILES and not sys.stderr.isatty():
        print_messages(f"mu2mpi: {action} {len(files):,} files")
    elif len(files) >= PROGRESS_MIN_FILES:
        from tqdm import tqdm

        return iter(tqdm(results, desc=action, total=len(files), unit="file", leave=False, delay=0.5))
    return results


def find_result_files(paths: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """List possible result files in files and folders, and warnings for folders that cannot be listed.

    A folder is searched recursively for ``*.h5``, in sorted order, without hidden files and folders.
    """
    files: dict[str, Path] = {}
    errors: list[OSError] = []
    for path in paths:
        if not os.path.exists(path):
            raise InputError(f"there is no file or folder {path}")
        candidates = [] if os.path.isdir(path) else [path]
        if not candidates:
            for parent, folders, names in os.walk(path, onerror=errors.append):
                folders[:] = [name for name in folders if not name.startswith(".")]
                results = (n for n in names if n.endswith(RESULT_SUFFIX) and not n.startswith("."))
                candidates += [Path(parent, name) for name in results]
        for candidate in sorted(candidates):
            files.setdefault(os.path.realpath(candidate), candidate)
    return list(files.values()), [f"{e.filename} cannot be listed: {e.strerror}" for e in errors]


def list_result_files(paths: Iterable[Path]) -> list[Path]:
    """List result files as `find_result_files`; InputError if there are none or a folder cannot be listed."""
    paths = list(paths)
    files, warnings = find_result_files(paths)
    if warnings:
        raise InputError("\n".join(warnings))
    require_results(files, paths)
    return files


def require_results(results: Sequence[object], paths: Iterable[Path | str]) -> None:
    """Raise InputError for an empty sequence of results, naming the searched paths."""
    if not results:
        raise InputError(f"no results in {', '.join(map(str, paths))}")


def join_names(files: Sequence[object], conjunction: str = " and ") -> str:
    """Join file names for a sentence: up to `MAX_JOINED_NAMES` in full, else the first name and a count."""
    *earlier_names, last_name = map(str, files)
    if len(earlier_names) >= MAX_JOINED_NAMES:
        return f"{earlier_names[0]} and {len(earlier_names)} more"
    return f"{', '.join(earlier_names)}{conjunction}{last_name}" if earlier_names else last_name
