"""Fixtures that every folder of tests may use."""

import os
from pathlib import Path

import pytest
from missing import missing


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """Return the folder that holds mnist/; only continuous integration must have it."""
    folder = os.environ.get("MU2MPI_DATA_DIR")
    if not folder:
        missing("MU2MPI_DATA_DIR does not name a folder that holds mnist/")
    return Path(folder)
