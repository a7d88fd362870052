"""Speed of mu2mpi beside that of other packages: the same algorithm, model, samples, noise and steps.

Both sides run alternately in processes of one thread on the same core. Times cover the rounds and one
evaluation on the test set, without start-up, compilation and data loading. Ratios are medians over
neighbouring runs.
"""

import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from mu2mpi import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import Plan, open_source_on_ranks, resolve_plan
from mu2mpi.execution.simulation import Simulation

RIVALS = Path(__file__).with_name("rivals.py")
COMMON = {"preset": "practical", "delta": 1e-5, "evaluations": 1}
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Task(NamedTuple):
    """A run of mu2mpi, and the package that does the same."""

    label: str
    rival: str
    settings: dict[str, Any]


def tasks(small: bool) -> dict[str, Task]:
    """Return the tasks by name: of seconds on MNIST, or of moments and with little noise on digits."""
    data, machines, batch, epsilon = ("digits", 4, 50, 100.0) if small else ("mnist", 100, 600, 2.0)
    rounds = [300, 300, 20, 60] if small else [300, 300, 20, 300]
    common = {**COMMON, "data": data, "epsilon": epsilon}
    federation = {**common, "machines": machines}
    one_sample = {**federation, "method": "parallel-sgd"}
    all_samples = {**federation, "method": "dp-gd", "momentum": 0.0, "tail": 1.0}
    batches = {**common, "machines": 1, "method": "dp-sgd", "batch": batch}
    return {
        name: Task(label, rival, {**settings, "server": server, "rounds": t})
        for (name, label, rival, settings, server), t in zip(
            (
                ("trusted", "one sample per machine and round, trusted", "pfl", one_sample, "trusted"),
                ("untrusted", "one sample per machine and round, untrusted", "pfl", one_sample, "untrusted"),
                ("full_batch", "all samples in each round, trusted", "pfl", all_samples, "trusted"),
                ("dp_sgd", "DP-SGD, Poisson batches", "jax-privacy", batches, "trusted"),
            ),
            rounds,
            strict=True,
        )
    }


class Ours:
    """A task of mu2mpi, whose data are read and whose kernels are compiled."""

    def __init__(self, task: Task) -> None:
        experiment = Experiment(**task.settings, seed=1)
        self.source = open_source_on_ranks(experiment, None, Communicator())
        self.plan = resolve_plan(experiment, self.source, 1)
        self.run()

    def run(self) -> tuple[float, float]:
        """Return seconds and test accuracy of one run."""
        simulation = Simulation(self.plan, Communicator())
        started = perf_counter()
        result = simulation.run()
        return perf_counter() - started, float(result.history.test_accuracy[-1])


def write_data(ours: Ours, path: Path) -> None:
    """Write scaled samples with their bias feature, in single precision, and their labels."""
    source, scaling, arrays = ours.source, ours.plan.constants.problem.feature_scaling, {}
    for prefix, split, count in (
        ("", "training", source.training_samples),
        ("test_", "test", source.test_samples),
    ):
        samples = source.read(split, np.arange(count))
        scaled = scaling.scaled_samples(samples.features, source.feature_scale)
        arrays |= {f"{prefix}z": scaled.astype(np.float32), f"{prefix}labels": samples.labels}
    np.savez(path, **arrays)


def rival_settings(rival: str, plan: Plan) -> dict[str, Any]:
    """Return what a package needs to do the same as a plan of mu2mpi."""
    constants, problem = plan.constants, plan.constants.problem
    return {
        "rival": rival,
        "machines": problem.machines,
        "server": problem.server,
        "rounds": constants.rounds,
        "batch": int(constants.mechanism.batch_size),
        "classes": problem.classes,
        "clip_norm": constants.mechanism.clip_norm,
        "sigma": constants.mechanism.sigma,
        "step": constants.step_size(1) / problem.machines / constants.mechanism.batch_size,
    }


def measure_speed(rivals_python: str, repeats: int, small: bool) -> dict[str, Any]:
    """Return seconds, accuracies and ratios of all tasks, with versions and the processor."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chosen = tasks(small)
    prepared = {name: Ours(task) for name, task in chosen.items()}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data.npz")
        write_data(next(iter(prepared.values())), data)
        command = [rivals_python, str(RIVALS), str(data)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | SINGLE_THREAD
        ) as process:
            sent, answered = process.stdin, process.stdout
            assert sent is not None
            assert answered is not None

            def ask(request: dict[str, Any]) -> dict[str, Any]:
                print(json.dumps(request), file=sent, flush=True)
                answer: dict[str, Any] = json.loads(answered.readline())
                return answer

            measured = {
                name: _measure_task(task, prepared[name], ask, repeats) for name, task in chosen.items()
            }
            sent.close()
    return {"repeats": repeats, "machine": _machine(), "tasks": measured}


def _measure_task(
    task: Task, ours: Ours, ask: Callable[[dict[str, Any]], dict[str, Any]], repeats: int
) -> dict[str, Any]:
    request = rival_settings(task.rival, ours.plan)
    versions = f"{task.rival} {ask(request)['version']}"
    own, other = [], []
    for _ in range(repeats):
        own.append(ours.run())
        answer = ask(request)
        other.append((answer["seconds"], answer["accuracy"]))
    ratios = [b[0] / a[0] for a, b in zip(own, other, strict=True)]
    return {
        "label": task.label,
        "rival": versions,
        "ratio": statistics.median(ratios),
        "ratios": sorted(ratios),
        "seconds": [statistics.median(run[0] for run in runs) for runs in (own, other)],
        "accuracy": [100 * statistics.mean(run[1] for run in runs) for runs in (own, other)],
    }


def _machine() -> str:
    """Describe processor and software."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    packages = ", ".join(f"{name} {version(name)}" for name in ("mu2mpi", "numpy", "numba"))
    return f"{model or platform.machine()}, Python {platform.python_version()}, {packages}"
