"""Files that another program has locked, as HDF5 does while it writes, and file systems without locks."""

import fcntl
import json
import sys
from contextlib import ExitStack
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.launch import run_command
from helpers.slow import slow

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
    assert "HDF5_USE_FILE_LOCKING=FALSE" in capsys.readouterr().err


FORBID_LOCKS = Path(__file__).parents[1] / "helpers" / "forbid_locks.py"


def without_locks(error, *commands, **variables):
    """Run commands where a lock is this error."""
    words = [[str(word) for word in command] for command in commands]
    return run_command([sys.executable, FORBID_LOCKS, error, json.dumps(words)], 60, variables)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return files with data: with numbers and with texts as labels."""
    folder = tmp_path_factory.mktemp("data")
    plain, texts = folder / "plain.h5", folder / "texts.h5"
    with h5py.File(plain, "w") as file:
        file["features"], file["labels"] = np.linspace(-1, 1, 400).reshape(100, 4), [0, 1] * 50
    with h5py.File(texts, "w") as file:
        file["features"], file["labels"] = np.linspace(-1, 1, 400).reshape(100, 4), ["no", "yes"] * 50
    return plain, texts


@pytest.mark.slow
@pytest.mark.parametrize("error", ["ENOLCK", *slow("ENOSYS", "EOPNOTSUPP")])
def test_nobody_need_know_of_locks_where_there_are_none(error, data, tmp_path):
    output = tmp_path / "a.h5"
    run = ["run", "--data", data[0], "--machines", "2", "--rounds", "5", "--output", output]
    results = ["show", output], ["table", output]
    done = without_locks(error, *(["data", file] for file in data), run, [*run, "--overwrite"], *results)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("wish", ["TRUE", *slow("BEST_EFFORT")])
def test_who_insists_on_locks_is_told_where_there_are_none(wish, data, result, tmp_path):
    write_result(result, tmp_path / "a.h5")
    commands = ["show", tmp_path / "a.h5"], ["data", data[0]]
    done = without_locks("ENOLCK", *commands, HDF5_USE_FILE_LOCKING=wish)
    assert done.returncode == 2
    for _, file in commands:
        assert f"error: {file} is on a file system without locks" in done.stderr
    assert done.stderr.count(f"HDF5_USE_FILE_LOCKING={wish} requires. Unset it") == 2
