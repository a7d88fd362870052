"""A table with everything that columns may hold, a schema for it, and files of every format that hold it."""

import gzip
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.source import DataSource
from mu2mpi.execution.plan import open_source

SCHEMA = """
[columns.age]
type = "numeric"
low = 18
high = 90.5
[columns.sex]
type = "categorical"
categories = ["f", "m", "x"]
[columns.stage]
type = "ordinal"
categories = [1, 2, 3, 4]
[columns.smoker]
type = "boolean"
[columns.note]
type = "ignored"
[columns.outcome]
type = "label"
classes = ["no", "yes"]
[columns.clinic]
type = "owner"
"""

FEATURES = ("age", "sex = f", "sex = m", "sex = x", "stage", "smoker")


def table(rows: int, seed: int = 0, flawed: bool = True) -> pd.DataFrame:
    """Make up a table, with values that are missing or outside of what is declared if it is to be flawed."""
    random = np.random.default_rng(seed)
    age = random.integers(150, 950, rows) / 8 if flawed else random.integers(18, 90, rows) * 1.0
    sex = np.array(["f", "m", "x", "d", ""] if flawed else ["f", "m", "x"], dtype=object)
    stage = np.array([1, 2, 3, 4, 7, np.nan] if flawed else [1, 2, 3, 4], float)
    smoker = np.array(["yes", "no", "?", "maybe"] if flawed else ["yes", "no"], dtype=object)
    if flawed:
        age[random.random(rows) < 0.2] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "sex": random.choice(sex, rows),
            "stage": random.choice(stage, rows),
            "smoker": random.choice(smoker, rows),
            "note": [f"note {k}" for k in range(rows)],
            "outcome": random.choice(np.array(["no", "yes"], dtype=object), rows),
            "clinic": random.integers(1, 12, rows),
        }
    )


def expected(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of such a table, computed one value at a time."""
    rows = []
    for row in frame.itertuples():
        age = 0.0 if np.isnan(row.age) else (min(max(row.age, 18), 90.5) - 54.25) / 36.25
        sex = [float(row.sex == one) for one in "fmx"]
        stage = {1: -1, 2: -1 / 3, 3: 1 / 3, 4: 1}.get(row.stage, 0.0)
        rows.append([age, *sex, stage, {"yes": 1.0, "no": -1.0}.get(row.smoker, 0.0)])
    return np.array(rows, np.float32).reshape(len(frame), 6), (frame.outcome == "yes").to_numpy(np.int32)


def fixed(frame: pd.DataFrame) -> np.ndarray:
    """Return a structured array of a table, with bytes for text."""
    columns = [frame[n].to_numpy() for n in frame]
    columns = [np.array(c, "S9") if c.dtype.kind in "OU" or c.dtype == "str" else c for c in columns]
    found = np.empty(len(frame), [(name, c.dtype) for name, c in zip(frame, columns, strict=True)])
    for name, column in zip(frame, columns, strict=True):
        found[name] = column
    return found


def written(folder: Path, name: str, frame: pd.DataFrame) -> Path:
    """Write a table in one of the formats and return its path."""
    path, array = folder / name, fixed(frame)
    match name.split("."):
        case [_, "csv"]:
            frame.to_csv(path, index=False)
        case ["packed", "csv", "gz"]:
            path.write_bytes(gzip.compress(frame.to_csv(index=False, sep=";").encode()))
        case [_, "parquet"]:
            frame.to_parquet(path, index=False, row_group_size=max(1, len(frame) // 3))
        case ["columns", "npz"]:
            np.savez(
                path, **{n: array[n].astype("U") if array[n].dtype.kind == "S" else array[n] for n in frame}
            )
        case ["columns", "h5"]:
            with h5py.File(path, "w") as file:
                for n in frame:
                    file[n] = array[n]
        case ["group", "h5"]:
            with h5py.File(path, "w") as file:
                for n in frame:
                    texts = array[n].dtype.kind == "S"
                    values = [v.decode() for v in array[n]] if texts else array[n]
                    kind = h5py.string_dtype() if texts else None
                    file.create_dataset(f"some/table/{n}", data=values, dtype=kind)
    return path


FORMATS = (
    "a.csv", "packed.csv.gz", "a.parquet", "columns.npz", "columns.h5", "group.h5",
)  # fmt: skip


def opened(path: Path, schema: Path, loss: str = "softmax", **settings: object) -> DataSource:
    """Open a table with the columns of a schema file."""
    return open_source(Experiment(data=str(path), schema=str(schema), loss=loss, **settings))
