"""Atomic writes, file identities, temporary files and readability checks."""

import os
import signal
from contextlib import closing

import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import (
    FileLock,
    check_readable,
    file_identity,
    link_or_copy,
    remove_stale_temporaries,
    temporary_path,
    write_atomically,
)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def chunks():
        yield b"new"
        raise KeyboardInterrupt

    target = tmp_path / "folder" / "file"
    target.parent.mkdir()
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, chunks())
    assert list(target.parent.iterdir()) == []
    write_atomically(target, [b"old"])
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, chunks())
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"old"]


def test_a_file_is_replaced_atomically_through_its_link_or_kept(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    link.symlink_to(path)
    before = file_identity(path)
    with pytest.raises(FileExistsError):
        write_atomically(link, [b"new"], replace=False)
    assert (path.read_bytes(), file_identity(path)) == (b"old", before)
    with open(path, "rb") as opened:
        write_atomically(link, [b"new", memoryview(b"er")], mode=0o600)
        assert opened.read() == b"old"
    assert (path.read_bytes(), link.is_symlink(), path.stat().st_mode & 0o777) == (b"newer", True, 0o600)
    assert file_identity(path) == file_identity(link) != before
    assert file_identity(tmp_path / "absent") is None


@pytest.mark.parametrize("has_links", [True, False])
def test_a_link_keeps_the_content_when_the_file_is_replaced(tmp_path, monkeypatch, has_links):
    path, link = tmp_path / "file", tmp_path / "file.previous"
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links")))
    for content in (b"1", b"2"):
        write_atomically(path, [content], mode=0o600)
        link_or_copy(path, link)
    write_atomically(path, [b"3"])
    assert (path.read_bytes(), link.read_bytes(), link.stat().st_mode & 0o777) == (b"3", b"2", 0o600)
    assert len(list(tmp_path.iterdir())) == 2


def test_stale_temporaries_are_those_of_the_target_and_of_longer_names(tmp_path):
    kept = [".b.h5.12-0123abcd.tmp", ".a.h5.12-xyz.tmp", "a.h5", ".a.h5.tmp"]
    for name in (*kept, ".a.h5.12-0123abcd.tmp", ".a.h5.checkpoint.7-89abcdef.tmp"):
        (tmp_path / name).touch()
    with temporary_path(tmp_path / "a.h5") as temporary:
        temporary.touch()
        remove_stale_temporaries(tmp_path / "a.h5")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_only_regular_files_are_readable(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    check_readable(tmp_path / "link")
    for name in ("pipe", "absent", "zero\0byte"):
        with pytest.raises(InputError, match="cannot read"):
            check_readable(tmp_path / name)


def test_a_lock_ends_when_it_is_closed_and_when_its_process_is_killed(tmp_path):
    first, second = FileLock(tmp_path / "new" / "a.h5"), FileLock(tmp_path / "new" / "a.h5")
    for owner, other in ((first, second), (second, first)):
        owner.acquire()
        owner.acquire()
        with pytest.raises(BlockingIOError):
            other.acquire()
        other.close()
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.h5.lock"]
        owner.close()
        assert list((tmp_path / "new").iterdir()) == []
    child = os.fork()
    if child == 0:
        first.acquire()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "new" / "a.h5.lock").exists()
    with closing(second):
        second.acquire()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_lock_on_a_file_that_was_just_removed_is_taken_again(tmp_path, monkeypatch):
    """The last owner removes it after the next has opened it: a third would else lock another file."""
    first, second, third = (FileLock(tmp_path / "a.h5") for _ in range(3))
    first.acquire()
    opened = os.open

    def released_meanwhile(*arguments):
        descriptor = opened(*arguments)
        monkeypatch.undo()
        first.close()
        return descriptor

    monkeypatch.setattr(os, "open", released_meanwhile)
    with closing(second):
        second.acquire()
        with pytest.raises(BlockingIOError):
            third.acquire()
    assert list(tmp_path.iterdir()) == []
