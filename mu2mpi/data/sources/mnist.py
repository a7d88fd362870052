"""MNIST: 28 x 28 images of handwritten digits, from a folder, the user's cache, or a mirror."""

import os
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.idx import IdxFile, check_content, open_idx
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
TIMEOUT = (20.0, 30.0)  # seconds to wait for a connection, and for the next piece of an answer


class Mnist(Source):
    """The 60,000 training and 10,000 test images, kept as bytes and mapped into memory.

    Their four files, compressed or not, are in ``mnist/`` of `data_dir`; by default of what
    ``MU2MPI_DATA_DIR`` names, or else of the user's cache, to which missing files are downloaded. With
    `verify`, checksums of the content are compared; format, shape and size always are.
    """

    name = "mnist"
    classes = 10
    scale = 1 / 255

    def __init__(self, data_dir: Path | None = None, verify: bool = True) -> None:
        images, labels, test_images, test_labels = _load(data_dir, verify, download=False)
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
        _load(data_dir, verify=True, download=True)
        folder, _ = _folder(data_dir)
        return [path for file in FILES if (path := _find(folder, file))]

    def _read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        images, labels = self._training if which == "training" else self._test
        return Samples(images[rows].reshape(len(rows), self.dimension), labels[rows].astype(np.int32))


def _folder(data_dir: Path | None) -> tuple[Path, bool]:
    """Return the folder of the four files, and whether it is our own cache."""
    named = data_dir or os.environ.get("MU2MPI_DATA_DIR")
    return (Path(named).expanduser() if named else cache_folder()) / "mnist", not named


def _find(folder: Path, file: IdxFile) -> Path | None:
    candidates = (folder / file.name, folder / f"{file.name}.gz")
    # os.path.exists, unlike Path.exists, answers also for a folder that may not be searched.
    return next((path for path in candidates if os.path.exists(path)), None)


def _load(data_dir: Path | None, verify: bool, download: bool) -> list[NDArray[np.uint8]]:
    """Open the four arrays; download what is missing into our cache, or anywhere if `download`."""
    folder, ours = _folder(data_dir)
    failures: list[str] = []
    found = {file: _array(folder, file, verify) for file in FILES}
    problems = {file: problem for file, problem in found.items() if isinstance(problem, str)}
    # A damaged file in a folder of the user's is not ours to replace.
    if problems and (ours or (download and not any(_find(folder, file) for file in problems))):
        failures = _download(list(problems), folder)
        found |= {file: _array(folder, file, verify) for file in problems}
    arrays = [array for array in found.values() if not isinstance(array, str)]
    if len(arrays) < len(FILES):
        remaining = [problem for file, problem in problems.items() if isinstance(found[file], str)]
        raise InputError(_advice(folder, ours, remaining, failures))
    return arrays


def _array(folder: Path, file: IdxFile, verify: bool) -> NDArray[np.uint8] | str:
    """Return the array of a file, or what is wrong with it."""
    path = _find(folder, file)
    try:
        if path is None:
            return f"{folder / file.name}[.gz] is missing, or its folder cannot be read"
        return open_idx(path, file, verify)
    except InputError as error:
        return str(error)


def _download(files: list[IdxFile], folder: Path) -> list[str]:
    """Download files from the first mirrors that have good ones; return what went wrong on the way."""
    from requests import RequestException

    failures, wanted = [], list(files)
    for mirror in MIRRORS:
        try:
            while wanted:
                _download_one(wanted[0], mirror, folder)
                del wanted[0]
        except (RequestException, InputError) as error:
            failures.append(f"{mirror}: {_reason(error)}")
        except OSError as error:
            failures.append(f"cannot write in {folder}: {error.strerror or error}")
            break
    return failures


def _download_one(file: IdxFile, mirror: str, folder: Path) -> None:
    """Download one file and keep it, decompressed, only if its content is right."""
    import pooch

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".download.") as archive:
        # The rest of pooch compares checksums of what is sent, which are not those of the content.
        pooch.HTTPDownloader(chunk_size=1 << 16, timeout=TIMEOUT)(f"{mirror}{file.name}.gz", archive, None)
        archive.flush()
        content = check_content(Path(archive.name), file, verify=True, label=f"{file.name}.gz")
        write_whole(folder / file.name, content)


def _reason(error: Exception) -> str:
    """Say in a few words why a download failed; those of the HTTP library fill several lines."""
    from requests import ConnectionError, HTTPError, Timeout

    if isinstance(error, HTTPError) and error.response is not None:
        return f"HTTP status {error.response.status_code} for {error.response.url}"
    if isinstance(error, Timeout):
        return "no answer in time"
    return "cannot connect" if isinstance(error, ConnectionError) else str(error)


def _advice(folder: Path, ours: bool, problems: list[str], failures: list[str]) -> str:
    """Return the message that says what is wrong with the files and how to get good ones."""
    lines = ["MNIST cannot be used:", *(f"  {problem}" for problem in problems)]
    if failures:
        lines += ["it could not be downloaded:", *(f"  {failure}" for failure in failures)]
    if not ours:
        lines.append(
            f"Remove a damaged file, then run `mu2mpi data mnist` with --data-dir {folder.parent} (or with "
            "MU2MPI_DATA_DIR set to it) where there is a network: it downloads what is missing."
        )
    lines += [f"By hand: put these four files, with or without .gz, into {folder}:"]
    lines += [f"  {file.name}.gz" for file in FILES]
    if ours:
        lines.append(
            "or into the folder mnist/ of a folder that --data-dir or MU2MPI_DATA_DIR names; "
            "`mu2mpi data mnist` downloads them where there is a network."
        )
    return "\n".join([*lines, f"Sources: {' '.join(MIRRORS)}"])
