"""MNIST from folders, from the cache and from mirrors, and IDX files: damage, unpacked copies, processes."""

import gzip
import hashlib
import multiprocessing
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from helpers.small_mnist import LARGE, ROUNDS, SHAPES, open_together, put

from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder
from mu2mpi.data.sources._image_files import DOWNLOAD_TIMEOUT_SECONDS, IdxFile
from mu2mpi.data.sources.mnist import Mnist

IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = SHAPES


@pytest.fixture(params=[False, True], ids=["plain", "packed"])
def packed(request) -> bool:
    return request.param


def serve_files(serve, folder: Path, contents: dict[str, bytes]):
    """Serve archives as a mirror does."""
    folder.mkdir()
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    return serve(folder)


def cached() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (cache_folder() / "mnist").iterdir()}


def test_rows_in_the_order_asked_for(small, tmp_path, packed):
    source = Mnist(put(tmp_path, small, packed))
    assert (source.training_samples, source.test_samples, source.dimension) == (60, 20, 16)
    images = np.frombuffer(small[IMAGES][16:], np.uint8).reshape(60, 16)
    labels = np.frombuffer(small[LABELS][8:], np.uint8)
    rows = np.array([59, 0, 7, 7])
    samples = source.read_training(rows)
    np.testing.assert_array_equal(samples.features, images[rows])
    np.testing.assert_array_equal(samples.labels, labels[rows])
    assert samples.features.dtype == np.uint8
    assert samples.labels.dtype == np.int32
    assert samples.features.flags.c_contiguous
    samples.features[:] = 0  # the caller owns it: the next reading must not see this
    np.testing.assert_array_equal(source.read_training(rows).features, images[rows])
    test_images = np.frombuffer(small[TEST_IMAGES][16:], np.uint8).reshape(20, 16)
    np.testing.assert_array_equal(source.read_test(np.arange(20)).features, test_images)
    test_labels = np.frombuffer(small[TEST_LABELS][8:], np.uint8)
    np.testing.assert_array_equal(source.read_test(np.arange(20)).labels, test_labels)


def test_where_the_files_are_looked_for(small, tmp_path, monkeypatch):
    good = put(tmp_path / "good", small, packed=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("MU2MPI_DATA_DIR", str(good))
    assert Mnist().training_samples == 60
    with pytest.raises(InputError, match=IMAGES):
        Mnist(tmp_path / "empty")
    monkeypatch.setenv("MU2MPI_DATA_DIR", str(tmp_path / "empty"))
    assert Mnist(good).training_samples == 60
    with pytest.raises(InputError, match=str(tmp_path / "empty" / "mnist")):
        Mnist()
    monkeypatch.setenv("MU2MPI_DATA_DIR", "")
    put(cache_folder(), small, packed=True)
    assert Mnist().training_samples == 60


def test_a_missing_file_is_named(small, tmp_path, packed):
    folder = put(tmp_path, {name: small[name] for name in small if name != LABELS}, packed)
    with pytest.raises(InputError, match=rf"{LABELS}\[\.gz\]"):
        Mnist(folder)


def test_swapped_files_are_seen_and_labels_of_other_data_by_the_checksum(small, tmp_path, packed):
    swapped = {**small, IMAGES: small[TEST_IMAGES], TEST_IMAGES: small[IMAGES]}
    with pytest.raises(InputError, match=IMAGES):
        Mnist(put(tmp_path / "a", swapped, packed), verify_checksum=False)
    small[LABELS] = small[LABELS][:8] + small[LABELS][8:][::-1]
    folder = put(tmp_path / "b", small, packed)
    with pytest.raises(InputError, match="checksum"):
        Mnist(folder)
    assert Mnist(folder, verify_checksum=False).training_samples == 60


def test_offline_without_a_copy(small):
    for get in (Mnist, Mnist.fetch):
        with pytest.raises(InputError) as caught:
            get()
        assert all(word in str(caught.value) for word in (*SHAPES, "--data-dir", "`mu2mpi data mnist`"))


@pytest.mark.parametrize("command", [["run", "--data", "mnist"], ["sweep", "a.toml"]])
def test_no_run_downloads(small, tmp_path, serve, monkeypatch, capsys, command):
    server = serve_files(serve, tmp_path / "mirror", small)
    monkeypatch.setattr(Mnist, "mirrors", (server.url,))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('data = "mnist"\nseed = [1, 2]\n')
    assert main([*command, "--machines", "1", "--output", "a"]) == 2
    assert IMAGES in capsys.readouterr().err
    assert main(["data", "mnist"]) == 0
    assert f"{server.url}{IMAGES}.gz" in capsys.readouterr().err
    assert server.asked == [f"{name}.gz" for name in SHAPES]


def test_download(small, tmp_path, serve, monkeypatch):
    server = serve_files(serve, tmp_path / "mirror", small)
    monkeypatch.setattr(Mnist, "mirrors", (server.url, "http://127.0.0.1:9/"))
    Mnist.fetch()
    source = Mnist()
    images = np.frombuffer(small[IMAGES][16:], np.uint8).reshape(60, 16)
    np.testing.assert_array_equal(source.read_training(np.arange(60)).features, images)
    assert cached() == small
    assert server.asked == [f"{name}.gz" for name in SHAPES]
    Mnist.fetch()
    assert len(server.asked) == 4, "downloaded again"


DAMAGES = {
    "login page": lambda content: b"<html>Please log in</html>",
    "wrong pixel": lambda content: gzip.compress(content[:-1] + bytes([content[-1] ^ 1])),
    "truncated": lambda content: gzip.compress(content)[:-10],
}


@pytest.mark.parametrize("how", [None, *DAMAGES])
def test_a_bad_mirror_and_then_a_good_one(small, tmp_path, serve, monkeypatch, how):
    """Nothing of what is bad is left behind."""
    bad = serve_files(serve, tmp_path / "bad", small)
    good = serve_files(serve, tmp_path / "good", small)
    damaged = tmp_path / "bad" / f"{LABELS}.gz"
    damaged.unlink() if how is None else damaged.write_bytes(DAMAGES[how](small[LABELS]))
    monkeypatch.setattr(Mnist, "mirrors", (bad.url,))
    with pytest.raises(InputError, match=bad.url):
        Mnist.fetch()
    assert cached() == {IMAGES: small[IMAGES]}
    monkeypatch.setattr(Mnist, "mirrors", ("http://127.0.0.1:9/", bad.url, good.url))
    Mnist.fetch()
    assert cached() == small
    assert bad.asked == [f"{IMAGES}.gz", f"{LABELS}.gz", f"{LABELS}.gz"]
    assert good.asked == [f"{LABELS}.gz", f"{TEST_IMAGES}.gz", f"{TEST_LABELS}.gz"]


def test_a_wrong_file_in_the_cache_is_replaced(small, tmp_path, serve, monkeypatch):
    server = serve_files(serve, tmp_path / "mirror", small)
    put(cache_folder(), small, packed=False)
    (cache_folder() / "mnist" / IMAGES).write_bytes(small[IMAGES][:-1] + b"?")
    with pytest.raises(InputError, match=f"{IMAGES} has the wrong checksum"):
        Mnist()
    monkeypatch.setattr(Mnist, "mirrors", (server.url,))
    Mnist.fetch()
    assert server.asked == [f"{IMAGES}.gz"]
    assert cached() == small


def test_a_folder_of_the_user_gets_what_is_missing_and_keeps_what_is_damaged(
    small, tmp_path, serve, monkeypatch
):
    server = serve_files(serve, tmp_path / "mirror", small)
    monkeypatch.setattr(Mnist, "mirrors", (server.url,))
    damaged = put(tmp_path / "damaged", small | {LABELS: b"mine"}, packed=False)
    with pytest.raises(InputError, match=LABELS):
        Mnist.fetch(damaged)
    assert (damaged / "mnist" / LABELS).read_bytes() == b"mine"
    folder = put(tmp_path / "data", {IMAGES: small[IMAGES]}, packed=True)
    with pytest.raises(InputError, match=LABELS):
        Mnist(folder)
    assert server.asked == []
    paths = Mnist.fetch(folder)
    assert [path.name for path in paths] == [f"{IMAGES}.gz", LABELS, TEST_IMAGES, TEST_LABELS]
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in paths[1:])
    assert Mnist(folder).training_samples == 60


def test_a_cache_that_cannot_be_written(small, tmp_path, serve, monkeypatch):
    server = serve_files(serve, tmp_path / "mirror", small)
    monkeypatch.setattr(Mnist, "mirrors", (server.url, server.url))
    (tmp_path / "file").touch()
    monkeypatch.setenv("MU2MPI_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(InputError, match="file/mnist"):
        Mnist.fetch()
    assert server.asked == []


def test_the_waiting_for_a_mirror_is_bounded(small, monkeypatch):
    seen = []

    def get(url, timeout, **_):
        import requests

        seen.append(timeout)
        raise requests.ConnectTimeout("slow")

    monkeypatch.setattr("requests.get", get)
    with pytest.raises(InputError, match="in time"):
        Mnist.fetch()
    # One file of one mirror is asked for, once.
    assert seen == [DOWNLOAD_TIMEOUT_SECONDS]


def test_real_rows(mnist_dir):
    source = Mnist(mnist_dir)
    assert (source.training_samples, source.test_samples) == (60_000, 10_000)
    assert (source.dimension, source.classes, source.feature_scale) == (784, 10, 1 / 255)
    training = source.read_training(np.arange(60_000))
    test = source.read_test(np.arange(10_000))
    # Well-known facts about MNIST.
    assert np.bincount(training.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert training.features.mean() / 255 == pytest.approx(0.1307, abs=5e-5)
    assert training.features.std() / 255 == pytest.approx(0.3081, abs=5e-5)
    rows = np.random.default_rng(0).integers(0, 60_000, 100)
    np.testing.assert_array_equal(source.read_training(rows).features, training.features[rows])


def test_real_files_are_mapped_once_they_are_unpacked(mnist_dir):
    Mnist(mnist_dir)
    tracemalloc.start()
    try:
        Mnist(mnist_dir, verify_checksum=False).read_training(np.arange(0, 60_000, 100))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6, "the archives, of 10 MB, and 600 rows of 784 bytes, but not the images' 47 MB"


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
    folder = cache_folder() / "unpacked"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture(params=[False, True], ids=["unverified", "verified"])
def verify_checksum(request) -> bool:
    return request.param


def test_the_header_is_that_of_the_format():
    # From the description of the format: 0, 0, type 8, number of axes, then big-endian lengths.
    assert IdxFile("", (60_000, 28, 28), "").header.hex() == "00000803" + "0000ea60" + "0000001c" * 2
    assert IdxFile("", (60_000, 28, 28), "").nbytes == 47_040_016


def test_a_good_file(tmp_path, packed, verify_checksum):
    path = write(tmp_path, CONTENT, packed)
    for _ in range(2):
        array = EXPECTED.open(path, verify_checksum)
        np.testing.assert_array_equal(array, ARRAY)
        assert array.dtype == np.uint8
        assert not array.flags.writeable
        assert type(array) is np.ndarray
    assert len(unpacked()) == packed


@pytest.mark.parametrize(
    "content",
    [b"", CONTENT[:10], CONTENT[:-1], CONTENT + b"x", flip(CONTENT, 2), b"<html>Log in</html>", TRANSPOSED],
)
def test_wrong_content(tmp_path, packed, verify_checksum, content):
    path = write(tmp_path, content, packed)
    with pytest.raises(InputError, match=EXPECTED.name):
        EXPECTED.open(path, verify_checksum)
    assert unpacked() == []


@pytest.mark.parametrize("position", [16, len(CONTENT) - 1])
def test_a_wrong_pixel_is_seen_by_the_checksum_alone(tmp_path, packed, position):
    path = write(tmp_path, flip(CONTENT, position), packed)
    with pytest.raises(InputError, match="checksum"):
        EXPECTED.open(path, verify_checksum=True)
    assert unpacked() == []
    assert (EXPECTED.open(path, verify_checksum=False) != ARRAY).sum() == 1
    with pytest.raises(InputError, match="checksum"):
        EXPECTED.open(path, verify_checksum=True)


def test_any_damaged_byte_or_end_of_an_archive_is_seen(tmp_path):
    archive = gzip.compress(CONTENT, mtime=0)
    path = tmp_path / "some.gz"
    # Bytes 3 to 9 hold a flag for text, a date, a level and a system, which mean nothing for the content.
    places = [*range(3), *range(10, len(archive), 7), *range(len(archive) - 8, len(archive))]
    cut = [archive[:end] for end in (5, 12, 100, -8, -1)]
    for damaged in [*(flip(archive, place) for place in places), *cut]:
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"some\.gz"):
            EXPECTED.open(path, verify_checksum=True)
    assert unpacked() == []


def test_the_name_does_not_tell_whether_a_file_is_compressed(tmp_path):
    for name, content in (("plain.gz", CONTENT), ("packed", gzip.compress(CONTENT))):
        (tmp_path / name).write_bytes(content)
        np.testing.assert_array_equal(EXPECTED.open(tmp_path / name, verify_checksum=True), ARRAY)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError):
            EXPECTED.open(path, verify_checksum=True)


def test_a_damaged_copy_in_the_cache_is_made_again(tmp_path):
    path = write(tmp_path, CONTENT, packed=True)
    EXPECTED.open(path, verify_checksum=True)
    (copy,) = unpacked()
    copy.write_bytes(CONTENT[:-1])
    np.testing.assert_array_equal(EXPECTED.open(path, verify_checksum=False), ARRAY)
    copy.write_bytes(flip(CONTENT, 100))
    np.testing.assert_array_equal(EXPECTED.open(path, verify_checksum=True), ARRAY)
    assert copy.read_bytes() == CONTENT
    assert unpacked() == [copy]
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError):
        EXPECTED.open(path, verify_checksum=False)


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("cause", ["no folder", "full disk"])
def test_a_copy_that_cannot_be_written(tmp_path, monkeypatch, verify_checksum, cause):
    path = write(tmp_path, CONTENT, packed=True)
    if cause == "no folder":
        (tmp_path / "file").touch()
        monkeypatch.setenv("MU2MPI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    else:
        monkeypatch.setattr(os, "fsync", fail)
    array = EXPECTED.open(path, verify_checksum)
    np.testing.assert_array_equal(array, ARRAY)
    assert not array.flags.writeable
    assert cause == "no folder" or unpacked() == []
    for content in (CONTENT[:-1], CONTENT + b"x"):
        path.write_bytes(gzip.compress(content))
        with pytest.raises(InputError):
            EXPECTED.open(path, verify_checksum)


@pytest.mark.slow
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
