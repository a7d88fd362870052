"""``mpirun -n 3 python tests/helpers/run_mpi_tests.py``: tests/mpi on every rank, told by rank 0."""

import os
import sys
from pathlib import Path

import pytest

from mu2mpi.core.parallel import world

if __name__ == "__main__":
    if world().rank != 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    folder = str(Path(__file__).parents[1] / "mpi")
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--color=no", folder, *sys.argv[1:]]))
