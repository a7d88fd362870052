"""Samples in files that are read whole: separated values, archives of numpy's, and the format of LIBSVM."""

import csv
import gzip
import io
import math
import os
import warnings
import zipfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.cells import Cells
from mu2mpi.data.formats.columns import Apart, Columns, Kind, Numbered, Together
from mu2mpi.data.formats.table import (
    MOST_FEATURES,
    OWNERS,
    USUAL,
    Table,
    check_apart,
    checked_size,
    find_name,
    reading,
    row_text,
    shown,
)
from mu2mpi.data.telling import DataError
from mu2mpi.errors import InputError
from mu2mpi.memory import check_room

DELIMITERS = ",;\t"

PART_BYTES = 16 << 20
MEMORY_A_BYTE = 16
"""How much text is read before memory is looked at, and how much of it a byte of text may take."""

MOST_BYTES_A_LINE = 256 << 20
SURELY_LARGE, MOST_FOLD = 16 << 20, 250
"""What unpacks to more than so many bytes, and so many times its size, is not taken for samples."""

HEADER_BYTES = 1 << 16
ROWS_AT_ONCE = 1 << 14  # of text that are turned into columns


def read_csv(path: Path, features: str | None, labels: str | None) -> Table:
    """Read a file whose first line names its columns, or holds numbers; columns are then called 0, 1, ...

    Names of several features are separated by commas; by default, all columns are but those of labels and
    owners.
    """
    with _separated(path) as (names, rows, has_header):
        places = {name: k for k, name in enumerate(names)}
        others = [find_name(path, places, labels, "labels"), *({OWNERS} & places.keys())]
        wanted = [name for name in names if name not in others]
        if features is not None:
            wanted = [find_name(path, places, name.strip(), "features") for name in features.split(",")]
            check_apart(path, wanted, others)
        chosen, columns = ([places[name] for name in some] for some in (wanted, others))
        values = array("d")
        texts: list[list[str]] = [[] for _ in columns]
        for number, row in enumerate(rows):
            try:
                values.extend([float(row[k]) for k in chosen])
            except ValueError:
                name, value = next((names[k], row[k]) for k in chosen if not _are_numbers([row[k]]))
                wrong = (
                    f"in column {shown(name)}, which is not a number; choose the columns with --features, or "
                    f"declare them with --schema; if it says whose each sample is, call it {OWNERS}"
                )
                raise DataError(
                    f"{path} has a value {wrong}",
                    f"{path}: {row_text(number, has_header)} has '{shown(value)}' {wrong}",
                ) from None
            for column, read in zip(columns, texts, strict=True):
                read.append(row[column].strip())
        table = np.asarray(values).reshape(len(texts[0]), len(chosen))
        found = Table(path, table, *map(_typed, texts))
        found.has_header, found.feature_names = has_header, tuple(wanted) if has_header else None
        return found


def csv_names(path: Path) -> list[str]:
    """Return the names of all columns."""
    with _separated(path) as (names, *_):
        return names


def csv_columns(path: Path, wanted: Mapping[str, Kind]) -> Apart:
    """Read columns; of numbers, those are NaN that are missing."""
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
    known: dict[str, str] = {}
    with _separated(path) as (names, rows, has_header):
        places, done = {name: k for k, name in enumerate(names)}, 0
        while block := list(islice(rows, ROWS_AT_ONCE)):
            numbers = np.arange(done, done + len(block))
            done += len(block)
            for name, kind in wanted.items():
                place = places[name]
                # Of what occurs often, such as the name of a category, one copy is enough.
                texts = [
                    row[place] if kind == "numbers" else _one(known, row[place].strip()) for row in block
                ]
                values = np.array([*texts, None], dtype=object)[:-1]
                cells = Cells(path, name, numbers, values, has_header)
                parts[name].append(cells.numbers() if kind == "numbers" else values)
        if done == 0:
            raise InputError(f"{path} is empty: it has no rows but the first line")
        columns = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        names_of = {name: _typed(columns[name].tolist()) for name, kind in wanted.items() if kind == "names"}
        found = Apart(path, columns | names_of)
        found.has_header = has_header
        return found


def _one(known: dict[str, str], text: str) -> str:
    return known.setdefault(text, text)


@contextmanager
def _separated(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]], bool]]:
    """Give the names of the columns of a CSV file, its rows, and whether a row has these names."""
    with reading(path), io.TextIOWrapper(_opened(path), encoding="utf-8-sig", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        rows = csv.reader(chain([first], lines), delimiter=max(DELIMITERS, key=first.count), strict=True)
        names = [name.strip() for name in next(rows, [])]
        body, has_header = chain([], rows), not _are_numbers(names)
        if not has_header:
            names, body = [str(k) for k in range(len(names))], chain([names], rows)
        if len(set(names)) < len(names):
            raise InputError(f"{path}: two columns have the same name")

        def checked() -> Iterator[list[str]]:
            for number, row in enumerate(filter(None, body)):
                if len(row) != len(names):
                    place = row_text(number, has_header)
                    raise DataError(
                        f"{path}: a row has more or fewer values than the first",
                        f"{path}: {place} has {len(row)} values, and the first {len(names)}",
                    )
                yield row

        yield names, checked(), has_header


class _Bounded(io.RawIOBase):
    """The bytes of a file, unpacked if its name says that it is packed, as long as they fit into memory."""

    def __init__(self, path: Path) -> None:
        packed = path.suffix.lower() == ".gz"
        self._path, self._file = path, gzip.GzipFile(path, "rb") if packed else path.open("rb")
        most = max(SURELY_LARGE, MOST_FOLD * os.path.getsize(path))
        # Before a line is looked at, which takes a hundred times as long as to unpack it.
        if packed and self._file.seek(most + 1) > most:
            raise InputError(
                f"{path} unpacks to over {MOST_FOLD} times its size; if that is meant, unpack it first"
            )
        self._file.seek(0)
        self._done = self._line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        before, self._done = self._done, self._done + count
        content = bytes(buffer[:count])
        end = max(content.rfind(b"\n"), content.rfind(b"\r"))
        self._line = count - end - 1 + (self._line if end < 0 else 0)
        if self._line > MOST_BYTES_A_LINE:
            raise InputError(f"{self._path} has a line of more than {MOST_BYTES_A_LINE} bytes")
        if self._done // PART_BYTES > before // PART_BYTES:
            check_room(self._path, MEMORY_A_BYTE * PART_BYTES)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(path: Path) -> io.BufferedReader:
    return io.BufferedReader(_Bounded(path), 1 << 20)


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return bool([float(text) for text in texts])
    except ValueError:
        return False


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Return whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    try:
        # Python takes 1_2 for 12, which to anyone else is a name.
        if not any("_" in value for value in values):
            return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        pass
    return np.array([*values, None], dtype=object)[:-1]


def read_npz(path: Path, features: str | None, labels: str | None) -> Table:
    """Read arrays of these names, or of the usual ones; one of the name ``machine`` holds owners."""
    with reading(path), zipfile.ZipFile(path) as archive:
        there = [name.removesuffix(".npy") for name in archive.namelist()]
        names = [find_name(path, there, features, "features"), find_name(path, there, labels, "labels")]
        names += [OWNERS] if OWNERS in there else []
        check_apart(path, names[:1], names[1:])
        headers = [_header(path, archive, name) for name in names]
        # Before memory is taken: an archive of a few bytes may promise, and hold, as many as it likes.
        for header, what in zip(headers[1:], ("labels", "owners"), strict=False):
            checked_size(path, headers[0].shape, header.shape, what)
        check_room(path, sum(header.size for header in headers))
        return Table(path, *(_array(archive, header) for header in headers))


def npz_names(path: Path, beside: bool = False) -> list[str]:
    """Return the names of all columns, or of those that may stand beside features without names."""
    with reading(path), zipfile.ZipFile(path) as archive:
        headers, fields = _layout(path, archive, beside)
        if headers is None:
            return Numbered(read_npz(path, None, None), 0).names
        return list(fields or headers)


def npz_columns(path: Path, wanted: Mapping[str, Kind], beside: bool = False) -> Columns:
    """Read the fields of one array, arrays of one axis, or features with their labels."""
    with reading(path), zipfile.ZipFile(path) as archive:
        headers, fields = _layout(path, archive, beside)
        if headers is None:
            return Numbered(read_npz(path, None, None), 0)
        needed = headers if fields else {name: headers[name] for name in wanted}
        check_room(path, sum(header.size for header in needed.values()))
        arrays = {name: _array(archive, header) for name, header in needed.items()}
        return Together(path, next(iter(arrays.values())), wanted) if fields else Apart(path, arrays)


def _layout(
    path: Path, archive: zipfile.ZipFile, beside: bool
) -> "tuple[dict[str, _Header] | None, tuple[str, ...]]":
    """Return the arrays of an archive, and the fields of the only one; None if features have no names.

    Of what is `beside` these features, it returns the arrays, too.
    """
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    headers = {name: _header(path, archive, name) for name in names}
    if not beside and any(len(headers[name].shape) > 1 for name in USUAL["features"] if name in headers):
        return None, ()
    if not headers:
        raise InputError(f"{path} is empty: it has no arrays")
    only = next(iter(headers.values()))
    return headers, tuple(only.dtype.names or ()) if len(headers) == 1 and len(only.shape) == 1 else ()


class _Header(NamedTuple):
    """What an array in an archive is, by its first bytes."""

    member: zipfile.ZipInfo
    start: int  # where its numbers begin
    size: int  # how many bytes they are
    shape: tuple[int, ...]
    in_columns: bool
    dtype: np.dtype[Any]


def _header(path: Path, archive: zipfile.ZipFile, name: str) -> _Header:
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        beginning = io.BytesIO(file.read(HEADER_BYTES))
    version = np.lib.format.read_magic(beginning)
    read_header = getattr(np.lib.format, "read_array_header_{}_{}".format(*version), None)
    if read_header is None:
        raise InputError(f"{path}: {name} has version {version} of numpy's format; only 1 and 2 are read")
    with warnings.catch_warnings(action="ignore"):
        shape, in_columns, dtype = read_header(beginning)
    if dtype.hasobject:
        raise InputError(f"{path}: {name} holds Python objects; store numbers or text")
    start, size = beginning.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != member.file_size - start:
        raise InputError(f"{path}: {name} is not as large as its shape {shape} says")
    return _Header(member, start, size, shape, in_columns, dtype)


def _array(archive: zipfile.ZipFile, header: _Header) -> NDArray[np.generic]:
    content = bytearray(header.size)
    file: Any
    with archive.open(header.member) as file:
        file.read(header.start)
        place = memoryview(content)
        while count := file.readinto(place[:PART_BYTES]):
            place = place[count:]
    if place:
        raise EOFError("it ends too early")
    return np.frombuffer(content, header.dtype).reshape(header.shape, order="F" if header.in_columns else "C")


def read_svm(path: Path, dimension: int | None) -> Table:
    """Read lines such as ``1 3:0.5 7:1``; by default, there are as many features as occur."""
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise InputError(
            f'{path} is read by scikit-learn, which is missing: pip install "mu2mpi[digits]"'
        ) from None
    with reading(path), _opened(path) as lines:
        features, labels = load_svmlight_file(lines, n_features=dimension)
        if features.shape[1] > MOST_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path} numbers features beyond 1 .. {MOST_FEATURES}")
        if dimension is None and features.nnz == 0:
            raise InputError(f"{path} has no features")
        return Table(path, features, np.asarray(labels))
