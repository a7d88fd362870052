"""Small stand-ins for the four MNIST files, and the real ones where they are."""

import gzip
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.data import mnist
from mu2mpi.data.idx import IdxFile

SHAPES = {
    "train-images-idx3-ubyte": (60, 4, 4),
    "train-labels-idx1-ubyte": (60,),
    "t10k-images-idx3-ubyte": (20, 4, 4),
    "t10k-labels-idx1-ubyte": (20,),
}


@pytest.fixture
def mnist_dir() -> Path:
    folder = os.environ.get("MU2MPI_DATA_DIR")
    if not folder:
        pytest.skip("MU2MPI_DATA_DIR does not name a folder that holds mnist/")
    return Path(folder)


@pytest.fixture(autouse=True)
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Keep every test away from the user's cache, folder of data, proxy and mirrors."""
    if "mnist_dir" in request.fixturenames:
        request.getfixturevalue("mnist_dir")  # reads the variable that is removed next
    monkeypatch.delenv("MU2MPI_DATA_DIR", raising=False)
    monkeypatch.setenv("MU2MPI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(mnist, "MIRRORS", ("http://127.0.0.1:9/",))


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
    monkeypatch.setattr(mnist, "FILES", tuple(files))
    return contents


def put(folder: Path, contents: dict[str, bytes], packed: bool) -> Path:
    """Write files into ``mnist/`` of a folder, compressed or not, and return the folder."""
    (folder / "mnist").mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if packed:
            (folder / "mnist" / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / "mnist" / name).write_bytes(content)
    return folder


class Server(ThreadingHTTPServer):
    """An HTTP server on this computer that remembers what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path.lstrip("/"))
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


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
