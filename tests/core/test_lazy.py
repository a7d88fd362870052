"""Lazy imports."""

import subprocess
import sys

import numpy
import pytest

from mu2mpi.core.lazy import np


def test_attributes_are_those_of_the_package():
    assert np.float64 is numpy.float64
    assert np.random.Philox is numpy.random.Philox
    with pytest.raises(AttributeError, match="nothing"):
        _ = np.nothing


def test_sources_and_partitions_are_listed_without_numpy():
    code = (
        "import sys; from mu2mpi.core.registry import known_names, lookup\n"
        "for kind in ('sources', 'partitions', 'formats'): [lookup(kind, n) for n in known_names(kind)]\n"
        "before = {'numpy', 'h5py'} & {*sys.modules}\n"
        "from mu2mpi.core.lazy import np; np.zeros(1)\n"
        "sys.exit(bool(before) or 'numpy' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
