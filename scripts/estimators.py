"""Estimators of mu2mpi.sklearn, scikit-learn (not private) and diffprivlib on five tables of scikit-learn.

    python scripts/estimators.py mu2mpi > ours.csv
    python scripts/estimators.py diffprivlib > rivals.csv   # in an environment of its own
    python scripts/estimators.py table ours.csv rivals.csv  # the table of docs/background/tables.md

All get the same bounds, which follow from the meaning of the columns, and the same split. Features are scaled
by the bounds to [-1, 1] beforehand, so that diffprivlib's data_norm is the root of the number of columns.
"""

import csv
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets, linear_model
from sklearn.model_selection import train_test_split

Array = NDArray[Any]
# Radius (nuclei are at most 30 wide), texture (grey levels), perimeter, area; the others are shares
CANCER = np.array([30, 50, 200, 2800, 0.2, 0.5, 0.5, 0.25, 0.4, 0.1])
# Low and high of each feature, in the units of the columns
BOUNDS: dict[str, tuple[Any, Any]] = {
    "breast_cancer": (0, np.concatenate([CANCER, CANCER / 10, CANCER * 1.5])),
    "diabetes": (-0.2, 0.2),  # columns of mean 0 and norm 1 over 442 rows
    "digits": (0, 16),
    "iris": (np.array([4, 2, 1, 0]), np.array([8, 5, 7, 3])),  # cm
    "wine": (
        np.array([10, 0, 1, 5, 50, 0, 0, 0, 0, 0, 0, 1, 200]),
        np.array([16, 8, 4, 35, 200, 5, 6, 1, 5, 15, 2, 5, 2000]),
    ),
}
LABEL_BOUNDS = {"diabetes": (0, 400)}
EPSILONS, SEEDS = (1.0, 4.0), range(1, 6)


def models(package: str, name: str, columns: int) -> Iterator[tuple[str, float, int, Any]]:
    """Yield models of a package with their names, epsilons and seeds."""
    labels = LABEL_BOUNDS.get(name)
    if package == "mu2mpi":
        from mu2mpi.sklearn import DPClassifier, DPRegressor

        plain = linear_model.LogisticRegression(C=1e6, max_iter=10_000)
        yield "no privacy", np.inf, 0, linear_model.LinearRegression() if labels else plain
        methods = {"method": "dp-gd"}, {"method": "dp-sgd"}, {"method": "mu2-sgd"}, {"method": "ada-ssp"}
    else:
        from diffprivlib import models as private

        methods = ({},)
    for own, epsilon, seed in product(methods, EPSILONS, SEEDS):
        common = {"epsilon": epsilon, "random_state": seed}
        if package == "mu2mpi":
            common |= {"machines": 1, **own}
            model = DPRegressor(label_bounds=labels, **common) if labels else DPClassifier(**common)
        elif labels:
            model = private.LinearRegression(bounds_X=(-1, 1), bounds_y=labels, **common)
        else:
            model = private.LogisticRegression(data_norm=columns**0.5, max_iter=1000, **common)
        yield own.get("method") or package, epsilon, seed, model


def measure(package: str) -> None:
    """Print a line for each fit: accuracy, or R2 of a regression."""
    print("table,rows,model,epsilon,seed,score")
    for name, (low, high) in BOUNDS.items():
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        scaled = np.clip((2 * X - low - high) / (high - low), -1, 1)
        classes = None if name in LABEL_BOUNDS else y
        X_train, X_test, y_train, y_test = train_test_split(
            scaled, y, test_size=0.2, random_state=0, stratify=classes
        )
        for model_name, epsilon, seed, model in models(package, name, X.shape[1]):
            score = model.fit(X_train, y_train).score(X_test, y_test)
            print(name, len(y_train), model_name, epsilon, seed, f"{score:.5g}", sep=",", flush=True)


def print_table(paths: list[str]) -> None:
    """Print mean and standard deviation over seeds in Markdown."""
    scores: dict[tuple[str, ...], list[float]] = defaultdict(list)
    rows = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in csv.DictReader(file):
                scores[line["table"], line["epsilon"], line["model"]].append(float(line["score"]))
                rows[line["table"]] = line["rows"]
    columns = "no privacy", "diffprivlib", "dp-gd", "dp-sgd", "mu2-sgd", "ada-ssp"
    print(f"| table | rows | ε | {' | '.join(columns)} |\n{'| --- ' * 9}|")
    for name, epsilon in product(BOUNDS, EPSILONS):
        cells = []
        for model in columns:
            budget = np.inf if model == "no privacy" else epsilon
            found = np.array(scores[name, str(budget), model])
            digits, factor = (2, 1) if name in LABEL_BOUNDS else (1, 100)
            text = f"{factor * found.mean():.{digits}f}"
            text += f" ± {factor * found.std(ddof=1):.{digits}f}" if len(found) > 1 else ""
            cells.append(text if found.mean() > -1 else f"{found.max():.0e} at best")
        print(f"| {name} | {rows[name]} | {epsilon:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "table":
        print_table(sys.argv[2:])
    else:
        measure(sys.argv[1])
