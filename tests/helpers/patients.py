"""A table of patients whose columns have very different ranges, with a class and a number to learn."""

import csv

import numpy as np

from mu2mpi import Experiment, run

COLUMNS = """
[columns.id]
type = "ignored"
[columns.age]
type = "numeric"
low = 18
high = 90
[columns.dose]
type = "numeric"
low = 0
high = 0.001
[columns.sex]
type = "categorical"
categories = ["f", "m"]
[columns.smoker]
type = "boolean"
[columns.stage]
type = "ordinal"
categories = ["I", "II", "III"]
"""

LABELS = {
    "classes": """
[columns.outcome]
type = "label"
classes = ["well", "ill"]
[columns.cost]
type = "ignored"
""",
    "numbers": """
[columns.outcome]
type = "ignored"
[columns.cost]
type = "label"
low = 0
high = 6000
""",
}

FEATURES = ("age", "dose", "sex", "smoker", "stage")


def table(n=600, seed=0):
    """Return columns by name: text, and numbers of which some are missing or beyond their range."""
    draw = np.random.default_rng(seed)
    age, dose = draw.uniform(15, 95, n), draw.uniform(0, 0.001, n)
    age[::50] = np.nan
    stage = draw.integers(0, 3, n)
    smoker, sex = draw.integers(0, 2, n), draw.integers(0, 2, n)
    score = (
        0.06 * (np.nan_to_num(age, nan=54) - 54) + 1500 * (dose - 0.0005) + smoker + 0.5 * (stage - 1) + sex
    )
    outcome = np.where(draw.random(n) < 1 / (1 + np.exp(-score)), "ill", "well")
    return {
        "id": np.arange(n),
        "age": age,
        "dose": dose,
        "sex": np.array(["f", "m"])[sex],
        "smoker": np.array(["no", "yes"])[smoker],
        "stage": np.array(["I", "II", "III"])[stage],
        "outcome": outcome,
        "cost": np.clip(2500 + 600 * score + draw.normal(0, 100, n), 0, 6000),
    }


def write(path, columns):
    """Write a CSV file; what is no number is missing."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        cells = (
            [("" if value != value else value) for value in column.tolist()] for column in columns.values()
        )
        writer.writerows(zip(*cells, strict=True))
    return path


def learn(folder, labels="classes", output=None, **settings):
    """Return the result of a run that tests on a file of its own, `test.csv`."""
    for name, seed in (("patients", 0), ("test", 1)):
        write(folder / f"{name}.csv", table(seed=seed))
    schema = folder / f"{labels}.toml"
    schema.write_text('test = "test.csv"\n' + COLUMNS + LABELS[labels])
    loss = "logistic" if labels == "classes" else "squared"
    base = {"loss": loss, "machines": 2, "server": "trusted", "rho": 16.0, "diameter": 4.0, "seed": 1}
    experiment = Experiment(data=str(folder / "patients.csv"), schema=str(schema), **{**base, **settings})
    return run(experiment, output=output)
