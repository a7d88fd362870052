"""MNIST: 28 x 28 images of handwritten digits, from a folder, the user's cache, or on demand a mirror."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.idx import IdxFile, open_idx, unpacked
from mu2mpi.data.source import Samples, Source, Which
from mu2mpi.errors import InputError
from mu2mpi.files import cache_folder, write_whole

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
TIMEOUT = (5.0, 15.0)
"""Seconds to wait for a connection, and for the next piece of an answer."""


class Mnist(Source):
    """The 60,000 training and 10,000 test images, kept as bytes and mapped into memory.

    Their four files, compressed or not, are in ``mnist/`` of `data_dir`; by default of what
    ``MU2MPI_DATA_DIR`` names, or else of the user's cache. With `verify`, checksums of the content are
    compared; format, shape and size always are.
    """

    name = "mnist"
    classes = 10
    scale = 1 / 255

    def __init__(self, data_dir: Path | None = None, verify: bool = True) -> None:
        arrays, problems = _load(_folder(data_dir), verify)
        if problems:
            raise InputError(_advice(data_dir, problems))
        self.files = tuple(_existing(_folder(data_dir)))
        images, labels, test_images, test_labels = arrays
        self.training_samples, self.test_samples = len(labels), len(test_labels)
        self.dimension = images[0].size
        self._training, self._test = (images, labels), (test_images, test_labels)

    @classmethod
    def open(cls, experiment: Any, data_dir: Path | None, verify: bool) -> Self:
        """Open the four files."""
        return cls(data_dir, verify)

    @classmethod
    def fetch(cls, data_dir: Path | None = None) -> list[Path]:
        """Download what is missing, but replace no damaged file of the user's; return the four files."""
        folder, failures = _folder(data_dir), []
        _, problems = _load(folder, verify=True)
        if problems and (_is_ours(data_dir) or not any(_find(folder, file) for file in problems)):
            failures = _download(list(problems), folder)
            _, problems = _load(folder, verify=True)
        if problems:
            raise InputError(_advice(data_dir, problems, failures))
        return _existing(folder)

    def _read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        images, labels = self._training if which == "training" else self._test
        return Samples(images[rows].reshape(len(rows), self.dimension), labels[rows].astype(np.int32))


def _folder(data_dir: Path | None) -> Path:
    """Folder of the four files."""
    named = data_dir or os.environ.get("MU2MPI_DATA_DIR")
    return (Path(named).expanduser() if named else cache_folder()) / "mnist"


def _is_ours(data_dir: Path | None) -> bool:
    """Whether that folder is our own cache, and none that the user names."""
    return not (data_dir or os.environ.get("MU2MPI_DATA_DIR"))


def _existing(folder: Path) -> list[Path]:
    return [path for file in FILES if (path := _find(folder, file))]


def _find(folder: Path, file: IdxFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    # os.path.exists, unlike Path.exists, answers also for a folder that may not be searched.
    return next((path for path in candidates if os.path.exists(path)), None)


def _load(folder: Path, verify: bool) -> tuple[list[NDArray[np.uint8]], dict[IdxFile, str]]:
    """Open the four arrays; return those that can be used, and what is wrong with the files of others."""
    arrays, problems = [], {}
    for file in FILES:
        path = _find(folder, file)
        try:
            if path is None:
                raise InputError(f"{folder / file.name}[.gz] is missing, or its folder cannot be read")
            arrays.append(open_idx(path, file, verify))
        except InputError as error:
            problems[file] = str(error)
    return arrays, problems


def _download(files: list[IdxFile], folder: Path) -> list[str]:
    """Download files from the first mirrors that have good ones; return what went wrong on the way."""
    import pooch
    from requests import ConnectionError, RequestException, Timeout

    failures, wanted = [], list(files)
    for mirror in MIRRORS:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            while wanted:
                name, archive = f"{wanted[0].name}.gz", io.BytesIO()
                print(f"downloading {mirror}{name} into {folder}", file=sys.stderr, flush=True)
                # pooch itself would compare checksums of what is sent, not of the content.
                pooch.HTTPDownloader(chunk_size=1 << 16, timeout=TIMEOUT)(f"{mirror}{name}", archive, None)
                write_whole(folder / wanted[0].name, [unpacked(archive.getvalue(), wanted[0], True, name)])
                del wanted[0]
        except RequestException as error:
            # The HTTP library's own words on connections fill several lines.
            lost = "no answer in time" if isinstance(error, Timeout) else "cannot connect"
            failures.append(f"{mirror}: {lost if isinstance(error, Timeout | ConnectionError) else error}")
        except InputError as error:
            failures.append(f"{mirror}: {error}")
        except OSError as error:
            return [*failures, f"cannot write in {folder}: {error.strerror or error}"]
    return failures


def _advice(data_dir: Path | None, problems: dict[IdxFile, str], failures: Sequence[str] = ()) -> str:
    """Message that says what is wrong with the files and how to get good ones."""
    folder = _folder(data_dir)
    command, first = "mu2mpi data mnist", ""
    if not _is_ours(data_dir):
        command, first = f"{command} --data-dir {folder.parent}", "Remove what is damaged. "
    return "\n".join(
        [
            "MNIST cannot be used:",
            *(f"  {problem}" for problem in problems.values()),
            *(f"  not downloaded from {failure}" for failure in failures),
            f"{first}Where there is a network, `{command}` downloads what is missing; a run never does.",
            f"By hand: put these four files, with or without .gz, into {folder}, or into the folder mnist/ "
            "of one that --data-dir or MU2MPI_DATA_DIR names:",
            *(f"  {file.name}.gz" for file in FILES),
            f"Sources: {' '.join(MIRRORS)}",
        ]
    )
