"""``mpirun -n 3 python tests/mpi/run.py``: the tests of this folder on every rank, told by rank 0."""

import os
import sys

import pytest

from mu2mpi.core.parallel import world

if __name__ == "__main__":
    if world().rank != 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    here = os.path.dirname(os.path.abspath(__file__))
    sys.exit(pytest.main(["-p", "no:cacheprovider", "--color=no", here, *sys.argv[1:]]))
