"""Summaries of runs whose losses and gradients follow the theorems by construction."""

import csv
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from mu2mpi.analysis.tables import build_table
from mu2mpi.config.experiment import Experiment
from mu2mpi.results.reader import RunSummary

PROBLEMS = (0.5, 0.75, 0.875, 0.9375, 0.96875)


def rate_run(excess_loss, seed, **settings):
    """Return a summary as of a run on a population of 7 features, without a file."""
    base = {"data": "population", "features": 7, "classes": 4, "machines": 4, "rounds": 400, "seed": seed}
    experiment = Experiment(**{name: v for name, v in {**base, **settings}.items() if v is not None})
    figures = {"excess_loss": excess_loss, "excess_loss_bound": 30 * excess_loss}
    figures["parameters"] = 8 * experiment.classes
    return RunSummary(Path("made-up.h5"), experiment, "", 1.0, 0.5, figures)


def rate_runs(seeds=5, spread=0.1):
    """Return runs of several problems without noise, and of one with noise on both servers."""
    rng, runs = np.random.default_rng(0), []

    def luck():
        return math.exp(spread * rng.standard_normal())

    points = [(100, 4), (400, 4), (1600, 4), (400, 1), (400, 16)]
    for seed, noise, (T, M) in itertools.product(range(seeds), PROBLEMS, points):
        # The signal of a problem against what TM samples tell of it: it is worst where they are equal.
        loss = (1 - noise) / (1 + (1 - noise) ** 2 * T * M / 50) * luck()
        runs.append(rate_run(loss, seed, label_noise=noise, rounds=T, machines=M, rho=math.inf))
    private = [(T, M, 4, 1.0) for T, M in points]
    private += [(400, 4, 16, 1.0), (400, 4, 64, 1.0), (400, 4, 4, 0.5), (400, 4, 4, 2.0)]
    for seed, server, (T, M, K, rho) in itertools.product(range(seeds), ("untrusted", "trusted"), private):
        shared = M if server == "trusted" else math.sqrt(M)
        loss = math.sqrt(8 * K) / (rho * T * shared) * luck()
        runs.append(rate_run(loss, seed, server=server, rounds=T, machines=M, classes=K, rho=rho))
    return runs


METHODS: dict[str, tuple[dict[str, Any], float, float]] = {
    "μ²-SGD": ({}, 2.0, 1.0),
    "STORM": ({"query": "iterate", "clip_norm": 1.0}, 2.0, 1.0),
    "Anytime-SGD": ({"estimator": "gradient"}, 1.0, 1.0),
    "noisy parallel SGD": ({"estimator": "gradient", "query": "iterate"}, 1.0, 1.0),
    "noisy minibatch SGD": ({"method": "noisy-minibatch-sgd"}, 0.1, 1.5),
    "DP-SGD": ({"method": "dp-sgd"}, 20.0, 1.0),
    "objective perturbation (output alone)": ({"method": "objective-perturbation"}, 40.0, 1.0),
}
"""Settings of each method, and by which factor and exponent its gradients grow with the samples."""


def comparison_run(size, seed=1, factor=1.0, exponent=1.0, epsilon_exact=2.0, **settings):
    """Return a summary as of a run on so many samples, without a file."""
    base = {"data": "synthetic", "server": "trusted", "machines": 4, "epsilon": 2.0, "samples": size}
    experiment = Experiment(**{**base, "rounds": size // 4, "seed": seed, **settings})
    figures = {"samples_used": size, "epsilon_exact": epsilon_exact}
    figures["gradient_evaluations"] = factor * size**exponent
    loss = 1 / math.sqrt(size) + 0.01 * seed
    return RunSummary(Path(f"{size}-{seed}.h5"), experiment, "", loss, 1 - loss, figures)


def comparison_runs(seeds=(1, 2, 3)):
    """Return runs of every method, of which the gradients grow as they should."""
    return [
        comparison_run(size, seed, factor, exponent, **settings)
        for settings, factor, exponent in METHODS.values()
        for size in (1000, 4000, 16_000)
        for seed in seeds
    ]


TRUSTED_TO: dict[str, Sequence[Fraction | None]] = {
    "untrusted": (None,),
    "aggregated": (Fraction(0), Fraction(1, 10), Fraction(3, 4)),
    "shuffled": (Fraction(0), Fraction(1, 10)),
    "trusted": (None,),
}
"""Trust modes, with the shares of machines that may work together with the server."""


def trust_runs(seeds=2, **settings):
    """Return runs whose excess loss is the noise of the average, once more and once less of it by seed."""
    return [
        rate_run(
            math.sqrt(noise) / M * (1 + 0.1 * (-1) ** seed),
            seed,
            **{"server": server, "machines": M, "colluders": colluders, **settings},
        )
        for server, shares in TRUSTED_TO.items()
        for share in shares
        for M in (20, 40, 200)
        for colluders in [None if share is None else int(share * M)]
        for noise in [{"untrusted": M, "trusted": 1}.get(server, 1 / (1 - (share or 0)))]
        for seed in range(seeds)
    ]


def summary(loss=2.25, accuracy=0.7, name="a.h5", created="2030-01-01T00:00:00+00:00", **settings):
    paper = {"data": "mnist", "server": "untrusted", "machines": 100, "rounds": 600, "rho": 4.0, "seed": 1}
    return RunSummary(Path(name), Experiment.from_settings({**paper, **settings}), created, loss, accuracy)


def three_seeds(**settings):
    values = [(2.2841, 0.652), (2.2851, 0.662), (2.2861, 0.648)]
    return [summary(*pair, seed=seed, **settings) for seed, pair in enumerate(values)]


def methods(losses=None, spread=0.01, **settings):
    """Return three seeds of each method on one size; the given losses, or all the same."""
    runs = []
    for name, (own, _, _) in METHODS.items():
        for seed in (1, 2, 3):
            made = comparison_run(4000, seed, **own, **settings)
            loss = (losses or {}).get(name, 1.0) + spread * (seed - 2)
            runs.append(replace(made, test_loss=loss, test_accuracy=math.exp(-loss)))
    return runs


def drawn(loss=1.0, **settings):
    """Return a run on digits whose rounds a seed may draw."""
    base = {"data": "digits", "server": "trusted", "machines": 5, "rounds": 100}
    return RunSummary(Path(f"{loss}-{settings}.h5"), Experiment(**{**base, **settings}), "", loss, 0.5)


def csv_lines(table):
    return list(csv.DictReader(table.render("csv").splitlines()))


def cells_of(text, word):
    """Return the cells of each line of a text table that has `word` for one of its cells."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    return [line for line in lines if word in line]


def seeds_of(runs):
    sections = build_table(runs).sections
    return sorted(cell.seeds for section in sections for cell in section.aggregates.values() if cell.seeds)


def plain(text):
    return " ".join(text.split())
