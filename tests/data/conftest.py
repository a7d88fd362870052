"""Own folders for every test; small stand-ins for the four MNIST files; a mirror of them."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.schema_tables import SCHEMA
from helpers.small_mnist import SHAPES, Server

from mu2mpi.data.sources._image_files import IdxFile
from mu2mpi.data.sources.mnist import Mnist


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Keep every test away from the user's cache, folder of data, proxy and mirrors."""
    if "mnist_dir" in request.fixturenames:
        request.getfixturevalue("mnist_dir")  # reads the variable that is removed next
    monkeypatch.delenv("MU2MPI_DATA_DIR", raising=False)
    monkeypatch.setenv("MU2MPI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(Mnist, "mirrors", ("http://127.0.0.1:9/",))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Make the module believe in four small files, and return their contents by name."""
    random = np.random.default_rng(5)
    contents, files = {}, []
    for name, shape in SHAPES.items():
        header = IdxFile(name, shape, "").header
        largest = 256 if len(shape) == 3 else 10
        contents[name] = header + random.integers(0, largest, shape, dtype=np.uint8).tobytes()
        files.append(IdxFile(name, shape, hashlib.sha256(contents[name]).hexdigest()))
    monkeypatch.setattr(Mnist, "array_files", tuple(files))
    return contents


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    """Return a function that serves a folder until the test ends."""
    servers = []

    def start(folder: Path) -> Server:
        servers.append(Server(folder))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """Schema file of the patients of `helpers.schema_tables`."""
    path = tmp_path / "patients.toml"
    path.write_text(SCHEMA)
    return path
