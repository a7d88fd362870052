"""Data in memory: arrays and data frames that a Python program passes in place of data files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.column_values import object_array
from mu2mpi.data.formats.format import MEMORY, DataFile, Table, ValueType, check_distinct_names
from mu2mpi.data.redaction import safe_text, to_nfc
from mu2mpi.data.table_schema import Schema, read_schema, validate_schema

if TYPE_CHECKING:  # listing sources must not import MPI
    from mu2mpi.core.parallel import Communicator

# Where data are: in memory, or in a folder of data sets, which is None for the default folder
DataLocation: TypeAlias = "MemoryData | Path | None"


class MemoryFile(DataFile):
    """Pair (features, labels) of arrays, data frame, or mapping of columns, read like a data file."""

    def __init__(self, path: Path, data: Any) -> None:
        super().__init__(path)
        features, *labels = data if isinstance(data, tuple) else (data,)
        self._is_pair = bool(labels)
        self.is_table = isinstance(features, Mapping) or hasattr(features, "columns")
        if len(labels) > 1 or not (labels or self.is_table):
            raise InputError(f"{path} must be a pair (X, y), a data frame, or a mapping of columns")
        names: Any = getattr(features, "columns", features) if self.is_table else ()
        columns = [(name, features[name]) for name in names] + [("label", y) for y in labels]
        check_distinct_names(path, [to_nfc(str(name)) for name, _ in columns])
        self._arrays = {to_nfc(str(name)): _column_array(path, name, values) for name, values in columns}
        if not self.is_table:
            self._arrays["features"] = _dense_array(path, "features", features)
        elif len(set(map(len, self._arrays.values()))) > 1:
            raise InputError(f"{path} has columns of different lengths")
        self.array_names = list(self._arrays)

    def table(self, features: str | None, labels: str | None) -> Table:
        """Columns or arrays without a schema; the label of a pair (X, y) is y, whatever columns X has."""
        if self._is_pair and labels not in (None, "label"):
            raise InputError(f"{self.path}: the label of a pair (X, y) is y. Drop target, or pass a table.")
        return super().table(features, "label" if self._is_pair else labels)

    def arrays(self, wanted_arrays: Mapping[str, ValueType]) -> dict[str, NDArray[Any]]:
        """Arrays by name; in a table of columns, those wanted as numbers are float64."""
        arrays = {name: self._arrays[name] for name in wanted_arrays}
        for name, array in arrays.items() if self.is_table else ():
            if wanted_arrays[name] == "numbers":
                arrays[name] = self.column_values(name, np.arange(len(array)), array).to_numbers()
        return arrays


@dataclass(frozen=True)
class MemoryData:
    """Data sets in memory of a run or sweep, with the schema and the settings that go with them."""

    files: Mapping[str, MemoryFile] = field(default_factory=dict)  # by split: training, test
    schema: Schema | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # settings that select these data, by name

    @classmethod
    def share(cls, communicator: Communicator, data: Any, target: Any, schema: Any, test: Any) -> MemoryData:
        """Broadcast the data that rank 0 passes to `run`; InputError on every rank if they are unusable."""
        memory = cls()
        with communicator.collective_errors():
            if communicator.rank == 0:
                memory = cls._from_arguments(data, target, schema, test)
        shared: MemoryData = communicator.bcast_object(memory)
        return shared

    @classmethod
    def _from_arguments(cls, data: Any, target: Any, schema: Any, test: Any) -> MemoryData:
        if data is None:
            if any(argument is not None for argument in (target, schema, test)):
                raise InputError("target, schema and test belong to data in memory. Pass data, too.")
            return cls()
        files, settings = {"training": MemoryFile(Path(MEMORY), data)}, {"data": MEMORY}
        if test is not None:
            files["test"], settings["test"] = MemoryFile(Path("test data in memory"), test), MEMORY
        if schema is not None:
            settings["schema"] = MEMORY
            is_mapping = isinstance(schema, Mapping)
            schema = validate_schema(schema, "schema") if is_mapping else read_schema(Path(schema))
        if target is not None and (schema is None or to_nfc(str(target)) != schema.label[0]):
            settings["labels"] = str(target)
        return cls(files, schema, settings)

    def location(self, data_dir: Path | str | None) -> DataLocation:
        """Location of the data of a run: these data in memory, or else a folder of data sets."""
        return self if self.files else None if data_dir is None else Path(data_dir)


def _dense_array(path: Path, name: object, values: Any) -> NDArray[Any]:
    """Return values as an array; InputError if they are a sparse matrix or partly masked."""
    if hasattr(type(values), "tocsr"):
        raise InputError(f"{path}: {safe_text(name)} is a sparse matrix. Pass its toarray().")
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise InputError(f"{path}: {safe_text(name)} has masked values. Fill or remove them.")
    return np.asarray(values)


def _column_array(path: Path, name: object, values: Any) -> NDArray[Any]:
    """Return a column as an array of numbers or bytes, or of objects that are text or None."""
    array = np.atleast_1d(_dense_array(path, name, values))
    if array.ndim != 1 and array.shape[1:] != (1,):
        raise InputError(f"{path}: {safe_text(name)} must have one axis, got the shape {array.shape}")
    if array.dtype.kind in "biufS":
        return array.reshape(-1)
    # Missing values of pandas become texts such as "nan" and "<NA>", which stand for missing values in files.
    return object_array([None if value is None else str(value) for value in array.reshape(-1).tolist()])
