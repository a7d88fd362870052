"""Files that another program has locked, as HDF5 does while it writes."""

import fcntl
from contextlib import ExitStack

import h5py
import pytest

from mu2mpi.cli import main
from mu2mpi.results.reader import read_result
from mu2mpi.results.writer import write_result


@pytest.fixture
def locked():
    """Return what locks a file as another program does, until the test ends."""
    with ExitStack() as files:

        def lock(path):
            file = files.enter_context(open(path, "rb+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

        yield lock


def test_a_locked_result_is_read_all_the_same(result, tmp_path, locked, same):
    write_result(result, tmp_path / "a.h5")
    locked(tmp_path / "a.h5")
    assert same(result, read_result(tmp_path / "a.h5"))


def test_locked_data_are_in_use(tmp_path, locked, capsys):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["features"], file["labels"] = [[0.5], [1.0]] * 20, [0, 1] * 20
    locked(path)
    assert main(["data", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path} is in use" in said
    assert "HDF5_USE_FILE_LOCKING=FALSE" in said
