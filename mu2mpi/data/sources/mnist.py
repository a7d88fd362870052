"""Data source MNIST: 28 x 28 images of handwritten digits, read from a folder or downloaded."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import struct
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder, check_readable, write_atomically
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import DataRequest, DataSource, Samples, SplitName

GZIP_MAGIC = b"\x1f\x8b"  # first bytes of a gzip file


@dataclass(frozen=True)
class IdxFile:
    """Name, array shape and SHA-256 checksum expected of a decompressed file in the IDX format."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """Header of the IDX file in bytes: type 8 (unsigned byte), number of axes, and their lengths."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the decompressed IDX file in bytes."""
        return len(self.header) + math.prod(self.shape)

    def check_content(self, content: Any, verify_checksum: bool, display_name: object) -> None:
        """Raise InputError unless header, size and (if requested) checksum of a file are as expected."""
        if bytes(content[: len(self.header)]) != self.header or len(content) != self.nbytes:
            fault = f"it has another header, or {len(content)} bytes instead of {self.nbytes}"
            raise InputError(f"{display_name} is another file than expected: {fault}")
        if verify_checksum and (sha256 := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise InputError(f"{display_name} has the wrong checksum: SHA-256 of its content is {sha256}")

    def decompress(self, archive: bytes, verify_checksum: bool, display_name: object) -> bytes:
        """Decompress a gzip archive of this IDX file, and check its content."""
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(self.nbytes + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{display_name} is a truncated or damaged gzip file: {error}") from None
        self.check_content(content, verify_checksum, display_name)
        return content


# Checksums are of the decompressed content, since mirrors recompress the files now and then.
IDX_SPECS = (
    ("train-images", (60_000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels", (60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images", (10_000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ("t10k-labels", (10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
MNIST_FILES = tuple(IdxFile(f"{name}-idx{len(axes)}-ubyte", axes, sha256) for name, axes, sha256 in IDX_SPECS)
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
DOWNLOAD_TIMEOUT_SECONDS = (5.0, 15.0)  # seconds to connect, and between pieces of a response


@register
class Mnist(DataSource):
    """MNIST data set, 60,000 training and 10,000 test images as uint8, memory-mapped from validated files."""

    name, summary = "mnist", "70,000 images of 28 x 28 pixels, downloaded by `mu2mpi data mnist`"
    classes, feature_scale = 10, 1 / 255

    def __init__(self, data_dir: Path | None = None, verify_checksum: bool = True) -> None:
        folder, is_cache = _locate_mnist_folder(data_dir)
        arrays, problems = _open_mnist(folder, verify_checksum)
        if problems:
            raise InputError(_unusable_folder_message(folder, is_cache, [*problems.values()]))
        self.files = tuple(arrays)
        images, labels, test_images, test_labels = arrays.values()
        self.training_samples, self.test_samples = len(labels), len(test_labels)
        self.dimension = images[0].size
        self._training, self._test = (images, labels), (test_images, test_labels)

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        return cls(request.data_dir, request.verify_checksums)

    @classmethod
    def fetch(cls, data_dir: Path | None = None) -> list[Path]:
        """Download missing MNIST files; damaged ones are replaced in the cache only. Return all paths."""
        folder, is_cache = _locate_mnist_folder(data_dir)
        failures = []
        arrays, problems = _open_mnist(folder, verify_checksum=True)
        if problems and (is_cache or not any(_find_idx_file(folder, file) for file in problems)):
            failures = _download([*problems], folder)
            arrays, problems = _open_mnist(folder, verify_checksum=True)
        if problems:
            reasons = [*problems.values(), *(f"not downloaded from {failure}" for failure in failures)]
            raise InputError(_unusable_folder_message(folder, is_cache, reasons))
        return [*arrays]

    def read(self, split: SplitName, rows: IntArray) -> Samples:
        images, labels = self._training if split == "training" else self._test
        return Samples(images[rows].reshape(len(rows), self.dimension), labels[rows].astype(np.int32))


def _locate_mnist_folder(data_dir: Path | None) -> tuple[Path, bool]:
    named = data_dir or os.environ.get("MU2MPI_DATA_DIR")
    return (Path(named).expanduser() if named else cache_folder()) / "mnist", not named


def _find_idx_file(folder: Path, file: IdxFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    # Unlike Path.exists, os.path.exists returns False for a folder without search permission.
    return next((path for path in candidates if os.path.exists(path)), None)


def _open_mnist(folder: Path, verify_checksum: bool) -> tuple[dict[Path, NDArray[Any]], dict[IdxFile, str]]:
    """Open the four MNIST arrays; return the valid ones by path, and a message for each faulty file."""
    arrays, problems = {}, {}
    for file in MNIST_FILES:
        try:
            if (path := _find_idx_file(folder, file)) is None:
                raise InputError(f"{folder / file.name}[.gz] is missing, or its folder is not readable")
            arrays[path] = open_idx(path, file, verify_checksum)
        except InputError as error:
            problems[file] = str(error)
    return arrays, problems


def open_idx(path: Path, idx_file: IdxFile, verify_checksum: bool) -> NDArray[np.uint8]:
    """Open the array in an IDX file, memory-mapped; a gzip file is decompressed into the cache once."""
    check_readable(path)
    try:
        with open(path, "rb") as file:
            if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                return _memory_map_idx(path, idx_file, verify_checksum)
            archive = GZIP_MAGIC + file.read(min(os.path.getsize(path), 2 * idx_file.nbytes))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    # Named by the archive's checksum, so that a good cached copy never hides a damaged archive.
    cached_copy = cache_folder() / "unpacked" / f"{idx_file.name}-{hashlib.sha256(archive).hexdigest()}"
    with suppress(OSError, InputError):
        return _memory_map_idx(cached_copy, idx_file, verify_checksum)
    content = idx_file.decompress(archive, verify_checksum, path)
    with suppress(OSError):
        write_atomically(cached_copy, [content])
        return _memory_map_idx(cached_copy, idx_file, verify_checksum=False)
    return np.frombuffer(content, np.uint8, offset=len(idx_file.header)).reshape(idx_file.shape)


def _memory_map_idx(path: Path, idx_file: IdxFile, verify_checksum: bool) -> NDArray[np.uint8]:
    content: Any = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else b""
    idx_file.check_content(content, verify_checksum, path)
    return np.asarray(np.memmap(path, np.uint8, "r", len(idx_file.header), idx_file.shape))


def _download(files: list[IdxFile], folder: Path) -> list[str]:
    """Download MNIST files, each from the first mirror with a valid copy; return messages of failures."""
    import requests

    failures, remaining = [], list(files)
    for mirror in MNIST_MIRRORS:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while remaining:
                name = f"{remaining[0].name}.gz"
                print(f"downloading {mirror}{name} into {folder}", file=sys.stderr, flush=True)
                response = requests.get(f"{mirror}{name}", timeout=DOWNLOAD_TIMEOUT_SECONDS)
                response.raise_for_status()
                content = remaining[0].decompress(response.content, True, name)
                write_atomically(folder / remaining[0].name, [content])
                del remaining[0]
        except (requests.Timeout, requests.ConnectionError):
            failures.append(f"{mirror}: no connection, or no response in time")
        except (requests.RequestException, InputError) as error:
            failures.append(f"{mirror}: {error}")
        except OSError as error:
            return [*failures, f"cannot write in {folder}: {error.strerror or error}"]
    return failures


def _unusable_folder_message(folder: Path, is_cache: bool, reasons: list[str]) -> str:
    command = "mu2mpi data mnist" if is_cache else f"mu2mpi data mnist --data-dir {folder.parent}"
    return "\n".join(
        [
            f"MNIST cannot be used from {folder} (--data-dir and MU2MPI_DATA_DIR name another folder):",
            *(f"  {reason}" for reason in reasons),
            f"`{command}` downloads files that are missing; a run never does. Remove damaged ones first.",
            f"Or copy the files {', '.join(f'{file.name}[.gz]' for file in MNIST_FILES)}",
            f"into that folder, from {' or '.join(MNIST_MIRRORS)}",
        ]
    )
