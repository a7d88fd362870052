"""What mu2mpi learns by its practical presets from tables that scripts/tables.py wrote, five seeds each.

python scripts/ours.py FOLDER [NAME ...] > ours.csv
"""

import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mu2mpi import Experiment, run
from mu2mpi.data.schema import read_schema

EPSILONS, SEEDS = (1.0, 4.0), range(1, 6)
METHODS = ("mu2-sgd", "dp-sgd")
MEASURES = ("accuracy", "auc", "r2", "rmse")


def losses(path: Path) -> Iterator[str]:
    """Yield the loss for a label, or two for counts."""
    schema = read_schema(path)
    if schema.class_names is not None:
        yield "logistic"
    else:
        yield "squared"
        if path.stem == "doctors":
            yield "poisson"


def main(folder: Path, wanted: list[str]) -> None:
    """Print a line for each run."""
    print("table,samples,model,epsilon,seed,accuracy,auc,r2,rmse,loss,rounds,seconds")
    for path in sorted(folder.glob("*.toml")):
        if wanted and path.stem not in wanted:
            continue
        for loss in losses(path):
            for method in METHODS:
                for epsilon in EPSILONS:
                    for seed in SEEDS:
                        experiment = Experiment(
                            data=str(path.with_suffix(".csv")),
                            schema=str(path),
                            loss=loss,
                            method=method,
                            preset="practical",
                            server="trusted",
                            machines=10,
                            epsilon=epsilon,
                            seed=seed,
                            evaluations=1,
                        )
                        started = time.perf_counter()
                        with contextlib.redirect_stderr(io.StringIO()):
                            result = run(experiment)
                        seconds = time.perf_counter() - started
                        values = [f"{result.metrics.get(name, np.nan):.5g}" for name in MEASURES]
                        values += [f"{result.history.test_loss[-1]:.5g}", str(result.experiment.rounds)]
                        name = f"{method} {loss}"
                        samples = result.facts.samples if result.facts else 0
                        print(
                            path.stem,
                            samples,
                            name,
                            epsilon,
                            seed,
                            *values,
                            f"{seconds:.1f}",
                            sep=",",
                            flush=True,
                        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
