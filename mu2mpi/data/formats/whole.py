"""Samples in files that are read whole: separated values, archives of numpy's, and the format of LIBSVM."""

import csv
import gzip
import math
import zipfile
from array import array
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.table import MOST_FEATURES, OWNERS, Table, find_name, reading
from mu2mpi.errors import InputError

DELIMITERS = ",;\t"


def read_csv(path: Path, features: str | None, labels: str | None) -> Table:
    """Read a file whose first line names its columns, or holds numbers; columns are then called 0, 1, ...

    Names of several features are separated by commas; by default, all columns are but those of labels and
    owners.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with reading(path), opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        rows = csv.reader(chain([first], lines), delimiter=max(DELIMITERS, key=first.count), strict=True)
        names = [name.strip() for name in next(rows, [])]
        body = chain([], rows)
        if _are_numbers(names):
            names, body = [str(k) for k in range(len(names))], chain([names], rows)
        if len(set(names)) < len(names):
            raise InputError(f"{path}: two columns have the same name")
        columns = [names.index(find_name(path, names, labels, "labels"))]
        columns += [names.index(OWNERS)] if OWNERS in names else []
        chosen = [k for k in range(len(names)) if k not in columns]
        if features is not None:
            wanted = [name.strip() for name in features.split(",")]
            chosen = [names.index(find_name(path, names, name, "features")) for name in wanted]
        values = array("d")
        texts: list[list[str]] = [[] for _ in columns]
        for row in filter(None, body):
            if len(row) != len(names):
                raise InputError(
                    f"{path}: line {rows.line_num} has {len(row)} values, and the first line {len(names)}"
                )
            try:
                values.extend([float(row[k]) for k in chosen])
            except ValueError:
                name, value = next((k, row[k]) for k in chosen if not _are_numbers([row[k]]))
                raise InputError(
                    f"{path}: line {rows.line_num} has {value!r} in column {name}, which is not a number; "
                    "choose the columns with --features"
                ) from None
            for column, found in zip(columns, texts, strict=True):
                found.append(row[column].strip())
        table = np.asarray(values).reshape(len(texts[0]), len(chosen))
        return Table(path, table, *map(_typed, texts))


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return bool([float(text) for text in texts])
    except ValueError:
        return False


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Return whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    try:
        return np.array([int(value) for value in values], np.int64)
    except (ValueError, OverflowError):
        return np.array(values, dtype=object)


def read_npz(path: Path, features: str | None, labels: str | None) -> Table:
    """Read arrays of these names, or of the usual ones; one of the name ``machine`` holds owners."""
    with reading(path), zipfile.ZipFile(path) as archive:
        there = [name.removesuffix(".npy") for name in archive.namelist()]
        names = [find_name(path, there, features, "features"), find_name(path, there, labels, "labels")]
        names += [OWNERS] if OWNERS in there else []
        return Table(path, *(_array(path, archive, name) for name in names))


def _array(path: Path, archive: zipfile.ZipFile, name: str) -> NDArray[np.generic]:
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = getattr(np.lib.format, "read_array_header_{}_{}".format(*version), None)
        if read_header is None:
            raise InputError(f"{path}: {name} has version {version} of numpy's format; only 1 and 2 are read")
        shape, in_columns, dtype = read_header(file)
        if dtype.hasobject:
            raise InputError(f"{path}: {name} holds Python objects; store numbers or text")
        # Before memory is taken for it: a damaged header may promise anything.
        if math.prod(shape) * dtype.itemsize != member.file_size - file.tell():
            raise InputError(f"{path}: {name} is not as large as its shape {shape} says")
        values = np.frombuffer(file.read(), dtype)
    return values.reshape(shape, order="F" if in_columns else "C")


def read_svm(path: Path, dimension: int | None) -> Table:
    """Read lines such as ``1 3:0.5 7:1``; by default, there are as many features as occur."""
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        raise InputError(
            f'{path} is read by scikit-learn, which is missing: pip install "mu2mpi[digits]"'
        ) from None
    with reading(path):
        features, labels = load_svmlight_file(path, n_features=dimension)
        if features.shape[1] > MOST_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path} numbers features beyond 1 .. {MOST_FEATURES}")
        if dimension is None and features.nnz == 0:
            raise InputError(f"{path} has no features")
        return Table(path, features, np.asarray(labels))
