"""A file larger than what a rank may hold: each sample is read once, and memory stays what it was."""

import subprocess
import sys

import h5py
import numpy as np
import pytest

PEAK = """
import sys
from mu2mpi import Experiment, run
result = run(Experiment(data=sys.argv[1], machines=10, seed=1, partition=sys.argv[2], evaluations=3))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(result.history.samples[-1], 1024 * int(status["VmHWM"].split()[0]))
"""
FEATURES = 4000


def write(path, rows):
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (rows, FEATURES), np.float32)
        for start in range(0, rows, 1000):
            features[start : start + 1000] = random.random((1000, FEATURES), np.float32)
        file["labels"] = np.arange(rows) % 2


def run_in_a_process_of_its_own(path, partition):
    command = [sys.executable, "-c", PEAK, str(path), partition]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    spent, peak = map(int, done.stdout.split())
    return spent, peak


@pytest.fixture(scope="module")
def small_and_large(tmp_path_factory):
    """Return the peak on a small file, once all kernels are compiled, and a large file."""
    folder = tmp_path_factory.mktemp("large")
    small, large = folder / "small.h5", folder / "large.h5"
    write(small, 1000)
    write(large, 20_000)
    for _ in range(2):
        _, peak = run_in_a_process_of_its_own(small, "iid")
    return peak, large


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["iid", "contiguous"])
def test_memory_does_not_grow_with_the_file(small_and_large, partition):
    before, large = small_and_large
    assert large.stat().st_size > 320e6
    spent, after = run_in_a_process_of_its_own(large, partition)
    assert spent == 16_000
    assert after - before < 40e6
    assert after < 300e6
