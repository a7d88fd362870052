"""A checkpoint comes back as it was written, with all that the server's next step depends on."""

import os
import re
from dataclasses import fields, replace

import h5py
import numpy as np
import pytest
from sealing import editing

from mu2mpi.errors import InputError
from mu2mpi.results.checkpoint import (
    CHECKPOINT_SCHEMA,
    read_checkpoint,
    read_last_whole_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from mu2mpi.results.schema import Checkpoint, History, checkpoint_path, previous_path


@pytest.fixture
def checkpoint(build_result):
    result = build_result(seed=None)
    draw = np.random.default_rng(1)
    return Checkpoint(
        experiment=result.experiment.having(rounds=9),
        rounds_done=5,
        key=bytes(range(32)),
        iterates={name: draw.normal(size=(3, 5)) for name in ("w", "x", "previous")},
        q=draw.integers(-9, 9, (3, 5)),
        history=result.history,
        elapsed_seconds=1.5,
        largest_squared_norm=2.25,
        clipped=7,
        class_counts=draw.integers(0, 9, (2, 3)),
        privacy=result.privacy,
        builds=("one", "two"),
        data=bytes(range(32, 64)),
    )


def test_round_trip(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    write_checkpoint(checkpoint, path)
    back = read_checkpoint(path)
    for field in fields(Checkpoint):
        if field.name in ("iterates", "history", "q", "class_counts"):
            continue
        assert getattr(back, field.name) == getattr(checkpoint, field.name), field.name
    arrays = [(back.q, checkpoint.q), (back.class_counts, checkpoint.class_counts)]
    arrays += [(back.iterates[name], checkpoint.iterates[name]) for name in checkpoint.iterates]
    arrays += [(getattr(back.history, n), getattr(checkpoint.history, n)) for n in History.columns()]
    for ours, theirs in arrays:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert set(back.iterates) == set(checkpoint.iterates)
    with h5py.File(path) as file:
        assert set(file["iterates"]) == {"w", "x", "previous"}
        assert dict(file["privacy"].attrs) == checkpoint.privacy.attributes()
    assert path.stat().st_mode & 0o777 == 0o600


def retyped(file, name, kind):
    values = file[f"history/{name}"][()].astype(kind)
    del file[f"history/{name}"]
    file[f"history/{name}"] = values


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda file: file.attrs.modify("schema", "mu2mpi-checkpoint-4"), f"this is '{CHECKPOINT_SCHEMA}'"),
        (lambda file: file.pop("iterates"), "damaged or incomplete"),
        (lambda file: file.pop("privacy"), "no group /privacy"),
        (lambda file: file["privacy"].attrs.pop("touched"), "lacks 'touched'"),
        (lambda file: file["privacy"].attrs.modify("mechanism", "magic"), "no 'magic' among the mechanisms"),
        (lambda file: file.attrs.__setitem__("rounds_done", -1), "rounds_done = -1 should be"),
        (lambda file: file.attrs.__setitem__("rounds_done", 1.5), r"rounds_done = 1\.5 should be"),
        (lambda file: file.attrs.__setitem__("rounds_done", 9), "should be less than 9 rounds"),
        (lambda file: file.attrs.__setitem__("rounds_done", 3), "history should rise, from 1 to 3 at most"),
        (lambda file: file["history/round"].write_direct(np.array([1, 3, 2, 4])), "history should rise"),
        (lambda file: file.attrs.__setitem__("clipped", True), "clipped = True should be"),
        (lambda file: file.attrs.__setitem__("clipped", "7"), "damaged or incomplete"),
        (lambda file: file.attrs.__setitem__("elapsed_seconds", np.nan), "elapsed_seconds = nan should be"),
        (
            lambda file: file.attrs.modify("largest_squared_norm", np.inf),
            "squared_norm = inf should be",
        ),
        (lambda file: file.attrs.__setitem__("key", "00" * 31), "no 32 bytes"),
        (lambda file: file.attrs.__setitem__("key", "key"), "damaged or incomplete"),
        (lambda file: file.attrs.pop("key"), "no 32 bytes"),
        (lambda file: file.attrs.__setitem__("data", "00"), "no 32 bytes"),
        (lambda file: retyped(file, "message_norm", "S3"), "columns of its history have other types"),
        (lambda file: retyped(file, "round", "f8"), "columns of its history have other types"),
        (
            lambda file: file.attrs.__setitem__("experiment", "rho = 'x'"),
            "rho = 'x' should be a",
        ),
    ],
)
def test_what_is_not_whole_is_refused(checkpoint, tmp_path, action, words):
    write_checkpoint(checkpoint, tmp_path / "a.checkpoint")
    with editing(tmp_path / "a.checkpoint") as file:
        action(file)
    with pytest.raises(InputError, match=rf"(?s)a\.checkpoint.*{words}"):
        read_checkpoint(tmp_path / "a.checkpoint")


@pytest.mark.parametrize("name", ["rounds_done", "clipped"])
def test_what_was_edited_is_refused_unless_it_is_sealed_again(checkpoint, tmp_path, name):
    path = tmp_path / "a.checkpoint"
    write_checkpoint(checkpoint, path)
    with editing(path, seal=False) as file:
        file.attrs[name] += 1
    with pytest.raises(InputError, match=r"does not match\); put a copy of it back, or remove it"):
        read_checkpoint(path)
    with editing(path) as file:
        file.attrs[name] += 1
    assert getattr(read_checkpoint(path), name) == getattr(checkpoint, name) + 2


def damage(path, how):
    content = path.read_bytes()
    path.unlink()
    changed = {
        "empty": b"",
        "cut": content[: len(content) // 2],
        "flipped": content[:-99] + b"?" + content[-98:],
    }[how]
    path.write_bytes(changed)


@pytest.mark.parametrize("how", ["empty", "cut", "flipped"])
def test_one_that_cannot_be_read_gives_way_to_the_one_before(checkpoint, tmp_path, how, capsys):
    path = checkpoint_path(tmp_path / "a.h5")
    for done in (4, 4, 5):
        write_checkpoint(replace(checkpoint, rounds_done=done), path)
    assert previous_path(path).stat().st_mode & 0o777 == 0o600
    assert read_last_whole_checkpoint(path).rounds_done == 5
    assert capsys.readouterr().err == ""
    damage(path, how)
    assert read_last_whole_checkpoint(path).rounds_done == 4
    words = f"{path} cannot be read .* the one before it takes its place, and rounds after 4 are"
    assert re.search(words, capsys.readouterr().err)
    # It is the last one now: what comes next is not written over the only one that is whole.
    assert read_checkpoint(path).rounds_done == 4
    assert not previous_path(path).exists()
    write_checkpoint(replace(checkpoint, rounds_done=5), path)
    assert [read_checkpoint(p).rounds_done for p in (previous_path(path), path)] == [4, 5]


def test_if_none_can_be_read_it_is_said_of_the_last(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    for _ in range(2):
        write_checkpoint(checkpoint, path)
    for each in (path, previous_path(path)):
        damage(each, "cut")
    with pytest.raises(InputError, match=rf"{path} is damaged"):
        read_last_whole_checkpoint(path)


def test_the_first_of_a_run_has_none_before_it(checkpoint, tmp_path):
    path = checkpoint_path(tmp_path / "a.h5")
    for _ in range(2):
        write_checkpoint(checkpoint, path)
    path.unlink()
    write_checkpoint(replace(checkpoint, key=bytes(32)), path, replace=False)
    assert not previous_path(path).exists()
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
    known = others | {path, previous_path(path)}
    assert {*tmp_path.iterdir()} - known
    if action == "claim":
        path.unlink()
        write_checkpoint(checkpoint, path, replace=False)
        known.remove(previous_path(path))
    elif action == "resume":
        read_last_whole_checkpoint(path)
    else:
        remove_checkpoint(path)
        known = others
    assert {*tmp_path.iterdir()} <= known


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_live_writer_outlasts_another_job_that_removes_its_file(checkpoint, tmp_path, call, monkeypatch):
    path, real, calls = checkpoint_path(tmp_path / "a.h5"), getattr(os, call), []
    write_checkpoint(checkpoint, path)

    def resumed_meanwhile(*arguments):
        if not calls:
            calls.append(call)
            before = {*tmp_path.iterdir()}
            assert read_last_whole_checkpoint(path).rounds_done == checkpoint.rounds_done
            assert len(before - {*tmp_path.iterdir()}) == 1
        return real(*arguments)

    monkeypatch.setattr(os, call, resumed_meanwhile)
    write_checkpoint(replace(checkpoint, rounds_done=6), path)
    assert calls == [call]
    assert [read_checkpoint(p).rounds_done for p in (previous_path(path), path)] == [5, 6]
    assert {*tmp_path.iterdir()} == {path, previous_path(path)}


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
    assert [read_checkpoint(p).rounds_done for p in (previous_path(path), path)] == [4, 5]
    assert previous_path(path).stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2
