"""Measure the speed of mu2mpi on this machine, as ratios to programs that run beside it.

    python scripts/benchmark                  print the tables (about 10 minutes)
    python scripts/benchmark --write          and write them to docs/background/performance.md
    python scripts/benchmark --before FOLDER  and compare with another version, a checkout in FOLDER
    python scripts/benchmark --small          check that the benchmark runs; the numbers mean nothing

All programs that are compared run in turns in one job; numbers are medians over the repeats. With
MU2MPI_DATA_DIR, the data are MNIST, else a synthetic population of the same size. Requires the extra
"analysis" for the figure, and the mpirun beside the Python executable.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median

import model
import numpy as np
import roofline
import workload

from mu2mpi import Experiment
from mu2mpi.core.kernels import initialise_compiler
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.source import DataSource

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "background" / "performance.md"
FIGURE = DOCUMENT.with_name("performance.svg")
SERVERS, MACHINES = ("untrusted", "trusted"), (1, 10, 100)
ROUND_TASKS = ("untrusted, M = 1", "trusted, M = 10", "trusted, M = 100")
FULL_BATCH = "a full batch of MNIST, M = 10"
Samples = dict[str, list[float]]


def main() -> None:
    """Measure, print the tables, and write the page if requested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats [default: 5]")
    parser.add_argument("--write", action="store_true", help="write the page and its figure")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="checkout of a version to compare with")
    parser.add_argument("--small", action="store_true", help="little work, to check that the benchmark runs")
    options = parser.parse_args()
    if options.small and options.write:
        parser.error("--small measures nothing that should be written to the page")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    initialise_compiler()
    versions = {"now": HERE.parents[1]} | ({"before": options.before.resolve()} if options.before else {})
    tasks = measure_tasks(versions, options.repeats)
    alone, phases = one_process(options.repeats)
    ranks = two_ranks(options.repeats)
    fits = scaling(options.repeats)
    each, noise = median(alone["untrusted 1 ours"]), median(alone["ours per normal"]) * workload.D
    tables = {
        "machine": machine(ranks["library"]),
        "tasks": tasks_table(tasks, workload.limits()["multiplications"]),
        "one-process": one_process_table(alone),
        "two-ranks": two_ranks_table(ranks["seconds"]),
        "roofline": roofline.table(workload.limits(), phases),
        "scaling": scaling_table(fits),
        "model": model.table(each, noise),
    }
    for name, table in tables.items():
        print(f"\n{name}\n\n{table}")
    if options.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        for name, table in tables.items():
            before, mark, rest = text.partition(f"<!-- {name} -->\n")
            _, end, after = rest.partition(f"\n<!-- end of {name} -->")
            if not (mark and end):
                sys.exit(f"{DOCUMENT} has no place marked {name}")
            text = before + mark + table + end + after
        DOCUMENT.write_text(text, encoding="utf-8")
        draw(alone, fits)


def ratio(samples: Samples, upper: str, lower: str) -> float:
    """Return the median over repeats of the ratio of two measurements of the same repeat."""
    return median([u / v for u, v in zip(samples[upper], samples[lower], strict=True)])


def measure_tasks(versions: dict[str, Path], repeats: int) -> dict[str, Samples]:
    """Return the seconds of each task of `tasks.py`, by version, measured in turns."""
    samples: dict[str, Samples] = {version: {} for version in versions}
    command = [sys.executable, str(HERE / "tasks.py")]
    small = ["--small"] * (workload.SMALLER > 1)
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(repeats):
            for version, checkout in versions.items():
                environment = {**os.environ, "PYTHONPATH": str(checkout)}
                run = [*command, f"{folder}/results", *small]
                done = subprocess.run(run, stdout=subprocess.PIPE, check=True, text=True, env=environment)
                for task, seconds in json.loads(done.stdout).items():
                    samples[version].setdefault(task, []).append(seconds)
            print(f"tasks: repeat {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
    return samples


def tasks_table(samples: dict[str, Samples], multiplications_per_second: float) -> str:
    """Compare the seconds of tasks with their limits and with another version, if that was measured."""
    full_batch = 2 * workload.TRAINING_SAMPLES * workload.D / multiplications_per_second
    tasks = [
        *((f"{run}: a round", run, f"draws beside {run}", "own draws") for run in ROUND_TASKS),
        (FULL_BATCH, FULL_BATCH, full_batch, "two products for each parameter and sample"),
        (FULL_BATCH, FULL_BATCH, "numpy: a full batch in float32", "numpy, float32"),
        *((f"correlated noise, {run}", f"correlated noise, {run}", f"fresh noise, {run}", "fresh noise")
          for run in ("trusted, M = 10", "untrusted, M = 50")),
        ("start of a run", "start", "start of Python, numpy and numba", "Python, numpy and numba"),
        ("start without compiled kernels", "first start", None, ""),
        (f"table of {workload.RESULTS:,} results", "table", None, ""),
        ("account of `dp-sgd`", "account of dp-sgd", None, ""),
        ("the same with `--preset practical`", "account of dp-sgd, practical preset", None, ""),
    ]  # fmt: skip
    rows = []
    for label, task, limit, limit_label in tasks:
        cells = []
        for version in ("before", "now"):
            if version not in samples:
                cells.append("")
                continue
            seconds = samples[version][task]
            cells.append(duration(median(seconds)))
            if isinstance(limit, str):
                cells[-1] += f" ({ratio(samples[version], task, limit):.2f})"
            elif limit:
                cells[-1] += f" ({median(seconds) / limit:.2f})"
        value = median(samples["now"][limit]) if isinstance(limit, str) else limit
        rows.append([label, *cells, f"{limit_label} {duration(value)}" if value else ""])
    return markdown(["task", "before", "now", "limit or rival (ratio to it)"], rows)


def duration(seconds: float) -> str:
    """Format seconds with three digits, in µs, ms or s."""
    unit, factor = next((u for u in (("µs", 1e6), ("ms", 1e3)) if seconds * u[1] < 1000), ("s", 1.0))
    return f"{seconds * factor:.3g} {unit}"


def one_process(repeats: int) -> tuple[Samples, dict[str, dict[str, float]]]:
    """Time all runs, generators and baselines in turns; also return the phases of the last repeat."""
    samples: Samples = {}
    phases = {}
    generators = workload.generators()
    for repeat in range(repeats + 1):
        if repeat == 1:
            samples.clear()
        for server in SERVERS:
            for machines in MACHINES:
                key = f"{server} {machines}"
                for name, draw in generators.items():
                    samples.setdefault(f"{name} per normal", []).append(workload.per_normal(draw, 100))
                    samples.setdefault(f"{key} {name} draws", []).append(samples[f"{name} per normal"][-1])
                timed = workload.run(workload.experiment(server, machines), Communicator())
                samples.setdefault(f"{key} ours", []).append(timed.total / workload.MACHINE_ROUNDS)
                phases[key] = {**timed.phases, "all": timed.total}
                beside = workload.baseline(server, machines, 2000 // workload.SMALLER)
                samples.setdefault(f"{key} numpy", []).append(beside)
        print(f"one process: repeat {repeat} of {repeats}", file=sys.stderr, flush=True)
    return samples, phases


def two_ranks(repeats: int) -> dict:
    """Run ranks.py on two ranks."""
    mpirun = Path(sys.executable).parent / "mpirun"
    command = [str(mpirun), "-n", "2", sys.executable, str(HERE / "ranks.py"), str(repeats)]
    if workload.SMALLER > 1:
        command.append("--small")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def scaling(repeats: int) -> dict[str, tuple[list[int], list[float]]]:
    """Return the times of runs of growing T, M and d relative to the smallest run, as medians.

    Only rounds are timed, without evaluations. A run of n times the size is measured between n runs of the
    smallest size, because a shared computer executes short work faster than long work. The samples of each
    run fit into one read before the first round.
    """
    base = {"data": "synthetic", "samples": 14_400, "features": 784, "machines": 10, "classes": 10}
    base |= {"seed": 1, "evaluations": 1}
    less = workload.SMALLER
    grids: dict[str, tuple[list[int], Callable[[int], dict[str, int]]]] = {
        "T": ([90, 180, 360, 720, 1440], lambda n: {"rounds": n // less}),
        "M": ([10, 20, 40, 80, 160], lambda n: {"machines": n, "rounds": 90 // less}),
        "d": (
            [20_000, 50_000, 125_000, 300_000, 750_000],
            lambda n: {"samples": 400, "features": n // less // 10 - 1, "rounds": 12},
        ),
    }
    fits = {}
    for name, (sizes, settings) in grids.items():
        values = sizes[:3] if less > 1 else sizes
        runs = {n: Experiment(**{**base, **settings(n)}) for n in values}
        of = {n: workload.open_source_on_ranks(runs[n], None, Communicator()) for n in values}

        def seconds(n: int, runs: dict[int, Experiment] = runs, of: dict[int, DataSource] = of) -> float:
            phases = workload.run(runs[n], Communicator(), of[n]).phases
            return sum(spent for phase, spent in phases.items() if phase != "evaluation")

        ratios: dict[int, list[float]] = {n: [] for n in values}
        for _ in range(repeats):
            for n in values:
                before, after = (range((n // values[0] + extra) // 2) for extra in (0, 1))
                smallest = [seconds(values[0]) for _ in before]
                this = seconds(n)
                smallest += [seconds(values[0]) for _ in after]
                ratios[n].append(this / mean(smallest))
        fits[name] = values, [median(ratios[n]) for n in values]
        print(f"scaling with {name}: done", file=sys.stderr, flush=True)
    return fits


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    """Format a table in markdown."""
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def machine(library: str) -> str:
    """Describe the computer and the libraries of the measurement."""
    public_facts = Path("/proc/cpuinfo")
    lines = public_facts.read_text().splitlines() if public_facts.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return (
        f"{(names or ['unknown'])[0]}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, {library}; data: {workload.data()}."
    )


def one_process_table(samples: Samples) -> str:
    """Compare runs with the normals that they need, of three generators, and with numpy."""
    rows = []
    for server in SERVERS:
        for machines in MACHINES:
            key = f"{server} {machines}"
            each = median(samples[f"{key} ours"])
            # The normals of a machine-round: d for each machine, or for the server.
            share = workload.D if server == "untrusted" else workload.D / machines
            against = [
                f"{ratio(samples, f'{key} ours', f'{key} {name} draws') / share:.2f}"
                for name in ("ours", "SFC64")
            ]
            numpy = f"{ratio(samples, f'{key} numpy', f'{key} ours'):.1f}"
            rows.append([server, str(machines), f"{1 / each:,.0f}", f"{each * 1e6:.1f}", *against, numpy])
    headings = ["server", "M", "machine-rounds/s", "µs each", "time / own draws", "time / SFC64 draws"]
    table = markdown([*headings, "times as fast as numpy"], rows)
    nanoseconds = {name: median(samples[f"{name} per normal"]) * 1e9 for name in ("ours", "SFC64", "Philox")}
    times = ", ".join(f"{name} {value:.2f} ns" for name, value in nanoseconds.items())
    faster = [
        f"{ratio(samples, f'{name} per normal', 'ours per normal'):.2f} × {name}"
        for name in ("SFC64", "Philox")
    ]
    return f"{table}\n\nA normal: {times}. The stream is as fast as {' and '.join(faster)}."


def two_ranks_table(samples: Samples) -> str:
    """Compare two ranks with one, and with mpi4py and numpy, with shares of time by phase."""
    rows, phases = [], ("compute", "noise", "step", "communication", "waiting", "evaluation")
    for server in SERVERS:
        for machines in (2, 10, 100):
            key = f"{server} {machines}"
            if f"{key} together" not in samples:
                continue
            row = [server, str(machines), f"{1 / median(samples[f'{key} together']):,.0f}"]
            row.append(f"{ratio(samples, f'{key} alone', f'{key} together'):.2f}")
            numpy = f"{key} numpy" in samples
            row.append(f"{ratio(samples, f'{key} numpy', f'{key} together'):.1f}" if numpy else "")
            rows.append(row + [f"{median(samples[f'{key} {phase}']):.1%}" for phase in phases])
    headings = ["server", "M", "machine-rounds/s", "times as fast as one rank"]
    return markdown([*headings, "times as fast as mpi4py + numpy", "increments", *phases[1:]], rows)


def scaling_table(fits: dict[str, tuple[list[int], list[float]]]) -> str:
    """Fit exponents of time against size, with standard errors."""
    rows = []
    for name, (values, ratios) in fits.items():
        (slope, _), covariance = np.polyfit(np.log(values), np.log(ratios), 1, cov=True)
        error = np.sqrt(covariance[0, 0])
        rows.append([name, f"{values[0]:,} to {values[-1]:,}", f"{slope:.3f} ± {error:.3f}"])
    return markdown(["time grows with", "from", "exponent"], rows)


def draw(samples: Samples, fits: dict[str, tuple[list[int], list[float]]]) -> None:
    """Draw the figure of speeds and scaling."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    keys = [f"{server} {machines}" for server in SERVERS for machines in MACHINES]
    looks = (("mu2mpi", "ours", "#0072B2", ""), ("plain numpy", "numpy", "#E69F00", "//"))
    for shift, (label, who, colour, hatch) in enumerate(looks):
        places = np.arange(len(keys)) + 0.4 * shift
        heights = [1 / median(samples[f"{key} {who}"]) for key in keys]
        left.bar(places, heights, 0.4, label=label, color=colour, hatch=hatch, edgecolor="white")
    left.set_yscale("log")
    left.set_xticks(np.arange(len(keys)) + 0.2, [key.replace(" ", "\nM = ") for key in keys], fontsize=7)
    left.set_ylabel("machine-rounds per second")
    left.legend(frameon=False, loc="upper left")
    for (name, (values, ratios)), look in zip(fits.items(), ("oC0", "sC3", "^C2"), strict=True):
        right.loglog(np.array(values) / values[0], ratios, f"{look}-", label=f"with {name}")
    right.loglog([1, 40], [1, 40], color="0.6", linestyle=":", label="linear")
    right.set_xlabel("size (smallest = 1)")
    right.set_ylabel("time of a run (smallest = 1)")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    plt.rcParams["svg.hashsalt"] = "mu2mpi"
    figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
