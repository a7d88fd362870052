"""The user's cache folder."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return the folder for files that can be made again: ``MU2MPI_CACHE_DIR``, or the platform's custom."""
    return Path(os.environ.get("MU2MPI_CACHE_DIR") or platformdirs.user_cache_dir("mu2mpi")).expanduser()
