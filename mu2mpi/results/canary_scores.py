"""Write and read the scores and secret coins of a run's canaries, a file beside the result.

Only its owner may read it: together with released messages, a score reveals a coordinate of private sums.
"""

import hashlib
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import write_atomically
from mu2mpi.core.hdf5 import hdf5_file_bytes, read_attributes, write_array, write_attributes
from mu2mpi.results.opening import open_mu2mpi_file
from mu2mpi.results.records import canary_scores_path, model_digest

CANARY_SCHEMA = "mu2mpi-canaries-1"


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of a run's canaries; their means are +/- separation / 2 times `sigma_score` if in or out."""

    score: FloatArray  # what the adversary observes of each canary, shape (m,)
    included: BoolArray  # secret coin of each canary, shape (m,)
    sigma_score: float  # std of a score's noise, as claimed
    separation: float  # difference of the means of scores in and out, as claimed, in units of `sigma_score`
    relation: str  # neighbouring relation: a canary that is out is replaced by its opposite, or by nothing
    run_digest: str = ""  # digest of the run, as by `run_digest`


def run_digest(experiment: Experiment, x: FloatArray, w: FloatArray) -> str:
    """Return a digest of a run's settings and model."""
    return hashlib.sha256(experiment.to_toml().encode() + model_digest(x, w)).hexdigest()


def write_canary_scores(scores: CanaryScores, output: Path) -> None:
    """Write the scores of a run atomically beside its output, with mode 0600."""
    attributes = asdict(scores)
    arrays = {"score": attributes.pop("score"), "included": attributes.pop("included").astype(np.uint8)}

    def write_content(file: h5py.File) -> None:
        write_attributes(file, {"schema": CANARY_SCHEMA, **attributes})
        for name, array in arrays.items():
            write_array(file, name, array)

    write_atomically(canary_scores_path(output), (hdf5_file_bytes(write_content),), mode=0o600)


def read_canary_scores(path: Path) -> CanaryScores:
    """Read a file of canary scores; InputError if it is missing, damaged or readable by others."""
    with open_mu2mpi_file(path) as file:
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            raise InputError(f"{path} is not secret: its mode is {mode:04o}. Use chmod 600 on it.")
        attributes = read_attributes(file)
        if (schema := attributes.pop("schema", "absent")) != CANARY_SCHEMA:
            raise InputError(f"{path} has the schema {schema!r}; this version reads {CANARY_SCHEMA!r}")
        score, included = file["score"][()].astype(np.float64), file["included"][()].astype(bool)
        if score.ndim != 1 or score.shape != included.shape or not np.isfinite(score).all():
            raise ValueError("its scores and coins do not fit together")
        return CanaryScores(score, included, **attributes)
