"""Models of scikit-learn, which are not private, and of diffprivlib, on tables that scripts/tables.py wrote.

    python scripts/rivals.py FOLDER [NAME ...] > rivals.csv

Needs scikit-learn 1.5, pandas and diffprivlib 0.6.6: with this scikit-learn, 0.6.5 adds noise that is meant
for the sum of losses to their mean. Columns are mapped as mu2mpi does by the schema: numbers by their bounds
to [-1, 1], categories to 0 or 1 each. What diffprivlib must know follows from the schema alone: data_norm is
the root of the number of columns. Its neighbours differ in one sample, which is replaced, as ours; it is
epsilon-DP with delta = 0.
"""

import sys
import tomllib
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import linear_model, metrics

Array = NDArray[np.float64]


class Encoded(NamedTuple):
    """Features of a table without the bias, their lowest values, the label and what is known of it."""

    features: Array
    lowest: Array
    columns: int
    label: NDArray[Any]
    about: dict[str, Any]


def encode(path: Path, schema: dict[str, dict[str, Any]]) -> Encoded:
    """Return a CSV file as numbers in [-1, 1]; a missing number is the middle, a missing category none."""
    table = pd.read_csv(path)
    parts: list[Array] = []
    lowest: list[float] = []
    columns, label, about = 0, np.empty(0), {}
    for name, column in schema.items():
        of = table[name]
        if column["type"] == "label":
            about = column
            if "classes" in column:
                label = of.map({c: k for k, c in enumerate(column["classes"])}).to_numpy()
            else:
                label = of.clip(column["low"], column["high"]).to_numpy(np.float64)
            continue
        columns += 1
        if column["type"] == "numeric":
            low, high = column["low"], column["high"]
            parts.append(((2 * of - low - high) / (high - low)).clip(-1, 1).fillna(0).to_numpy(np.float64))
            lowest.append(-1)
        else:
            parts += [(of == category).to_numpy(np.float64) for category in column["categories"]]
            lowest += [0] * len(column["categories"])
    return Encoded(np.stack(parts, axis=1), np.array(lowest), columns, label, about)


def measure(train: Encoded, test: Encoded, model: Any) -> dict[str, float]:
    """Return what a fitted model reaches on the test samples; losses are those of mu2mpi, in its units."""
    if "classes" in train.about:
        found = {"accuracy": model.score(test.features, test.label)}
        if hasattr(model, "decision_function"):
            score = model.decision_function(test.features)
            found["auc"] = metrics.roc_auc_score(test.label, score)
            found["loss"] = float(np.mean(np.logaddexp(0, -np.where(test.label == 1, 1, -1) * score)))
        return found
    half, guess = (train.about["high"] - train.about["low"]) / 2, model.predict(test.features)
    losses = ((guess - test.label) / half) ** 2 / 2
    if isinstance(model, linear_model.PoissonRegressor):
        losses = (guess - test.label * np.log(guess / half)) / half
    rmse = float(np.sqrt(np.mean((guess - test.label) ** 2)))
    return {"r2": metrics.r2_score(test.label, guess), "rmse": rmse, "loss": float(np.mean(losses))}


def models(train: Encoded) -> Iterator[tuple[str, float, int, Any]]:
    """Yield models with their names, epsilons and seeds."""
    from diffprivlib import models as private

    bounds = train.lowest, np.ones(len(train.lowest))
    if "classes" in train.about:
        yield "LogisticRegression", np.inf, 0, linear_model.LogisticRegression(C=1e6, max_iter=10_000)
    else:
        yield "LinearRegression", np.inf, 0, linear_model.LinearRegression()
        if train.about["low"] == 0:
            yield "PoissonRegressor", np.inf, 0, linear_model.PoissonRegressor(alpha=0, max_iter=10_000)
    for epsilon, seed in product((1.0, 4.0), range(1, 6)):
        common = {"epsilon": epsilon, "random_state": seed}
        if "classes" in train.about:
            norm = float(np.sqrt(train.columns))
            found = private.LogisticRegression(data_norm=norm, max_iter=1000, **common)
            yield "diffprivlib LogisticRegression", epsilon, seed, found
            yield "diffprivlib GaussianNB", epsilon, seed, private.GaussianNB(bounds=bounds, **common)
        else:
            limits = train.about["low"], train.about["high"]
            found = private.LinearRegression(bounds_X=bounds, bounds_y=limits, **common)
            yield "diffprivlib LinearRegression", epsilon, seed, found


def main(folder: Path, wanted: list[str]) -> None:
    """Print a line for each model."""
    warnings.simplefilter("ignore")
    print("table,samples,model,epsilon,seed,accuracy,auc,r2,rmse,loss")
    for path in sorted(folder.glob("*.toml")):
        if wanted and path.stem not in wanted:
            continue
        schema = tomllib.loads(path.read_text())["columns"]
        train, test = (encode(folder / f"{path.stem}{end}.csv", schema) for end in ("", "-test"))
        for name, epsilon, seed, model in models(train):
            found = measure(train, test, model.fit(train.features, train.label))
            values = [f"{found.get(key, np.nan):.5g}" for key in ("accuracy", "auc", "r2", "rmse", "loss")]
            print(path.stem, len(train.label), name, epsilon, seed, *values, sep=",", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
