"""What looks like data and is none: missing labels, names that nothing can hold, holes, bombs and pipes."""

import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.column_values import MISSING_MARKERS
from mu2mpi.execution.plan import open_source

ROWS, BAD = 40, 17
X = np.random.default_rng(2).integers(-8, 9, (ROWS, 3)).astype(np.float32) / 8
Y = np.arange(ROWS) % 3
NAMES = [("no", "perhaps", "yes")[k] for k in Y]
FORMATS = ("csv", "npz", "h5")
ROW = {"csv": f"row {BAD + 2} ", **dict.fromkeys(("npz", "h5"), f"row {BAD + 1} ")}
"""Where the bad name is, as a spreadsheet would number the row."""


def having(name):
    """Return good names but for one."""
    return [*NAMES[:BAD], name, *NAMES[BAD + 1 :]]


def written(folder, kind, labels=NAMES, owners=None):
    path = folder / f"a.{kind}"
    columns = {"label": labels} if owners is None else {"label": labels, "machine": owners}
    if kind == "csv":
        lines = [",".join(["a", "b", "c", *columns])]
        for row, *names in zip(X.tolist(), *columns.values(), strict=True):
            lines.append(",".join([*map(str, row), *('"' + name + '"' for name in names)]))
        path.write_text("\n".join(lines), newline="")
    elif kind == "npz":
        np.savez(path, X=X, **{name: np.array(column) for name, column in columns.items()})
    else:
        with h5py.File(path, "w") as file:
            file["X"] = X
            for name, column in columns.items():
                file[name] = np.array([text.encode() for text in column], h5py.string_dtype("utf-8", 9))
    return path


def opened(path, **settings):
    """Open a public file and read it once, as a run does before anything is sent."""
    source = open_source(Experiment(data=str(path), data_is_public=True, **settings))
    assert source.digest
    return source


def refused(path, *words, **settings):
    with pytest.raises(InputError) as caught:
        opened(path, **settings)
    assert all(word in str(caught.value) for word in (str(path), *words)), caught.value
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("column", ["label", "owner"])
@pytest.mark.parametrize("kind", FORMATS)
def test_names_that_no_result_or_terminal_takes_or_that_are_missing(tmp_path, kind, column):
    bad = "a\0b", "a\x1b[2J", "a\nb", "a\x85b", "", " ", "NA", *["a\ud800b"] * (kind == "npz")
    for k, name in enumerate(bad):
        names, folder = having(name), tmp_path / str(k)
        folder.mkdir()
        path = written(folder, kind, *((names,) if column == "label" else (NAMES, names)))
        refused(path, ROW[kind], column)
        if name == "NA":
            source = opened(path, missing_labels="keep")
            assert "NA" in (source.class_names if column == "label" else source.training_owners())
        else:
            refused(path, ROW[kind], column, missing_labels="keep")


def test_whatever_says_that_a_label_is_missing_is_no_class(tmp_path):
    for name in sorted(MISSING_MARKERS):
        for shown in {name, name.upper(), name.title()}:
            refused(written(tmp_path, "csv", having(shown)), ROW["csv"])
    refused(written(tmp_path, "csv", [*map(str, Y[:BAD]), "NA", *map(str, Y[BAD + 1 :])]), ROW["csv"])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_feature_is_not_the_label_nor_the_owner_and_is_named_once(tmp_path, kind):
    path = written(tmp_path, kind, [*map(str, Y)], [*map(str, Y)])
    for features in ("a,b,label", "a,b,machine", "a,b,a") if kind == "csv" else ("label", "machine"):
        refused(path, "twice", features=features)
    assert kind != "csv" or opened(path, features="a,c").dimension == 2


def with_features(path, make):
    with h5py.File(path, "w") as file:
        file["labels"] = Y
        make(file)
    return path


def in_chunks(file):
    file.create_dataset("features", X.shape, "f4", chunks=(10, 3))[10:20] = 1


def virtual(file):
    layout = h5py.VirtualLayout(X.shape, np.float32)
    layout[:] = h5py.VirtualSource("pipe", "X", X.shape)
    file.create_virtual_dataset("features", layout)


def behind_a_link(file):
    file["a/pipe"] = h5py.ExternalLink("pipe", "/")
    file["features"] = h5py.SoftLink("/a/pipe/X")


ELSEWHERE = {
    "chunks that were never written": in_chunks,
    "a virtual dataset": virtual,
    "a link to another file": lambda file: file.__setitem__("features", h5py.ExternalLink("pipe", "/X")),
    "a link to a link to another file": behind_a_link,
    "owners in another file": lambda file: file.__setitem__("machine", h5py.ExternalLink("pipe", "/X")),
    "raw data": lambda file: file.create_dataset("features", X.shape, "f4", external=[("raw", 0, X.nbytes)]),
    "owners in groups": lambda file: file.__setitem__("machine/a/X", X),
}


@pytest.mark.parametrize("kind", ELSEWHERE)
def test_hdf5_that_lies_elsewhere_or_nowhere(tmp_path, monkeypatch, kind):
    """HDF5 itself gives zeros for some of these, and waits for the pipe in others."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("raw").write_bytes(X.tobytes())
    refused(with_features(tmp_path / "a.h5", ELSEWHERE[kind]))


def test_a_row_of_chunks_that_memory_cannot_hold(tmp_path):
    rows, columns = 2**14, 2**13
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["labels"] = np.arange(rows) % 2
        made = file.create_dataset("features", (rows, 10**7), "f8", chunks=(rows, columns), compression=1)
        for column in range(0, 10**7, columns):
            made.id.write_direct_chunk((0, column), b"packed")
    refused(tmp_path / "a.h5", "GiB")


@pytest.mark.parametrize("shape", [(10**12, 3), (2**31, 784), (0, 5), (ROWS, 2), (-ROWS, -1)])
def test_an_archive_that_promises_too_much(tmp_path, shape):
    """It may say so in the header of the array, in that of the archive, or in both."""
    for size in (0, 10**13):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
            for name, of in (("X", shape), ("y", (ROWS,))):
                with file.open(f"{name}.npy", "w") as member:
                    header = {"descr": "<f4", "fortran_order": False, "shape": of}
                    np.lib.format.write_array_header_1_0(member, header)
                    member.write(bytes(100))
            file.getinfo("X.npy").file_size += size
        refused(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.csv", "a.svm"])
def test_a_text_larger_than_memory(tmp_path, name):
    with open(tmp_path / name, "wb") as file:
        file.truncate(1 << 42)
    refused(tmp_path / name, "GiB")


@pytest.mark.parametrize("kind", ["pipe", "folder", "zero"])
def test_what_is_no_ordinary_file(tmp_path, kind):
    good = written(tmp_path, "csv")
    for suffix in ("h5", "npz", "csv", "csv.gz", "svm", "parquet"):
        path = tmp_path / f"b.{suffix}"
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "zero":
                path.symlink_to("/dev/zero")
        for settings in ({"data": str(path)}, {"data": str(good), "test": str(path)}):
            with pytest.raises(InputError, match=rf"b\.{suffix}"):
                open_source(Experiment(**settings))
