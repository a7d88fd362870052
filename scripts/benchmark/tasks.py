"""Measure tasks of one version of mu2mpi: the one that Python imports. Prints JSON, seconds by task.

    python scripts/benchmark/tasks.py FOLDER [--small]

FOLDER holds results of runs for the task "table"; it is made if it does not exist.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import workload

from mu2mpi import Experiment, run
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.results.writer import write_result

DISTINCT_RESULTS = 37  # runs of which the other results are copies
FULL_BATCH_ROUNDS = 12 if workload.SMALLER == 1 else 2
COMMAND = [sys.executable, "-P", "-m", "mu2mpi"]  # of the version in PYTHONPATH, not in the current folder


def main(results: Path) -> None:
    """Measure every task once and print the seconds."""
    seconds = rounds()
    seconds["a full batch of MNIST, M = 10"] = full_batch()
    seconds |= correlated_draws()
    seconds["numpy: a full batch in float32"] = workload.numpy_full_batch()
    seconds |= accounts()
    seconds |= commands(results)
    print(json.dumps(seconds))


def rounds() -> dict[str, float]:
    """Measure a round of the paper's runs, and the draws of a round beside each."""
    seconds = {}
    draw = workload.generators()["ours"]
    workload.per_normal(draw, 100)
    for server, machines in (("untrusted", 1), ("trusted", 10), ("trusted", 100)):
        experiment = workload.experiment(server, machines)
        task = f"{server}, M = {machines}"
        seconds[task] = workload.run(experiment, Communicator()).total / (experiment.rounds or 1)
        seconds[f"draws beside {task}"] = workload.D * workload.per_normal(draw, 1000 // workload.SMALLER)
    return seconds


def full_batch() -> float:
    """Measure the gradients of all training samples at one model."""
    sizes = workload.SIZES[workload.data()]
    settings: dict[str, Any] = {"method": "dp-gd", "server": "trusted", "evaluations": 1, "epsilon": 2.0}
    settings |= {"data": workload.data(), "machines": 10, "rounds": FULL_BATCH_ROUNDS, "seed": 1, **sizes}
    return workload.run(Experiment(**settings), Communicator()).phases["compute"] / FULL_BATCH_ROUNDS


def correlated_draws() -> dict[str, float]:
    """Measure a round with fresh and with correlated noise of four buffers."""
    seconds = {}
    for server, machines in (("trusted", 10), ("untrusted", 50)):
        for noise, options in (
            ("fresh", {}),
            ("correlated", {"mechanism": "correlated", "noise_buffers": 4}),
        ):
            experiment = workload.experiment(
                server, machines, rounds=20_000 // workload.SMALLER // machines, **options
            )
            timed = workload.run(experiment, Communicator())
            seconds[f"{noise} noise, {server}, M = {machines}"] = timed.phases["noise"] / experiment.rounds
    return seconds


def accounts() -> dict[str, float]:
    """Measure the privacy accounts of subsampled methods, calibrated to an epsilon."""
    seconds = {}
    source = workload.source(workload.data())
    presets: dict[str, dict[str, Any]] = {"dp-sgd": {}, "dp-sgd, practical preset": {"preset": "practical"}}
    for name, options in presets.items():
        settings = {**workload.SIZES[workload.data()], "server": "trusted", "machines": 10, **options}
        started = perf_counter()
        plan = resolve_plan(
            Experiment(data=workload.data(), method="dp-sgd", epsilon=2.0, **settings), source, 1
        )
        plan.privacy_statement  # noqa: B018 - computed when it is first read
        seconds[f"account of {name}"] = perf_counter() - started
    return seconds


def commands(results: Path) -> dict[str, float]:
    """Measure the start of a run with and without compiled kernels, of Python alone, and a table."""
    make_results(results)
    with tempfile.TemporaryDirectory() as folder:
        start = [*COMMAND, "run", "--rho", "8", "--seed", "1", "--output"]
        cache = {"NUMBA_CACHE_DIR": f"{folder}/cache"}
        return {
            "first start": command_seconds([*start, f"{folder}/first.h5"], cache),
            "start": command_seconds([*start, f"{folder}/second.h5"], cache),
            "start of Python, numpy and numba": command_seconds([sys.executable, "-c", "import numba"]),
            "table": command_seconds([*COMMAND, "table", str(results)]),
        }


def command_seconds(command: list[str], variables: dict[str, str] | None = None) -> float:
    """Return the wall-clock seconds of a command, which must succeed."""
    environment = {**os.environ, **(variables or {})}
    started = perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=environment)
    return perf_counter() - started


def make_results(folder: Path) -> None:
    """Write results of small runs, and copies of them, to a folder that does not exist."""
    if folder.exists():
        return
    new = folder.with_name(f"{folder.name}.part")
    new.mkdir(parents=True)
    for n in range(workload.RESULTS):
        path = new / f"run-{n:04d}.h5"
        if n < DISTINCT_RESULTS:
            seed, machines = divmod(n, 5)
            experiment = Experiment(data="digits", machines=machines + 1, rounds=20, rho=4.0, seed=seed)
            write_result(run(experiment), path)
        else:
            shutil.copyfile(new / f"run-{n % DISTINCT_RESULTS:04d}.h5", path)
    new.rename(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
