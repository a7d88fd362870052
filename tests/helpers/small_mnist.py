"""Small files of MNIST's format, and a mirror on this computer that serves them."""

import gzip
import hashlib
import os
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np

from mu2mpi.data.sources._image_files import IdxFile

SHAPES = {
    "train-images-idx3-ubyte": (60, 4, 4),
    "train-labels-idx1-ubyte": (60,),
    "t10k-images-idx3-ubyte": (20, 4, 4),
    "t10k-labels-idx1-ubyte": (20,),
}


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


LARGE, ROUNDS = IdxFile("large-idx1-ubyte", (4_000_000,), ""), 6


def open_together(folder: Path, barrier, answers) -> None:
    """Open a file at the same moment as others do, with a new cache each time, and report what is seen."""
    for round_ in range(ROUNDS):
        os.environ["MU2MPI_CACHE_DIR"] = str(folder / f"cache{round_}")
        barrier.wait(60)
        array = LARGE.open(folder / "large.gz", verify_checksum=False)
        in_memory = not isinstance(array.base, np.memmap)
        answers.put((in_memory, hashlib.sha256(array).hexdigest()))
