"""Opening IDX files: damage of every kind, the cache of unpacked files, several processes at once."""

import gzip
import hashlib
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from mu2mpi import files
from mu2mpi.data.sources.mnist import IdxFile, open_idx
from mu2mpi.errors import InputError

ARRAY = np.random.default_rng(1).integers(0, 256, (30, 5, 4), dtype=np.uint8)
CONTENT = IdxFile("", ARRAY.shape, "").header + ARRAY.tobytes()
EXPECTED = IdxFile("some-idx3-ubyte", ARRAY.shape, hashlib.sha256(CONTENT).hexdigest())
TRANSPOSED = IdxFile("", (30, 4, 5), "").header + ARRAY.tobytes()


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def write(folder: Path, content: bytes, packed: bool) -> Path:
    path = folder / f"{EXPECTED.name}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


def unpacked() -> list[Path]:
    folder = files.cache_folder() / "unpacked"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def packed(request) -> bool:
    return request.param


@pytest.fixture(params=[False, True], ids=["unverified", "verified"])
def verify(request) -> bool:
    return request.param


def test_the_header_is_that_of_the_format():
    # From the description of the format: 0, 0, type 8, number of axes, then big-endian lengths.
    assert IdxFile("", (60_000, 28, 28), "").header.hex() == "00000803" + "0000ea60" + "0000001c" * 2
    assert IdxFile("", (60_000, 28, 28), "").size == 47_040_016


def test_a_good_file(tmp_path, packed, verify):
    path = write(tmp_path, CONTENT, packed)
    for _ in range(2):
        array = open_idx(path, EXPECTED, verify)
        np.testing.assert_array_equal(array, ARRAY)
        assert array.dtype == np.uint8
        assert not array.flags.writeable
        assert type(array) is np.ndarray
    assert len(unpacked()) == packed


@pytest.mark.parametrize(
    "content",
    [b"", CONTENT[:10], CONTENT[:-1], CONTENT + b"x", flip(CONTENT, 2), b"<html>Log in</html>", TRANSPOSED],
)
def test_wrong_content(tmp_path, packed, verify, content):
    path = write(tmp_path, content, packed)
    with pytest.raises(InputError, match=EXPECTED.name):
        open_idx(path, EXPECTED, verify)
    assert unpacked() == []


@pytest.mark.parametrize("position", [16, len(CONTENT) - 1])
def test_a_wrong_pixel_is_seen_by_the_checksum_alone(tmp_path, packed, position):
    path = write(tmp_path, flip(CONTENT, position), packed)
    with pytest.raises(InputError, match="checksum"):
        open_idx(path, EXPECTED, verify=True)
    assert unpacked() == []
    assert (open_idx(path, EXPECTED, verify=False) != ARRAY).sum() == 1
    with pytest.raises(InputError, match="checksum"):
        open_idx(path, EXPECTED, verify=True)


def test_any_damaged_byte_or_end_of_an_archive_is_seen(tmp_path):
    archive = gzip.compress(CONTENT, mtime=0)
    path = tmp_path / "some.gz"
    # Bytes 3 to 9 hold a flag for text, a date, a level and a system, which mean nothing for the content.
    places = [*range(3), *range(10, len(archive), 7), *range(len(archive) - 8, len(archive))]
    cut = [archive[:end] for end in (5, 12, 100, -8, -1)]
    for damaged in [*(flip(archive, place) for place in places), *cut]:
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"some\.gz"):
            open_idx(path, EXPECTED, verify=True)
    assert unpacked() == []


def test_the_name_does_not_tell_whether_a_file_is_compressed(tmp_path):
    for name, content in (("plain.gz", CONTENT), ("packed", gzip.compress(CONTENT))):
        (tmp_path / name).write_bytes(content)
        np.testing.assert_array_equal(open_idx(tmp_path / name, EXPECTED, verify=True), ARRAY)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError):
            open_idx(path, EXPECTED, verify=True)


def test_a_damaged_copy_in_the_cache_is_made_again(tmp_path):
    path = write(tmp_path, CONTENT, packed=True)
    open_idx(path, EXPECTED, verify=True)
    (copy,) = unpacked()
    copy.write_bytes(CONTENT[:-1])
    np.testing.assert_array_equal(open_idx(path, EXPECTED, verify=False), ARRAY)
    copy.write_bytes(flip(CONTENT, 100))
    np.testing.assert_array_equal(open_idx(path, EXPECTED, verify=True), ARRAY)
    assert copy.read_bytes() == CONTENT
    assert unpacked() == [copy]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError):
        open_idx(path, EXPECTED, verify=False)


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("cause", ["no folder", "full disk"])
def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, verify, cause):
    path = write(tmp_path, CONTENT, packed=True)
    if cause == "no folder":
        (tmp_path / "file").touch()
        monkeypatch.setenv("MU2MPI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    else:
        monkeypatch.setattr(os, "fsync", fail)
    array = open_idx(path, EXPECTED, verify)
    np.testing.assert_array_equal(array, ARRAY)
    assert not array.flags.writeable
    assert cause == "no folder" or unpacked() == []
    for content in (CONTENT[:-1], CONTENT + b"x"):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(InputError):
            open_idx(path, EXPECTED, verify)


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def chunks():
        yield b"new"
        raise KeyboardInterrupt

    target = tmp_path / "folder" / "file"
    target.parent.mkdir()
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(target, chunks())
    assert list(target.parent.iterdir()) == []
    files.write_whole(target, [b"old"])
    with pytest.raises(KeyboardInterrupt):
        files.write_whole(target, chunks())
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"old"]


LARGE, ROUNDS = IdxFile("large-idx1-ubyte", (4_000_000,), ""), 6


def open_together(folder: Path, barrier, answers) -> None:
    """Open a file at the same moment as others do, with a new cache each time, and report what is seen."""
    for round_ in range(ROUNDS):
        os.environ["MU2MPI_CACHE_DIR"] = str(folder / f"cache{round_}")
        barrier.wait(60)
        array = open_idx(folder / "large.gz", LARGE, verify=False)
        in_memory = not isinstance(array.base, np.memmap)
        answers.put((in_memory, hashlib.sha256(array).hexdigest()))


def test_several_processes_unpack_at_once(tmp_path):
    array = np.random.default_rng(2).integers(0, 256, LARGE.shape, dtype=np.uint8)
    (tmp_path / "large.gz").write_bytes(gzip.compress(LARGE.header + array.tobytes(), compresslevel=1))
    context = multiprocessing.get_context("spawn")
    answers, barrier = context.Queue(), context.Barrier(4)
    processes = [context.Process(target=open_together, args=(tmp_path, barrier, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    seen = {answers.get(timeout=60) for _ in range(4 * ROUNDS)}
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert seen == {(False, hashlib.sha256(array).hexdigest())}
    for round_ in range(ROUNDS):
        assert len(list((tmp_path / f"cache{round_}" / "unpacked").iterdir())) == 1
