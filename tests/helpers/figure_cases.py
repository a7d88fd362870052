"""Folders of results that are awkward to draw: long names, many values, few points, wide ranges."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from helpers.summaries import METHODS, comparison_run, comparison_runs, rate_runs, trust_runs
from mu2mpi.config.experiment import Experiment
from mu2mpi.results.reader import RunSummary
from mu2mpi.results.records import History

LONG = "measurements_of_the_second_campaign-cleaned.and.joined-2024-11-30_final_version.csv"
TITLE = "What is left of the accuracy of a model of all hospitals where none of them trusts the server: " * 2


@dataclass(frozen=True)
class Folder:
    """Results, the figures that they are drawn as, and what is said of these."""

    runs: Callable[[], list[RunSummary]]
    kinds: tuple[str, ...] = ("tradeoff", "history")
    page: dict[str, Any] = field(default_factory=dict)
    x_axis: str | None = None


def made(seed=1, test_loss=0.5, score=0.7, ranks=1, seconds=1.0, **settings):
    """Return a summary as of a run, without a file, whose loss falls to what is given."""
    experiment = Experiment(**{"data": "digits", "machines": 4, "rounds": 90, "seed": seed, **settings})
    exact = math.inf if experiment.rho == math.inf else 1.3 * (experiment.epsilon or experiment.rho)
    figures = {"epsilon_exact": exact, "ranks": ranks, "cores": 4, "elapsed_seconds": seconds, "sigma": 1.0}
    phases = ("compute", "noise", "step", "data", "communication", "waiting", "evaluation")
    figures |= {f"{phase}_seconds": seconds / 7 for phase in phases} | {"parameters": 650}
    figures["gradient_evaluations"] = 2 * experiment.machines * (experiment.rounds or 1)
    scores = (math.nan, score) if experiment.loss == "squared" else (score, math.nan)
    run = RunSummary(Path(f"{seed}.h5"), experiment, "", test_loss, scores[0], figures, scores[1])
    t = np.unique(np.geomspace(1, experiment.rounds or 1, 8).astype(np.int64))
    falls = test_loss + np.log1p(1 / t)
    columns = {name: np.full(len(t), 0.5) for name in History.__dataclass_fields__}
    columns |= {"round": t, "samples": t * experiment.machines, "gradient_evaluations": 2 * t}
    columns |= {"test_loss": falls, "test_accuracy": score / falls, "test_r2": score - falls}
    vars(run)["history"] = History(**columns)
    return run


def over(seeds=(1, 2), reached=lambda settings: 0.5, score=0.7, **values):
    """Return runs of every combination of some values."""
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    return [made(s, reached(own) * (1 + 0.05 * s), score, **own) for own in combinations for s in seeds]


def each(*settings):
    """Return two runs for each choice of settings."""
    return [made(seed, 0.4 + 0.1 * k, **one) for k, one in enumerate(settings) for seed in (1, 2)]


BOTH = ("untrusted", "trusted")
TRUST = (("untrusted", None), ("aggregated", 3), ("aggregated", 12), ("shuffled", 3), ("trusted", None))

FOLDERS = {
    "long data names": Folder(
        lambda: each({}, {"data": LONG, "schema": "a.toml"}, {"data": f"{LONG}2.csv", "schema": "a.toml"})
    ),
    "seven rho": Folder(lambda: over(rho=(0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0), server=BOTH)),
    "fifteen rho": Folder(lambda: over(rho=[0.1 * 1.2**k for k in range(15)]), ("tradeoff",)),
    "mixed methods": Folder(
        lambda: each(*({"server": "trusted", **settings} for settings, _, _ in METHODS.values())),
        ("history",),
    ),
    "a preset in one": Folder(lambda: each({}, {"preset": "practical"})),
    "a clip norm in one": Folder(lambda: each({}, {"clip_norm": 0.123456789})),
    "a partition in one": Folder(lambda: each({}, {"partition": "labels:1"}, {"partition": "iid"})),
    "all trust modes": Folder(
        lambda: each(*({"machines": 40, "server": server, "colluders": c} for server, c in TRUST)),
        ("history",),
    ),
    "colluders": Folder(
        lambda: [r for rho in (0.5, 12.5) for r in trust_runs(rho=rho)],
        ("tradeoff",),
        {"values": ["excess_loss"]},
        "machines",
    ),
    "who is there": Folder(
        lambda: over(machines=(50,), participation=("all", "uniform:10", "bernoulli:0.125"))
    ),
    "one run": Folder(lambda: [made()], ("tradeoff", "history")),
    "one round": Folder(lambda: over(rounds=(1,), rho=(1.0, 2.0))),
    "many machines": Folder(lambda: over(machines=(1, 316, 10_000, 99_999), server=BOTH, rounds=(2,))),
    "epsilon": Folder(lambda: over(epsilon=(0.26805112, 1.0, 2.0), server=BOTH)),
    "epsilon and rho": Folder(lambda: [*over(epsilon=(1.0, 2.0)), *over(rho=(1.0, 2.0))]),
    "without noise": Folder(lambda: over(rho=(math.inf, 4.0), server=BOTH)),
    "six decades": Folder(
        lambda: over(rho=(1.0, 2.0, 4.0), reached=lambda of: 10.0 ** (3 - 3 * of["rho"] / 2))
    ),
    "no decade": Folder(lambda: over(rho=(1.0, 2.0, 4.0), reached=lambda of: 2.3 + 1e-7 * of["rho"])),
    "tiny losses": Folder(lambda: over(rho=(1.0, 2.0, 4.0), reached=lambda of: 1e-9 * of["rho"])),
    "R^2 far below 0": Folder(
        lambda: over(rho=(1.0, 2.0), score=-1e6, data=(LONG,), schema=("a.toml",), loss=("squared",))
    ),
    "one size": Folder(
        lambda: [comparison_run(1000, s, **of) for of, _, _ in METHODS.values() for s in (1, 2)],
        ("tradeoff",),
    ),
    "all methods": Folder(
        comparison_runs,
        ("tradeoff",),
        {"values": ["test_loss", "test_accuracy", "gradient_evaluations"]},
    ),
    "gradients": Folder(comparison_runs, ("tradeoff",), x_axis="gradient_evaluations"),
    "rates": Folder(lambda: rate_runs(seeds=2), ("rates",)),
    "ranks": Folder(
        lambda: [
            made(ranks=p, seconds=1 / p, machines=m * k)
            for p in (1, 2, 4, 8, 16, 32, 64)
            for m, k in ((64, 1), (2, p))
        ],
        ("scaling",),
    ),
    "long labels": Folder(
        lambda: over(rho=(1.0, 2.0), machines=(2, 10), server=BOTH),
        ("tradeoff", "history"),
        {
            "labels": {
                "rho=1": "hardly any privacy at all, as it was agreed upon by everyone who took part in it",
                "machines": "the number of hospitals",
                "server=trusted": LONG,
            }
        },
    ),
    "a long title": Folder(lambda: over(rho=(1.0, 2.0), server=BOTH), page={"title": TITLE}),
    "linear": Folder(lambda: over(rho=(0.001, 0.01, 1.0, 1.1, 16.0)), page={"linear": True}),
    "against machines": Folder(
        lambda: over(epsilon=(1.0, 2.0, 4.0), machines=(1, 3, 10, 30, 100), server=BOTH),
        ("tradeoff",),
        x_axis="machines",
    ),
}
