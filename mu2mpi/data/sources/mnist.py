"""MNIST: 28 x 28 images of handwritten digits, from a folder, the user's cache, or on demand a mirror."""

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

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder, check_readable, write_whole
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.core.registry import register
from mu2mpi.data.source import DataRequest, Samples, Source, Which

PACKED = b"\x1f\x8b"  # first bytes of what gzip has compressed


@dataclass(frozen=True)
class IdxFile:
    """A file of unsigned bytes in the IDX format; name and checksum are those of the decompressed file."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """The bytes before the array: type 8, number of axes, and the length of each."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)

    @property
    def size(self) -> int:
        """Size of the decompressed file in bytes."""
        return len(self.header) + math.prod(self.shape)

    def check(self, content: Any, verify: bool, label: object) -> None:
        """Raise InputError, which names `label`, if a content is another; with `verify`, by its checksum."""
        header = self.header
        if bytes(content[: len(header)]) != header or len(content) != self.size:
            raise InputError(
                f"{label} is not the file that it should be: it has {len(content)} bytes or more that begin "
                f"with 0x{bytes(content[:16]).hex()}, expected {self.size} bytes and 0x{header.hex()}"
            )
        if verify and (found := hashlib.sha256(content).hexdigest()) != self.sha256:
            raise InputError(f"{label} has the wrong checksum: SHA-256 of its content is {found}")

    def unpacked(self, archive: bytes, verify: bool, label: object) -> bytes:
        """Return what is compressed in some bytes."""
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(self.size + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{label} is a truncated or damaged gzip file: {error}") from None
        self.check(content, verify, label)
        return content


# Mirrors recompress the files now and then, so the checksums are those of the decompressed content.
CONTENTS = (
    ("train-images", (60_000, 28, 28), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    ("train-labels", (60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    ("t10k-images", (10_000, 28, 28), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    ("t10k-labels", (10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
)
FILES = tuple(IdxFile(f"{name}-idx{len(shape)}-ubyte", shape, sha256) for name, shape, sha256 in CONTENTS)
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
TIMEOUT = (5.0, 15.0)  # seconds to wait for a connection, and for the next piece of an answer


@register
class Mnist(Source):
    """The 60,000 training and 10,000 test images, kept as bytes and mapped into memory.

    With `verify`, checksums of the content are compared; format, shape and size always are.
    """

    name, summary = "mnist", "70,000 images of 28 x 28 pixels, downloaded by `mu2mpi data mnist`"
    classes, scale = 10, 1 / 255

    def __init__(self, data_dir: Path | None = None, verify: bool = True) -> None:
        folder, is_ours = _folder(data_dir)
        arrays, problems = _load(folder, verify)
        if problems:
            raise InputError(_advice(folder, is_ours, [*problems.values()]))
        self.files = tuple(arrays)
        images, labels, test_images, test_labels = arrays.values()
        self.training_samples, self.test_samples = len(labels), len(test_labels)
        self.dimension = images[0].size
        self._training, self._test = (images, labels), (test_images, test_labels)

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        return cls(request.data_dir, request.verify)

    @classmethod
    def fetch(cls, data_dir: Path | None = None) -> list[Path]:
        """Download what is missing, but replace no damaged file of the user's."""
        folder, is_ours = _folder(data_dir)
        failures = []
        arrays, problems = _load(folder, verify=True)
        if problems and (is_ours or not any(_find(folder, file) for file in problems)):
            failures = _download([*problems], folder)
            arrays, problems = _load(folder, verify=True)
        if problems:
            reasons = [*problems.values(), *(f"not downloaded from {failure}" for failure in failures)]
            raise InputError(_advice(folder, is_ours, reasons))
        return [*arrays]

    def read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        images, labels = self._training if which == "training" else self._test
        return Samples(images[rows].reshape(len(rows), self.dimension), labels[rows].astype(np.int32))


def _folder(data_dir: Path | None) -> tuple[Path, bool]:
    """Return the folder of the four files, and whether it is our own cache and none that the user names."""
    named = data_dir or os.environ.get("MU2MPI_DATA_DIR")
    return (Path(named).expanduser() if named else cache_folder()) / "mnist", not named


def _find(folder: Path, file: IdxFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    # os.path.exists, unlike Path.exists, answers also for a folder that may not be searched.
    return next((path for path in candidates if os.path.exists(path)), None)


def _load(folder: Path, verify: bool) -> tuple[dict[Path, NDArray[np.uint8]], dict[IdxFile, str]]:
    """Open the four arrays; return those that can be used, and what is wrong with the files of others."""
    arrays, problems = {}, {}
    for file in FILES:
        try:
            if (path := _find(folder, file)) is None:
                raise InputError(f"{folder / file.name}[.gz] is missing, or its folder cannot be read")
            arrays[path] = open_idx(path, file, verify)
        except InputError as error:
            problems[file] = str(error)
    return arrays, problems


def open_idx(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    """Open the array in a file, read-only and mapped into memory; with `verify`, compare its checksum.

    What is compressed, by its content and not its name, is unpacked once into the user's cache folder, or
    into memory if that cannot be written.
    """
    check_readable(path)
    try:
        with open(path, "rb") as file:
            if file.read(len(PACKED)) != PACKED:
                return _mapped(path, expected, verify)
            # Of a file that is far too large, the beginning is refused as truncated.
            archive = PACKED + file.read(min(os.path.getsize(path), 2 * expected.size))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    # Named after the archive's checksum, so that a good copy in the cache never hides a damaged archive.
    copy = cache_folder() / "unpacked" / f"{expected.name}-{hashlib.sha256(archive).hexdigest()}"
    with suppress(OSError, InputError):
        return _mapped(copy, expected, verify)
    content = expected.unpacked(archive, verify, path)
    with suppress(OSError):
        write_whole(copy, [content])
        return _mapped(copy, expected, verify=False)
    return np.frombuffer(content, np.uint8, offset=len(expected.header)).reshape(expected.shape)


def _mapped(path: Path, expected: IdxFile, verify: bool) -> NDArray[np.uint8]:
    # What is empty cannot be mapped.
    content: Any = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else b""
    expected.check(content, verify, path)
    # A plain array over the mapping: rows taken from it are then plain arrays too.
    return np.asarray(np.memmap(path, np.uint8, "r", len(expected.header), expected.shape))


def _download(files: list[IdxFile], folder: Path) -> list[str]:
    """Download files from the first mirrors that have good ones; return what went wrong on the way."""
    import requests

    failures, wanted = [], list(files)
    for mirror in MIRRORS:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while wanted:
                name = f"{wanted[0].name}.gz"
                print(f"downloading {mirror}{name} into {folder}", file=sys.stderr, flush=True)
                answer = requests.get(f"{mirror}{name}", timeout=TIMEOUT)
                answer.raise_for_status()
                write_whole(folder / wanted[0].name, [wanted[0].unpacked(answer.content, True, name)])
                del wanted[0]
        except (requests.Timeout, requests.ConnectionError):
            # The library's own words on connections fill several lines.
            failures.append(f"{mirror}: no connection, or no answer in time")
        except (requests.RequestException, InputError) as error:
            failures.append(f"{mirror}: {error}")
        except OSError as error:
            return [*failures, f"cannot write in {folder}: {error.strerror or error}"]
    return failures


def _advice(folder: Path, is_ours: bool, reasons: list[str]) -> str:
    """Message that says what is wrong with the files and how to get good ones."""
    command, first = "mu2mpi data mnist", ""
    if not is_ours:
        command, first = f"{command} --data-dir {folder.parent}", "Remove what is damaged. "
    return "\n".join(
        [
            "MNIST cannot be used:",
            *(f"  {reason}" for reason in reasons),
            f"{first}Where there is a network, `{command}` downloads what is missing; a run never does.",
            f"By hand: put these four files, with or without .gz, into {folder}, or into the folder mnist/ "
            "of one that --data-dir or MU2MPI_DATA_DIR names:",
            *(f"  {file.name}.gz" for file in FILES),
            f"Sources: {' '.join(MIRRORS)}",
        ]
    )
