"""Write a large HDF5 file of samples, run on it, and say what each rank needed of memory and time.

    mpirun -n 2 python scripts/large_file.py large.h5 --gigabytes 2
    mpirun -n 2 python scripts/large_file.py large.h5 --partition contiguous

The file is written once. Labels follow from a random linear model, so that there is something to learn.
"""

import argparse
import resource
from pathlib import Path
from time import perf_counter

import h5py
import numpy as np

from mu2mpi import Experiment, run
from mu2mpi.core.parallel import world

FEATURES, CLASSES, BLOCK = 784, 10, 8192


def main() -> None:
    """Write the file on rank 0 if it is not there, run, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--machines", type=int, default=10)
    path, gigabytes, partition, machines = vars(parser.parse_args()).values()
    communicator = world()
    if communicator.rank == 0 and not path.exists():
        write(path, gigabytes)
    communicator.barrier()
    started = perf_counter()
    result = run(Experiment(data=str(path), machines=machines, partition=partition, rho=4.0, seed=1))
    seconds = perf_counter() - started
    peaks = communicator.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)
    if communicator.rank == 0:
        print(f"{path}: {path.stat().st_size / 1e9:.2f} GB, {partition}")
        print(f"  {result.history.samples[-1]:,} samples in {seconds:.1f} s,", end=" ")
        print(f"test loss {result.history.test_loss[-1]:.4f}")
        print("  peak memory by rank, MB:", ", ".join(f"{peak:.0f}" for peak in peaks))


def write(path: Path, gigabytes: float) -> None:
    """Write samples in random order, block by block."""
    rows = round(gigabytes * 1e9 / (4 * FEATURES + 8))
    random = np.random.default_rng(0)
    model = random.standard_normal((FEATURES, CLASSES), np.float32)
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (rows, FEATURES), np.float32)
        labels = file.create_dataset("labels", (rows,), np.int64)
        for start in range(0, rows, BLOCK):
            block = 2 * random.random((min(BLOCK, rows - start), FEATURES), np.float32) - 1
            features[start : start + len(block)] = block
            labels[start : start + len(block)] = (block @ model).argmax(axis=1)


if __name__ == "__main__":
    main()
