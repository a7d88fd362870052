"""Data classes and HDF5 names that writers and readers of result files and checkpoints share."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.privacy.accounting.per_machine_accounts import column_metadata as metadata
from mu2mpi.privacy.statement import PrivacyStatement

RESULT_SCHEMA = "mu2mpi-2"
RESULT_SUFFIX = ".h5"  # of result files in folders
# Attributes of / that describe the file, and not where the run took place
HEADER_ATTRIBUTES = (
    "schema", "created", "status", "experiment", "Conventions", "title", "summary", "keywords", "history",
    "source", "references",
)  # fmt: skip
# Attributes of / that name a run and its owner, in which equal runs differ
IDENTITY_ATTRIBUTES = ("run_id", "creator_name", "license")
HistoryRow = dict[str, float]  # Measurements of one evaluation, by name of the column of `History`
CHECKPOINT_SUFFIX = ".checkpoint"  # appended to the output's name
PREVIOUS_CHECKPOINT_SUFFIX = ".previous"  # appended to the checkpoint's name for the checkpoint before it
# End of error messages about unusable checkpoints
CHECKPOINT_ADVICE = (
    "restore a copy of it, or remove it to start over, which without a seed sends the same secrets again "
    "under other noise and spends more privacy"
)
# History column of the model's score, by the kind of labels: classes (classification), numbers (regression)
SCORE_COLUMNS = {"classes": "test_accuracy", "numbers": "test_r2"}


def format_score(score: float, label_kind: str) -> str:
    """Format the score of a model: accuracy for labels ``classes``, R^2 for ``numbers``."""
    return f"accuracy {score:.1%}" if label_kind == "classes" else f"R2 {score:.4f}"


@dataclass(frozen=True, eq=False)
class History:
    """Measurements at the evaluation rounds, one array per column, all of the same length.

    Row ``k`` describes the model evaluated in round ``t = round[k]``: the query point x_t, or the average of
    the first t iterates for methods that output an average. The last row describes the output x_T.
    """

    round: IntArray = field(metadata=metadata("round t"))
    test_loss: FloatArray = field(metadata=metadata("mean loss of x_t on the test set"))
    test_accuracy: FloatArray = field(
        metadata=metadata("fraction of test samples that x_t classifies correctly")
    )
    test_r2: FloatArray = field(
        metadata=metadata("fraction of the test labels' variance that x_t explains (R^2)")
    )
    test_samples: IntArray = field(metadata=metadata("test samples evaluated; 0 if unknown"))
    samples: IntArray = field(metadata=metadata("training samples used so far by all machines"))
    gradient_evaluations: IntArray = field(metadata=metadata("gradients computed so far by all machines"))
    rho_spent: FloatArray = field(metadata=metadata("rho spent by everything released so far"))
    elapsed_seconds: FloatArray = field(metadata=metadata("wall-clock time since the first round", "s"))
    message_norm: FloatArray = field(
        metadata=metadata("norm of q~_t, the released average over machines; NaN in the last round")
    )
    estimate_error: FloatArray = field(
        metadata=metadata("squared error of d_t before noise as a gradient; NaN unless data are a population")
    )

    def __len__(self) -> int:
        return len(self.round)

    @property
    def has_losses(self) -> bool:
        """Whether the history has test losses; a published file may omit test results."""
        return not np.isnan(self.test_loss).all()

    @classmethod
    def from_rows(cls, rows: Sequence[HistoryRow]) -> Self:
        """Build a history from one row per evaluation."""
        dtypes: dict[str, Any] = {f.name: np.int64 if f.type == IntArray else np.float64 for f in fields(cls)}
        return cls(**{name: np.array([row[name] for row in rows], dtypes[name]) for name in dtypes})

    def rows(self) -> list[HistoryRow]:
        """Return the history as a list with one row per evaluation."""
        columns = {name: getattr(self, name).tolist() for name in self.column_names()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @classmethod
    def column_names(cls) -> list[str]:
        """Return the names of the history's columns, in file order."""
        return [f.name for f in fields(cls)]

    @classmethod
    def column_attributes(cls, label_kind: str, loss_unit: str) -> dict[str, dict[str, str]]:
        """Return HDF5 attributes, such as ``long_name``, of each history column that a file stores."""
        omitted = {*SCORE_COLUMNS.values()} - {SCORE_COLUMNS[label_kind]}
        attributes = {f.name: dict(f.metadata) for f in fields(cls) if f.name not in omitted}
        return attributes | {"test_loss": metadata(attributes["test_loss"]["long_name"], loss_unit)}


@dataclass(frozen=True)
class Diagnostics:
    """Clipping statistics of the private data, for tuning; *not* covered by the privacy guarantee."""

    largest_increment_norm: float  # maximum of ||s_{t,i}|| before clipping
    clipped_share: float  # fraction of increments that were clipped, in [0, 1]


@dataclass(frozen=True)
class Theory:
    """Comparison of a finished run with theory; losses in the history's unit, NaN if not computed.

    The bound on the expected excess loss is that of Theorem 5.2 (untrusted) or 6.2 (trusted), with G and S
    in place of unknown constants; NaN if the theorem does not apply to the run.
    """

    excess_loss_bound: float
    minimum_loss: float  # test loss at the approximate minimiser over the ball K
    minimum_gap: float  # duality gap: the true minimum is at least `minimum_loss - minimum_gap`
    excess_loss: float  # test loss of the output x_T minus `minimum_loss`
    initial_gradient_norm: float  # norm of the gradient of the test loss at x_1
    final_gradient_norm: float  # norm of the gradient of the test loss at x_T


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """State of a run between two rounds, from which the run can resume."""

    experiment: Experiment  # with machines and rounds filled in
    rounds_done: int
    root_key: bytes | None  # 32-byte key of all random numbers; None for a run with a seed
    iterates: dict[str, FloatArray]  # server state by name, such as w and x; each of shape (rows, features)
    q: IntArray  # sum of q_{t,i} over machines without noise, in grid units; shape (rows, features)
    last_messages: (
        IntArray  # of single machines, if they change the next ones; shape (machines, rows, features)
    )
    history: History
    elapsed_seconds: float
    largest_squared_norm: float  # maximum of ||s_{t,i}||^2 before clipping
    clipped: int  # number of clipped increments
    privacy: PrivacyStatement  # of the complete run
    numeric_platforms: tuple[str, ...]  # processors and software of the ranks that determine the last bits
    data_digest: bytes  # SHA-256 of the training data and of files about machines
    core_seconds: float = 0.0  # of all starts of the run
    run_id: str = field(default_factory=lambda: str(uuid4()))  # random, and independent of all keys


def model_digest(x: FloatArray, w: FloatArray) -> bytes:
    """Return a digest of a model's bits, x_T and w_T; empty if no message has changed it (w_T = 0)."""
    return hashlib.sha256(x.tobytes() + w.tobytes()).digest() if w.any() else b""


def checkpoint_path(output: Path) -> Path:
    """Return the path of a run's checkpoint, from the path of its output file."""
    return output.with_name(output.name + CHECKPOINT_SUFFIX)


def previous_checkpoint_path(checkpoint: Path) -> Path:
    """Return the path of the copy kept of the preceding checkpoint, for use if the newest is damaged."""
    return checkpoint.with_name(checkpoint.name + PREVIOUS_CHECKPOINT_SUFFIX)
