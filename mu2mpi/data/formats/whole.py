"""Files that are read whole: separated values, LIBSVM's sparse format, and archives of numpy's."""

import csv
import gzip
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.core.memory import check_room
from mu2mpi.data.cells import Cells, number_in, objects
from mu2mpi.data.formats.table import MOST_FEATURES, OWNERS, File, Kind, Table, check_apart, find_name
from mu2mpi.data.telling import DataError, reading, row_text

# Cells that are turned into columns at once, and the memory that each may take meanwhile
BLOCK_CELLS, BYTES_A_CELL = 1 << 18, 100


class Csv(File):
    """A file whose first line names its columns, or holds numbers; columns are then called 0, 1, ...

    The standard library splits the lines: unlike pandas, it refuses rows that lack cells, and takes no
    seconds to be imported.
    """

    is_table = True

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        with self._rows() as rows:
            first = [name.strip() for name in next(rows, [])]
        self.has_header = not first or None in map(number_in, first)
        self.names = first if self.has_header else [str(k) for k in range(len(first))]
        if len(set(self.names)) < len(self.names):
            raise InputError(f"{path}: two columns have the same name")

    @contextmanager
    def _rows(self) -> Iterator[Iterator[list[str]]]:
        packed = self.path.suffix.lower() == ".gz"
        opened: Any = (gzip.open if packed else open)(self.path, "rb")
        with reading(self.path), io.TextIOWrapper(opened, encoding="utf-8-sig", newline="") as lines:
            first = next((line for line in lines if line.strip()), "")
            delimiter = max(",;\t", key=first.count)
            yield filter(None, csv.reader(chain([first], lines), delimiter=delimiter, strict=True))

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples whose features are all columns but labels and owners, or those named with commas."""
        others = [find_name(self.path, self.names, labels, "labels"), *({OWNERS} & {*self.names})]
        wanted = [name for name in self.names if name not in others]
        if features is not None:
            wanted = [
                find_name(self.path, self.names, name.strip(), "features") for name in features.split(",")
            ]
            check_apart(self.path, wanted, others)
        kinds: dict[str, Kind] = {**dict.fromkeys(wanted, "numbers"), **dict.fromkeys(others, "names")}
        arrays = self.arrays(kinds)
        matrix = np.column_stack([np.empty((len(arrays[others[0]]), 0)), *(arrays[name] for name in wanted)])
        found = Table(self.path, matrix, *(arrays[name] for name in others))
        found.has_header, found.feature_names = self.has_header, tuple(wanted) if self.has_header else None
        return found

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        """Return columns by name: numbers, NaN where one is missing, or texts as objects."""
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in wanted}
        known: dict[str, str] = {}
        done, width = 0, len(self.names)
        with self._rows() as lines:
            rows = islice(lines, int(self.has_header), None)
            while block := list(islice(rows, max(1, BLOCK_CELLS // max(1, width)))):
                check_room(self.path, BYTES_A_CELL * len(block) * width)
                for number, row in enumerate(block, done) if {*map(len, block)} != {width} else ():
                    if len(row) != width:
                        raise DataError(
                            f"{self.path}: a row has more or fewer values than the first",
                            f"{self.path}: {row_text(number, self.has_header)} has {len(row)} values, and "
                            f"the first {width}",
                        )
                numbers = np.arange(done, done + len(block))
                columns = dict(zip(self.names, zip(*block, strict=True), strict=True))
                done += len(block)
                for name, kind in wanted.items():
                    if kind == "numbers":
                        texts = objects(columns[name])
                        values = Cells(self.path, name, numbers, texts, self.has_header).numbers()
                    else:
                        # One copy of what occurs often, such as the name of a category, is enough.
                        values = objects([known.setdefault(t, t) for t in map(str.strip, columns[name])])
                    parts[name].append(values)
        if done == 0:
            raise InputError(f"{self.path} is empty: it has no rows but the first line")
        found = {name: np.concatenate(blocks) for name, blocks in parts.items()}
        return found | {n: _typed(found[n].tolist()) for n, kind in wanted.items() if kind == "names"}


def _typed(values: list[str]) -> NDArray[np.generic]:
    """Whole numbers as such, so that 1 and 01 are the same and 2 comes before 10, or else text."""
    with suppress(ValueError, OverflowError):
        # Python takes 1_2 for 12, which to anyone else is a name.
        if not any("_" in value for value in values):
            return np.array([int(value) for value in values], np.int64)
    return objects(values)


class Svm(File):
    """Lines such as ``1 3:0.5 7:1``, with as many features as occur, or as `dimension` if these are more."""

    names = ["features", "labels"]  # noqa: RUF012
    first = 1

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        try:
            from sklearn.datasets import load_svmlight_file
        except ImportError:
            raise InputError(
                f'{path} is read by scikit-learn, which is missing: pip install "mu2mpi[digits]"'
            ) from None
        packed = path.suffix.lower() == ".gz"
        with reading(path), (gzip.open if packed else open)(path, "rb") as lines:
            features, labels = load_svmlight_file(lines)
        if features.shape[1] > MOST_FEATURES or (features.nnz and features.indices.min() < 0):
            raise InputError(f"{path} numbers features beyond 1 .. {MOST_FEATURES}")
        if features.shape[1] < dimension:
            features.resize((features.shape[0], dimension))
        if dimension == 0 and features.nnz == 0:
            raise InputError(f"{path} has no features")
        self._arrays = {"features": features, "labels": np.asarray(labels)}

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, Any]:
        """Return the matrix of features, and the labels."""
        return {name: self._arrays[name] for name in wanted}

    def table(self, features: str | None, labels: str | None) -> Table:
        """Return samples; nothing in the file has a name."""
        if features is not None or labels is not None:
            raise InputError(
                f"{self.path} has no names of features and labels; leave out --features and --labels"
            )
        return super().table(None, None)


class Npz(File):
    """An archive, of which each array is read at its first use."""

    def __init__(self, path: Path, dimension: int = 0) -> None:
        super().__init__(path)
        self._read: dict[str, NDArray[Any]] = {}
        with reading(path), open(path, "rb") as file:
            self.names = list(np.load(file).files)

    def arrays(self, wanted: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        """Return arrays by name; no more is unpacked than the archive says that they take."""
        new = [name for name in wanted if name not in self._read]
        with reading(self.path), open(self.path, "rb") as file:
            archive: Any = np.load(file)
            check_room(self.path, sum(archive.zip.getinfo(f"{name}.npy").file_size for name in new))
            self._read |= {name: archive[name] for name in new}
        return {name: self._read[name] for name in wanted}
