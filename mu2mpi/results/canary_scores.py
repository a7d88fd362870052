"""Write and read the scores and secret coins of a run's canaries, a file beside the result.

Only its owner may read it: together with released messages, a score reveals a coordinate of private sums.
"""

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import write_atomically
from mu2mpi.core.hdf5 import hdf5_file_bytes, read_attributes, write_array, write_attributes
from mu2mpi.results.opening import open_mu2mpi_file
from mu2mpi.results.reader import RunContents
from mu2mpi.results.records import canary_scores_path
from mu2mpi.results.result import Result

CANARY_SCHEMA = "mu2mpi-canaries-1"


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """Scores of a run's canaries, in units of their noise std as claimed."""

    score: FloatArray  # what the adversary observes of each canary, shape (m,)
    included: BoolArray  # secret coin of each canary, shape (m,)
    separation: float  # difference of the means of scores in and out, as claimed; the means are opposite


def run_digest(run: Result | RunContents) -> str:
    """Return a digest of a run's settings and model."""
    return hashlib.sha256(run.experiment.to_toml().encode() + run.model_digest).hexdigest()


def write_canary_scores(scores: CanaryScores, run: Result | RunContents, output: Path) -> None:
    """Write the scores of a run atomically beside its output, with mode 0600."""
    attributes = {"schema": CANARY_SCHEMA, "separation": scores.separation, "run_digest": run_digest(run)}

    def write_content(file: h5py.File) -> None:
        write_attributes(file, attributes)
        write_array(file, "score", scores.score)
        write_array(file, "included", scores.included.astype(np.uint8))

    write_atomically(canary_scores_path(output), (hdf5_file_bytes(write_content),), mode=0o600)


def read_canary_scores(output: Path, run: Result | RunContents) -> CanaryScores:
    """Read the scores of the run in a result file; InputError unless they are valid, secret and its own."""
    if not run.experiment.canaries:
        raise InputError(f"{output} is of a run without canaries. Repeat it with --canaries 1000.")
    with open_mu2mpi_file(path := canary_scores_path(output)) as file:
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            raise InputError(f"{path} is not secret: its mode is {mode:04o}. Use chmod 600 on it.")
        attributes = read_attributes(file)
        if (schema := attributes.get("schema", "absent")) != CANARY_SCHEMA:
            raise InputError(f"{path} has the schema {schema!r}; this version reads {CANARY_SCHEMA!r}")
        if attributes["run_digest"] != run_digest(run):
            raise InputError(f"{path} is of another run than {output}. Copy the files of one run.")
        score, included = file["score"][()].astype(np.float64), file["included"][()].astype(bool)
        shapes = {(run.experiment.canaries,), score.shape, included.shape}
        if len(shapes) > 1 or not np.isfinite(score).all():
            raise ValueError("its scores and coins do not fit together")
        return CanaryScores(score, included, attributes["separation"])
