"""Summaries of runs with files of canary scores, without the runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from helpers.summaries import summary
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee
from mu2mpi.results.canary_scores import CanaryScores, write_canary_scores


def canary_run(folder: Path, mu=1.0, separation=1.0, rho=1.0, canaries=500, included=None, **settings):
    """Return a summary of a claim of `rho`, beside scores whose means differ by `mu` noise stds."""
    rng = np.random.default_rng(1)
    coins = rng.integers(0, 2, canaries).astype(bool) if included is None else included
    score = rng.standard_normal(len(coins)) + mu * (coins - 0.5)
    run = replace(summary(rho=rho, canaries=len(coins), **settings), path=folder / f"canaries{rho}.h5")
    privacy = SimpleNamespace(guarantee=GaussianGuarantee(rho), delta=1e-5)
    contents = SimpleNamespace(privacy=privacy, experiment=run.experiment, model_digest=b"")
    vars(run)["contents"] = contents
    write_canary_scores(CanaryScores(score, coins, separation), contents, run.path)
    return run
