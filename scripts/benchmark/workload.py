"""Workloads of the benchmark: runs of the package, baselines, generators, and limits of the processor."""

import os
import sys
from functools import cache
from time import perf_counter
from timeit import repeat
from typing import Any, NamedTuple

import baselines
import numba
import numpy as np

from mu2mpi import Experiment
from mu2mpi.core.parallel import Communicator, block_range
from mu2mpi.data.partition import iid_rows
from mu2mpi.data.source import DataSource
from mu2mpi.execution.plan import open_source_on_ranks, resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    add_noise,
    key_to_uint32,
    padded_zeros,
    root_key,
)

KEY = key_to_uint32(root_key(1))
D = 7850
TRAINING_SAMPLES = 60_000
SMALLER = 20 if "--small" in sys.argv else 1  # divisor of all work

MACHINE_ROUNDS = TRAINING_SAMPLES // SMALLER
RESULTS = 2368 // SMALLER  # files of the task "table"
SIZES = {"mnist": {}, "synthetic": {"samples": MACHINE_ROUNDS, "features": 784, "classes": 10}}
STEPS = 8  # dependent operations between a load and its store, few enough to overlap with those of others


def data() -> str:
    """Return "mnist" if `MU2MPI_DATA_DIR` is set, else "synthetic", a population of the same size."""
    return "mnist" if "MU2MPI_DATA_DIR" in os.environ else "synthetic"


@cache
def source(name: str) -> DataSource:
    """Open a data source on this rank alone."""
    return open_source_on_ranks(Experiment(data=name, **SIZES[name]), None, Communicator())


class Timed(NamedTuple):
    """Seconds of a run in total, and by phase as means over ranks."""

    total: float
    phases: dict[str, float]


def run(experiment: Experiment, communicator: Communicator, of: DataSource | None = None) -> Timed:
    """Time the rounds and evaluations of a run, without its start-up."""
    plan = resolve_plan(experiment, of or source(experiment.data), communicator.size)
    simulation = Simulation(plan, communicator)
    communicator.barrier()
    started = perf_counter()
    result = simulation.run()
    total = perf_counter() - started
    return Timed(total, {phase: float(seconds.mean()) for phase, seconds in result.timing.items()})


def experiment(server: str, machines: int, **options: Any) -> Experiment:
    """Run of the paper's tables with a trust mode and a number of machines."""
    name = data()
    settings = {**SIZES[name], "rounds": MACHINE_ROUNDS // machines, **options}
    return Experiment(data=name, **settings, server=server, machines=machines, rho=4.0, seed=1)


def baseline(server: str, machines: int, machine_rounds: int, comm: Any = None) -> float:
    """Return the seconds per machine-round of numpy, or of mpi4py and numpy."""
    name = data()
    of, rank, size = source(name), comm.rank if comm else 0, comm.size if comm else 1
    constants = resolve_plan(experiment(server, machines), of, size).constants
    rounds = machine_rounds // machines
    hosted_machines = block_range(machines, size, rank)
    rows = iid_rows(of.training_samples, machines, rounds, bytes(32), hosted_machines)
    samples = of.read_training(rows.ravel())
    features = samples.features.reshape(*rows.shape, -1)
    labels = samples.labels.reshape(rows.shape)
    return baselines.seconds(constants, features, labels, of.feature_scale, rounds, comm) / rounds / machines


def numpy_full_batch() -> float:
    """Seconds of numpy for the gradients of all training samples, as products of float32 matrices."""
    of = source(data())
    samples = of.read_training(np.arange(of.training_samples))
    z = np.ones((of.training_samples, samples.features.shape[1] + 1), dtype=np.float32)
    z[:, :-1] = samples.features * np.float32(of.feature_scale)
    return min(repeat(lambda: baselines.full_batch_gradient(z, samples.labels, 10), repeat=3, number=1))


def per_normal(draw: Any, count: int) -> float:
    """Return the seconds per normal, in draws of d normals."""
    started = perf_counter()
    for k in range(count):
        draw(k)
    return (perf_counter() - started) / (count * D)


def generators() -> dict[str, Any]:
    """Return functions that draw d normals, by name of the generator."""
    sfc = np.random.Generator(np.random.SFC64(1))
    philox = np.random.Generator(np.random.Philox(1))
    (noised, _), (message, _) = padded_zeros((1, D)), padded_zeros((1, D))
    return {
        "ours": lambda k: add_noise(noised, message, KEY, MACHINE_STREAM, 1, 1, k, 2.0**20),
        "SFC64": lambda _: sfc.standard_normal(D),
        "Philox": lambda _: philox.standard_normal(D),
    }


@numba.njit(fastmath={"contract"})
def _multiply_add(n):  # type: ignore[no-untyped-def]
    v = np.arange(512.0)
    for _ in range(n):
        for j in range(v.size):
            a = v[j]
            for _ in range(STEPS):
                a = a * 0.999 + 0.5
            v[j] = a
    return v[0]


@numba.njit
def _add_xor_rotate(n):  # type: ignore[no-untyped-def]
    v = np.arange(512).astype(np.uint32)
    for _ in range(n):
        for j in range(v.size):
            a, b = v[j], numba.uint32(j)
            for _ in range(STEPS // 2):
                a = numba.uint32(a + b)
                b = numba.uint32(b ^ a)
                b = numba.uint32(numba.uint32(b << numba.uint32(7)) | numba.uint32(b >> numba.uint32(25)))
            v[j] = a ^ b
    return v[0]


@numba.njit(fastmath=True)
def _copy(x, y, n):  # type: ignore[no-untyped-def]
    for _ in range(n):
        for j in range(x.size):
            y[j] = 2.0 * x[j]


def limits() -> dict[str, float]:
    """Return a core's fused multiplications, integer operations and cached bytes per second."""
    x, y = np.zeros(D), np.zeros(D)
    timed = (
        ("multiplications", lambda: _multiply_add(500), 500 * 512 * STEPS),
        ("integer operations", lambda: _add_xor_rotate(500), 500 * 512 * (STEPS // 2 * 3 + 1)),
        ("bytes", lambda: _copy(x, y, 300), 300 * 16 * D),
    )
    return {name: amount / min(repeat(call, call, repeat=5, number=1)) for name, call, amount in timed}
