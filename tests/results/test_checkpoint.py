"""A checkpoint comes back as it was written, with all that the server's next step depends on."""

import os
import random
from dataclasses import fields, replace
from uuid import UUID

import h5py
import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.results.checkpoint import (
    read_checkpoint,
    read_latest_valid_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from mu2mpi.results.records import Checkpoint, History, checkpoint_path, previous_checkpoint_path


@pytest.fixture
def checkpoint(build_result):
    result = build_result(seed=None)
    draw = np.random.default_rng(1)
    return Checkpoint(
        experiment=result.experiment.replace(rounds=9),
        rounds_done=5,
        root_key=bytes(range(32)),
        iterates={name: draw.normal(size=(3, 5)) for name in ("w", "x", "previous")},
        q=draw.integers(-9, 9, (3, 5)),
        last_messages=draw.integers(-9, 9, (2, 3, 5)),
        history=result.history,
        elapsed_seconds=1.5,
        largest_squared_norm=2.25,
        clipped=7,
        privacy=result.privacy,
        numeric_platforms=("one", "two"),
        data_digest=bytes(range(32, 64)),
    )


def assert_equal(back, checkpoint):
    for field in fields(Checkpoint):
        if field.name not in ("iterates", "history", "q", "last_messages"):
            assert getattr(back, field.name) == getattr(checkpoint, field.name), field.name
    arrays = [(back.q, checkpoint.q), (back.last_messages, checkpoint.last_messages)]
    arrays += [(back.iterates[name], checkpoint.iterates[name]) for name in checkpoint.iterates]
    arrays += [(getattr(back.history, n), getattr(checkpoint.history, n)) for n in History.column_names()]
    for ours, theirs in arrays:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert set(back.iterates) == set(checkpoint.iterates)


def test_round_trip(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(checkpoint, path)
    assert_equal(read_checkpoint(path), checkpoint)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_without_a_run_id_is_of_an_earlier_version(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(checkpoint, path)
    with h5py.File(path, "r+") as file:
        del file.attrs["run_id"]
    back = read_checkpoint(path)
    assert UUID(back.run_id).version == 4
    assert back.run_id != checkpoint.run_id
    assert_equal(replace(back, run_id=checkpoint.run_id), checkpoint)


@pytest.mark.parametrize(
    "action",
    [
        lambda file: file.attrs.modify("run_id", "7"),
        lambda file: file.attrs.modify("schema", "mu2mpi-checkpoint-4"),
        lambda file: file.pop("iterates"),
        lambda file: file.pop("last_messages"),
        lambda file: file.pop("privacy"),
        lambda file: file["privacy"].attrs.pop("affected_sums"),
        lambda file: file.attrs.__setitem__("rounds_done", -1),
        lambda file: file.attrs.__setitem__("rounds_done", 1.5),
        lambda file: file.attrs.__setitem__("rounds_done", 9),
        lambda file: file.attrs.__setitem__("rounds_done", 3),
        lambda file: file.attrs.__setitem__("clipped", "7"),
        lambda file: file.attrs.__setitem__("elapsed_seconds", np.nan),
        lambda file: file.attrs.__setitem__("key", "00" * 31),
        lambda file: file.attrs.pop("key"),
        lambda file: file.attrs.__setitem__("data_digest", "00"),
        lambda file: file.attrs.__setitem__("experiment", "rho = 'x'"),
    ],
)
def test_what_is_not_whole_is_refused(checkpoint, tmp_path, action):
    path = tmp_path / "a.checkpoint"
    write_checkpoint(checkpoint, path)
    with h5py.File(path, "r+") as file:
        action(file)
    with pytest.raises(InputError, match=str(path)):
        read_checkpoint(path)


def test_flipped_bytes_are_errors_or_change_nothing(checkpoint, tmp_path):
    path = tmp_path / "a.checkpoint"
    write_checkpoint(checkpoint, path)
    good, errors, start = path.read_bytes(), 0, random.randrange(97)
    for k in range(start, len(good), 97):
        damaged = bytearray(good)
        damaged[k] ^= 1 << k % 8
        path.write_bytes(damaged)
        try:
            assert_equal(read_checkpoint(path), checkpoint)
        except InputError:
            errors += 1
    assert errors > 9


def damage(path, how):
    content = path.read_bytes()
    path.unlink()
    changed = {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "flipped": content[:60] + bytes([content[60] ^ 1]) + content[61:],
    }[how]
    path.write_bytes(changed)


@pytest.mark.parametrize("how", ["empty", "cut", "flipped"])
def test_one_that_cannot_be_read_gives_way_to_the_one_before(checkpoint, tmp_path, how, capsys):
    path = checkpoint_path(tmp_path / "a.h5")
    for done in (4, 4, 5):
        write_checkpoint(replace(checkpoint, rounds_done=done), path)
    assert previous_checkpoint_path(path).stat().st_mode & 0o777 == 0o600
    assert read_latest_valid_checkpoint(path).rounds_done == 5
    assert capsys.readouterr().err == ""
    damage(path, how)
    assert read_latest_valid_checkpoint(path).rounds_done == 4
    assert str(path) in capsys.readouterr().err
    # It is the last one now: what comes next is not written over the only one that is whole.
    assert read_checkpoint(path).rounds_done == 4
    assert not previous_checkpoint_path(path).exists()
    write_checkpoint(replace(checkpoint, rounds_done=5), path)
    assert [read_checkpoint(p).rounds_done for p in (previous_checkpoint_path(path), path)] == [4, 5]


def test_the_first_of_a_run_has_none_before_it(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    for _ in range(2):
        write_checkpoint(checkpoint, path)
    path.unlink()
    write_checkpoint(replace(checkpoint, root_key=bytes(32)), path, replace=False)
    assert not previous_checkpoint_path(path).exists()
    write_checkpoint(checkpoint, path)
    remove_checkpoint(path)
    assert list(tmp_path.iterdir()) == []


def left_by_a_kill(checkpoint, path, call):
    """Write a checkpoint in a process that ends before a call on the file system."""
    child = os.fork()
    if child == 0:
        setattr(os, call, lambda *_: os._exit(9))
        write_checkpoint(checkpoint, path)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("action", ["claim", "resume", "remove"])
def test_what_a_killed_writer_left_is_removed(checkpoint, tmp_path, call, action):
    path = checkpoint_path(tmp_path / "a.h5")
    others = {tmp_path / ".a.h5.checkpoint.tmp", tmp_path / ".a.h5.1-0123abcd.tmp", tmp_path / "a.h5.1.tmp"}
    for other in others:
        other.touch()
    write_checkpoint(checkpoint, path)
    left_by_a_kill(checkpoint, path, call)
    known = others | {path, previous_checkpoint_path(path)}
    assert {*tmp_path.iterdir()} - known
    if action == "claim":
        path.unlink()
        write_checkpoint(checkpoint, path, replace=False)
        known.remove(previous_checkpoint_path(path))
    elif action == "resume":
        read_latest_valid_checkpoint(path)
    else:
        remove_checkpoint(path)
        known = others
    assert {*tmp_path.iterdir()} <= known


def test_of_two_claims_at_once_one_is_refused(checkpoint, tmp_path, monkeypatch):
    path, fsync = checkpoint_path(tmp_path / "a.h5"), os.fsync

    def claimed_meanwhile(handle):
        monkeypatch.setattr(os, "fsync", fsync)
        write_checkpoint(replace(checkpoint, rounds_done=4), path, replace=False)
        return fsync(handle)

    monkeypatch.setattr(os, "fsync", claimed_meanwhile)
    with pytest.raises(FileExistsError):
        write_checkpoint(checkpoint, path, replace=False)
    assert read_checkpoint(path).rounds_done == 4
    assert [*tmp_path.iterdir()] == [path]


def test_the_one_before_is_kept_where_files_have_one_name_only(checkpoint, tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError("Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    path = checkpoint_path(tmp_path / "a.h5")
    for done in (4, 5):
        write_checkpoint(replace(checkpoint, rounds_done=done), path)
    assert [read_checkpoint(p).rounds_done for p in (previous_checkpoint_path(path), path)] == [4, 5]
    assert previous_checkpoint_path(path).stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2
