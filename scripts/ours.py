"""What mu2mpi learns by its practical presets from tables that scripts/tables.py wrote, five seeds each.

python scripts/ours.py FOLDER [NAME ...] > ours.csv
"""

import contextlib
import io
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

from mu2mpi import Experiment, run
from mu2mpi.data.table_schema import read_schema

OURS = {"preset": "practical", "server": "trusted", "machines": 10, "evaluations": 1}


def main(folder: Path, wanted: list[str]) -> None:
    """Print a line for each run."""
    print("table,samples,model,epsilon,seed,accuracy,auc,r2,rmse,loss,rounds,seconds")
    for path in sorted(folder.glob("*.toml")):
        if wanted and path.stem not in wanted:
            continue
        has_classes = read_schema(path).label[1].classes is not None
        losses = ["logistic"] if has_classes else ["squared", "poisson"][: 1 + (path.stem == "doctors")]
        data = {"data": str(path.with_suffix(".csv")), "schema": str(path)}
        for loss, method, epsilon, seed in product(
            losses, ("mu2-sgd", "dp-sgd", "ada-ssp"), (1.0, 4.0), range(1, 6)
        ):
            experiment = Experiment(**OURS, **data, loss=loss, method=method, epsilon=epsilon, seed=seed)
            started = time.perf_counter()
            with contextlib.redirect_stderr(io.StringIO()):
                result = run(experiment)
            seconds = time.perf_counter() - started
            measures = [result.metrics.get(name, np.nan) for name in ("accuracy", "auc", "r2", "rmse")]
            values = [f"{value:.5g}" for value in (*measures, result.history.test_loss[-1])]
            samples = result.public_facts.samples if result.public_facts else 0
            about = path.stem, samples, f"{method} {loss}", epsilon, seed
            print(*about, *values, result.experiment.rounds, f"{seconds:.1f}", sep=",", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
