"""Data sets of images in files of bytes with checksums, read from a folder or downloaded."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import struct
import sys
import zlib
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder, check_readable, write_atomically
from mu2mpi.core.lazy import NDArray, np
from mu2mpi.data.source import DataRequest, DataSource

GZIP_MAGIC = b"\x1f\x8b"  # first bytes of a gzip file
DOWNLOAD_TIMEOUT_SECONDS = (5.0, 15.0)  # seconds to connect, and between pieces of a response


@dataclass(frozen=True)
class ArrayFile:
    """Name, array shape and checksum expected of a decompressed file of bytes."""

    name: str
    shape: tuple[int, ...]
    checksum: str  # of the decompressed content, in hexadecimal digits
    algorithm: str = "SHA-256"  # of the checksum

    @property
    def header(self) -> bytes:
        """Bytes before those of the array."""
        return b""

    @property
    def nbytes(self) -> int:
        """Size of the decompressed file in bytes."""
        return len(self.header) + math.prod(self.shape)

    def check_content(self, content: Any, verify_checksum: bool, display_name: object) -> None:
        """Raise InputError unless header, size and (if requested) checksum of a file are as expected."""
        if bytes(content[: len(self.header)]) != self.header or len(content) != self.nbytes:
            fault = f"it has another header, or {len(content)} bytes instead of {self.nbytes}"
            raise InputError(f"{display_name} is another file than expected: {fault}")
        if not verify_checksum:
            return
        checksum = hashlib.new(self.algorithm.replace("-", ""), content, usedforsecurity=False).hexdigest()
        if checksum != self.checksum:
            fault = f"{self.algorithm} of its content is {checksum}"
            raise InputError(f"{display_name} has the wrong checksum: {fault}")

    def decompress(self, archive: bytes, verify_checksum: bool, display_name: object) -> bytes:
        """Decompress a gzip archive of this file, and check its content."""
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(archive)).read(self.nbytes + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"{display_name} is a truncated or damaged gzip file: {error}") from None
        self.check_content(content, verify_checksum, display_name)
        return content

    def find(self, folder: Path) -> Path | None:
        """Return the path of this file or of its gzip archive in a folder; None if neither is there."""
        candidates = (folder / self.name, folder / f"{self.name}.gz")
        # Unlike Path.exists, os.path.exists returns False for a folder without search permission.
        return next((path for path in candidates if os.path.exists(path)), None)

    def open(self, path: Path, verify_checksum: bool) -> NDArray[np.uint8]:
        """Open the array, memory-mapped; a gzip file is decompressed into the cache once."""
        check_readable(path)
        try:
            with open(path, "rb") as file:
                if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
                    return self._memory_map(path, verify_checksum)
                archive = GZIP_MAGIC + file.read(min(os.path.getsize(path), 2 * self.nbytes))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from None
        # Named by the archive's checksum, so that a good cached copy never hides a damaged archive.
        cached_copy = cache_folder() / "unpacked" / f"{self.name}-{hashlib.sha256(archive).hexdigest()}"
        with suppress(OSError, InputError):
            return self._memory_map(cached_copy, verify_checksum)
        content = self.decompress(archive, verify_checksum, path)
        with suppress(OSError):
            write_atomically(cached_copy, [content])
            return self._memory_map(cached_copy, verify_checksum=False)
        return np.frombuffer(content, np.uint8, offset=len(self.header)).reshape(self.shape)

    def _memory_map(self, path: Path, verify_checksum: bool) -> NDArray[np.uint8]:
        content: Any = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else b""
        self.check_content(content, verify_checksum, path)
        return np.asarray(np.memmap(path, np.uint8, "r", len(self.header), self.shape))


class IdxFile(ArrayFile):
    """File in the IDX format."""

    @property
    def header(self) -> bytes:
        """Header of the IDX file in bytes: type 8 (unsigned byte), number of axes, and their lengths."""
        return struct.pack(f">HBB{len(self.shape)}I", 0, 8, len(self.shape), *self.shape)


class ImageFiles(DataSource):
    """Data set of images in a folder of files with checksums, which only `fetch` downloads."""

    title: ClassVar[str]  # name in error messages
    array_files: ClassVar[tuple[ArrayFile, ...]]
    folder_name: ClassVar[str] = ""  # of the folder of the files below the data folder; by default the name
    mirrors: ClassVar[tuple[str, ...]] = ()  # addresses of folders with gzip archives of the files
    homepage: ClassVar[str] = ""  # address of the files if there are no mirrors
    classes, feature_scale = 10, 1 / 255

    def __init__(self, data_dir: Path | None = None, verify_checksum: bool = True) -> None:
        folder, is_cache = self._locate_folder(data_dir)
        arrays, problems = self._open_files(folder, verify_checksum)
        if problems:
            raise InputError(self._unusable_folder_message(folder, is_cache, [*problems.values()]))
        self.files = tuple(arrays)
        self.set_up(*arrays.values())

    @abstractmethod
    def set_up(self, *arrays: NDArray[np.uint8]) -> None:
        """Set sizes and samples of the data set, given the arrays of `array_files`."""

    @classmethod
    def open(cls, request: DataRequest) -> Self:
        return cls(request.data_dir, request.verify_checksums)

    @classmethod
    def fetch(cls, data_dir: Path | None = None) -> list[Path]:
        """Download missing files; damaged ones are replaced in the cache only. Return all paths."""
        folder, is_cache = cls._locate_folder(data_dir)
        failures = []
        arrays, problems = cls._open_files(folder, verify_checksum=True)
        if problems and (is_cache or not any(file.find(folder) for file in problems)):
            failures = cls._download([*problems], folder)
            arrays, problems = cls._open_files(folder, verify_checksum=True)
        if problems:
            reasons = [*problems.values(), *(f"not downloaded from {failure}" for failure in failures)]
            raise InputError(cls._unusable_folder_message(folder, is_cache, reasons))
        return [*arrays]

    @classmethod
    def _locate_folder(cls, data_dir: Path | None) -> tuple[Path, bool]:
        named = data_dir or os.environ.get("MU2MPI_DATA_DIR")
        data_folder = Path(named).expanduser() if named else cache_folder()
        return data_folder / (cls.folder_name or cls.name), not named

    @classmethod
    def _open_files(
        cls, folder: Path, verify_checksum: bool
    ) -> tuple[dict[Path, NDArray[Any]], dict[ArrayFile, str]]:
        """Open the arrays; return the valid ones by path, and a message for each faulty file."""
        arrays, problems = {}, {}
        for file in cls.array_files:
            try:
                if (path := file.find(folder)) is None:
                    raise InputError(f"{folder / file.name}[.gz] is missing, or its folder is not readable")
                arrays[path] = file.open(path, verify_checksum)
            except InputError as error:
                problems[file] = str(error)
        return arrays, problems

    @classmethod
    def _download(cls, files: list[ArrayFile], folder: Path) -> list[str]:
        """Download files, each from the first mirror with a valid copy; return messages of failures."""
        import requests

        failures, remaining = [], list(files)
        for mirror in cls.mirrors:
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

    @classmethod
    def _unusable_folder_message(cls, folder: Path, is_cache: bool, reasons: list[str]) -> str:
        command = f"mu2mpi data {cls.name}" + ("" if is_cache else f" --data-dir {folder.parent}")
        hint = f"`{command}` downloads files that are missing; a run never does. Remove damaged ones first."
        names = ", ".join(f"{file.name}[.gz]" for file in cls.array_files)
        lines = [
            f"{cls.title} cannot be used from {folder} (--data-dir and MU2MPI_DATA_DIR name another folder):",
            *(f"  {reason}" for reason in reasons),
            *([hint] if cls.mirrors else []),
            f"{'Or copy' if cls.mirrors else 'Copy'} the files {names}",
            f"into that folder, from {' or '.join(cls.mirrors) or cls.homepage}",
        ]
        return "\n".join(lines)
