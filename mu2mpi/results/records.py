"""What result files (schema "mu2mpi-1") and checkpoints hold, shared by what writes and reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.privacy.accounting.per_machine import Floats, Integers, described
from mu2mpi.privacy.statement import PrivacyStatement

SCHEMA = "mu2mpi-1"

SUFFIX = ".checkpoint"  # What follows the name of the output in that of its checkpoint
PREVIOUS = ".previous"  # What follows the name of a checkpoint in that of the one before it
# The way out where a checkpoint cannot be used
OF_CHECKPOINT = (
    "put a copy of it back, or remove it to start afresh, which without a seed sends the same secrets under "
    "other noise and spends that on top"
)
# By what a run learned, the one of these columns of the history that it has: how good a model is
SCORES = {"classes": "test_accuracy", "numbers": "test_r2"}
# What a file says of the confusion matrix and its dimensions
CONFUSION = "test samples of a class that the output takes for a class"
OF_CONFUSION = {"class": "class of a test sample", "predicted": "class that the output takes it for"}


def score_text(score: float, labels: str) -> str:
    """Say how good a model is: by its accuracy for classes, and by its R^2 for numbers."""
    return f"accuracy {score:.1%}" if labels == "classes" else f"R2 {score:.4f}"


@dataclass(frozen=True, eq=False)
class History:
    """What was measured at the rounds of evaluation; all columns have one entry for each.

    Row ``k`` describes the query point x_t of round ``t = round[k]``, or the mean of the first t where a
    method puts that out, and what had been spent by then. The last row is that of the output x_T.
    """

    round: Integers = field(metadata=described("round t"))
    test_loss: Floats = field(metadata=described("mean loss of x_t on the test set"))
    test_accuracy: Floats = field(metadata=described("share of test samples that x_t classifies correctly"))
    test_r2: Floats = field(metadata=described("share of the variance of test labels that x_t explains: R^2"))
    test_samples: Integers = field(
        metadata=described("test samples of which loss and score are: all in the last round; 0 where unknown")
    )
    samples: Integers = field(metadata=described("training samples used so far by all machines"))
    gradient_evaluations: Integers = field(metadata=described("gradients computed so far by all machines"))
    rho_spent: Floats = field(metadata=described("rho of everything released so far"))
    elapsed_seconds: Floats = field(metadata=described("wall-clock time since the first round", "s"))
    message_norm: Floats = field(
        metadata=described("norm of q~_t, the released average over machines; NaN in the last round")
    )
    estimate_error: Floats = field(
        metadata=described(
            "squared distance, before noise, of d_t from the gradient; NaN but for populations"
        )
    )

    def __len__(self) -> int:
        return len(self.round)

    @property
    def has_losses(self) -> bool:
        """Whether loss and score are there; a file may have been published without."""
        return not np.isnan(self.test_loss).all()

    @classmethod
    def of(cls, rows: Sequence["HistoryRow"]) -> Self:
        """Return the history that has these rows."""
        kinds = {f.name: np.int64 if f.type == Integers else np.float64 for f in fields(cls)}
        columns: dict[str, Any] = {
            name: np.array([getattr(row, name) for row in rows], dtype=kind) for name, kind in kinds.items()
        }
        return cls(**columns)

    def rows(self) -> list["HistoryRow"]:
        """Return the rows."""
        columns = [getattr(self, name).tolist() for name in self.columns()]
        return [HistoryRow(*row) for row in zip(*columns, strict=True)]

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the columns, in the order of the file."""
        return [f.name for f in fields(cls)]

    @classmethod
    def described(cls, labels: str, unit: str) -> dict[str, dict[str, str]]:
        """Return the columns of a run that learned such labels, with losses in this unit, and their words."""
        left_out = {*SCORES.values()} - {SCORES[labels]}
        said = {column.name: dict(column.metadata) for column in fields(cls) if column.name not in left_out}
        return {**said, "test_loss": {**said["test_loss"], "units": unit}}


class HistoryRow(NamedTuple):
    """One row of a `History`, with its columns in the order of the file."""

    round: int
    test_loss: float
    test_accuracy: float
    test_r2: float
    test_samples: int
    samples: int
    gradient_evaluations: int
    rho_spent: float
    elapsed_seconds: float
    message_norm: float
    estimate_error: float


@dataclass(frozen=True)
class Diagnostics:
    """Facts about the private data that help to tune a run and are *not* covered by its guarantee."""

    largest_increment_norm: float  # before clipping, of s_{t,i}
    clipped_share: float  # in [0, 1]


@dataclass(frozen=True)
class Theory:
    """What theory says of a run, next to what the run did; NaN for models too large for the search.

    The bound on the expected excess loss is that of Theorem 5.2 (untrusted) or 6.2 (trusted), with G and S
    for unknown constants; NaN where the theorem does not hold for the run.
    """

    excess_loss_bound: float  # losses in nats
    minimum_loss: float  # The smallest mean test loss in the ball K is less by `minimum_gap` at most.
    minimum_gap: float
    excess_loss: float  # test loss of the output x_T minus `minimum_loss`
    first_slope: float  # norm of the gradient of the test loss at x_1
    last_slope: float  # and at x_T


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run between two rounds; of its experiment, machines and rounds are filled in."""

    experiment: Experiment
    rounds_done: int
    key: bytes | None  # the 32-byte root key of a run without a seed; None if it follows from the seed
    iterates: dict[str, Floats]  # all that the server's next step depends on, such as w_t and x_t
    q: Integers  # sum of all q_{t,i}, without noise, in units of the grid: shape (rows, features)
    history: History
    elapsed_seconds: float
    largest_squared_norm: float
    clipped: int
    class_counts: Integers  # what each machine has spent, shape (machines, classes)
    privacy: PrivacyStatement  # of all rounds together
    builds: tuple[str, ...]  # processors and packages that the ranks ran on, on which bits depend
    data: bytes  # digest of the training data, and of the files about machines


def checkpoint_path(output: Path) -> Path:
    """Return where the checkpoint of a run with this output lies."""
    return output.with_name(output.name + SUFFIX)


def previous_path(checkpoint: Path) -> Path:
    """Return where the checkpoint before this one lies, for the case that this one cannot be read."""
    return checkpoint.with_name(checkpoint.name + PREVIOUS)
