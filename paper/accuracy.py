"""Runs behind the accuracy figure and the comparison with the published tables."""

import csv
import io
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mu2mpi
from mu2mpi.analysis.runs import Runs

TRUST_MODES = ["untrusted", "aggregated", "shuffled", "trusted"]
JOBS = Path(mu2mpi.__file__).with_name("jobs")

PRACTICAL = {"preset": "practical", "method": "mu2-sgd", "delta": 1e-5, "evaluations": 1}
FULL = {
    "data": "mnist",
    "machines": [10, 100],
    "epsilon": [0.5, 1.0, 2.0, 4.0, 8.0],
    "seed": [1, 2, 3, 4, 5],
}
SMALL = {"data": "digits", "machines": [4], "epsilon": [1.0, 8.0], "seed": [1, 2]}

TABLES_FULL = {"seed": [1, 2, 3, 4, 5]}
TABLES_SMALL = {"server": "trusted", "machines": [100], "rho": [8.0, 16.0], "seed": [1, 2]}


def measure_accuracy(folder: Path, small: bool) -> dict[str, Any]:
    """Return mean and deviation over seeds of the test accuracy in %, by M, trust mode and epsilon."""
    settings = {**PRACTICAL, **(SMALL if small else FULL)}
    private = mu2mpi.sweep({**settings, "server": TRUST_MODES}, output=folder / "private")
    budgets = {"server": "trusted", "rho": float("inf")}
    without_noise = {name: value for name, value in settings.items() if name not in ("epsilon", "delta")}
    exact = mu2mpi.sweep({**without_noise, **budgets}, output=folder / "without-noise")
    return {
        "settings": settings,
        "private": _statistics(private, ("machines", "server", "epsilon")),
        "without_noise": _statistics(exact, ("machines",)),
    }


def _statistics(runs: Runs, keys: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Group runs by settings, joined by blanks, and summarise their test accuracies."""
    groups = defaultdict(list)
    for row in runs.to_dataframe().to_dict("records"):
        groups[" ".join(f"{row[key]:g}" if key != "server" else row[key] for key in keys)].append(
            100 * row["test_accuracy"]
        )
    return {
        name: {"mean": statistics.mean(values), "std": statistics.stdev(values), "seeds": len(values)}
        for name, values in groups.items()
    }


def measure_tables(folder: Path, small: bool) -> dict[str, Any]:
    """Compare mean losses and accuracies of jobs/tables.toml with the values that the paper states."""
    settings = tomllib.loads((JOBS / "tables.toml").read_text()) | (TABLES_SMALL if small else TABLES_FULL)
    runs = mu2mpi.sweep(settings, output=folder / "tables")
    rows = list(csv.DictReader(io.StringIO(runs.table(format="csv"))))
    return {"seeds": len(settings["seed"]), "cells": len(rows), **_differences(rows)}


def _differences(rows: list[Mapping[str, str]]) -> dict[str, float]:
    """Return the largest differences between means over seeds and the paper's values."""
    loss = [abs(float(row["test_loss_mean"]) - float(row["test_loss_paper"])) for row in rows]
    accuracy = [abs(float(row["test_accuracy_mean"]) - float(row["test_accuracy_paper"])) for row in rows]
    return {"largest_loss_difference": max(loss), "largest_accuracy_difference": 100 * max(accuracy)}
