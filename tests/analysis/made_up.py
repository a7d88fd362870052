"""Summaries of runs whose excess losses follow the theorems' rates by construction."""

import itertools
import math
from pathlib import Path

import numpy as np

from mu2mpi.experiment import Experiment
from mu2mpi.results.reader import Summary

PROBLEMS = (0.5, 0.75, 0.875, 0.9375, 0.96875)


def rate_run(excess_loss, seed, **settings):
    """Return a summary as of a run on a population of 7 features, without a file."""
    base = {"data": "population", "features": 7, "classes": 4, "machines": 4, "rounds": 400, "seed": seed}
    experiment = Experiment(**{**base, **settings})
    figures = {
        "parameters": 8 * experiment.classes,
        "excess_loss": excess_loss,
        "excess_loss_bound": 30 * excess_loss,
    }
    return Summary(Path("made-up.h5"), experiment, "", 1.0, 0.5, figures)


def rate_runs(seeds=5, spread=0.1):
    """Return runs of several problems without noise, and of one with noise on both servers."""
    rng = np.random.default_rng(0)

    def luck():
        return math.exp(spread * rng.standard_normal())

    runs = []
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
