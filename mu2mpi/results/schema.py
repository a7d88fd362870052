"""What result files (schema "mu2mpi-1") and checkpoints hold, shared by what writes and reads them."""

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.facts import PublicFacts
from mu2mpi.privacy.accounting.machines import Accounts, Floats, Integers, described
from mu2mpi.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    import xarray

    from mu2mpi.data.schema import Schema
    from mu2mpi.results.model.coefficients import Coefficients

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
# Columns of the history that are whole numbers
COUNTS = ("round", "test_samples", "samples", "gradient_evaluations")


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
    def labels(self) -> str:
        """What the run learned: ``classes`` or ``numbers``."""
        return "classes" if np.isnan(self.test_r2).all() else "numbers"

    @property
    def has_losses(self) -> bool:
        """Whether loss and score are there; a file may have been published without."""
        return not np.isnan(self.test_loss).all()

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the columns, in the order of the file."""
        return [f.name for f in fields(cls)]

    @classmethod
    def described(cls, labels: str, unit: str) -> dict[str, dict[str, str]]:
        """Return the columns that a run has which learned such labels, and what a file says of each.

        Its losses have this unit.
        """
        left_out = {*SCORES.values()} - {SCORES[labels]}
        said = {column.name: dict(column.metadata) for column in fields(cls) if column.name not in left_out}
        return {**said, "test_loss": {**said["test_loss"], "units": unit}}


@dataclass(frozen=True)
class Diagnostics:
    """Facts about the private data that help to tune a run and are *not* covered by its guarantee.

    The largest norm of an increment s_{t,i} before clipping, and the share in [0, 1] that was clipped.
    """

    largest_increment_norm: float
    clipped_share: float


@dataclass(frozen=True)
class Theory:
    """What theory says of a run, next to what the run did; losses in nats.

    All but the bound is NaN for models that are too large for the search.

    Attributes
    ----------
    excess_loss_bound : float
        What the expected excess loss is at most by Theorem 5.2 (untrusted) or 6.2 (trusted), with G and S
        for unknown constants; NaN where the theorem does not hold for the run.
    minimum_loss, minimum_gap : float
        The smallest mean loss on the test set in the ball K is between their difference and the former.
    excess_loss : float
        Test loss of the output x_T minus `minimum_loss`.
    first_slope, last_slope : float
        Norm of the gradient of the test loss at x_1 and at x_T.
    """

    excess_loss_bound: float
    minimum_loss: float
    minimum_gap: float
    excess_loss: float
    first_slope: float
    last_slope: float


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """One finished run.

    Attributes
    ----------
    experiment, privacy : Experiment, PrivacyStatement
        What was run, with machines and rounds filled in; and what the released messages reveal at most.
    x, w : ndarray of float64, shape (rows, features)
        The output, x_T for most methods, and the iterate w_T; the last feature is the bias.
    history : History
        Loss, score and cost along the rounds.
    theory : Theory or None
        The theorem's bound and the smallest loss over K; None where a private test set would be told of.
    diagnostics : Diagnostics or None
        Largest increment and share of clipped ones; None in published files.
    timing : dict of str to ndarray of float64, shape (ranks,)
        Seconds by phase and rank; empty in published files.
    environment : dict of str to str or int
        Hosts, ranks, MPI library and versions; of a published file `ranks` and versions alone, and under
        `published` what it was published without.
    class_counts : ndarray of int64, shape (machines, classes), or None
        How many samples of each class each machine spent; private, and None, like the diagnostics.
    class_names : tuple of str or None
        What the classes are called, where it is not by their numbers.
    metrics : dict of str to float
        Of the output on the test set: ``accuracy``, ``balanced_accuracy`` and ``auc``, the area under the
        ROC; or ``rmse`` and ``mae`` in the label's own units, and ``r2``. Empty where a private test set
        would be told of.
    confusion : ndarray of int64, shape (classes, classes), or None
        How many test samples of each class the output takes for each; None like the metrics, and where there
        are no counts, or classes are many.
    test_rows : ndarray of int64 or None
        Where the test set is a share of a file, its rows, from 0 on.
    label_range : tuple of float or None
        Where labels are numbers, the declared range in which they lie, in their own units.
    feature_names, columns : tuple of str or None, str or None
        Names of the features, if any, and the TOML schema of the columns that they were made of.
    scale : float
        What takes a stored feature into [-1, 1].
    facts : PublicFacts or None
        What is public of the data, and presets may use.
    unit : str
        That of losses: ``nat``, or ``1`` for those that are no likelihoods.
    accounts : Accounts or None
        What each machine does and spends, where they differ or some are away.
    path : Path or None
        The file that it was read from, or written to.
    """

    experiment: Experiment
    x: Floats
    w: Floats
    history: History
    privacy: PrivacyStatement
    theory: Theory | None
    diagnostics: Diagnostics | None
    timing: dict[str, Floats]
    environment: dict[str, str | int]
    class_counts: Integers | None = None
    class_names: tuple[str, ...] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    label_range: tuple[float, float] | None = None
    feature_names: tuple[str, ...] | None = None
    columns: str | None = None
    scale: float = 1.0
    facts: PublicFacts | None = None
    unit: str = "nat"
    accounts: Accounts | None = None
    confusion: Integers | None = None
    test_rows: Integers | None = None
    path: Path | None = None

    @property
    def labels(self) -> str:
        """What the run learned: ``classes`` or ``numbers``."""
        return "classes" if self.label_range is None else "numbers"

    @property
    def final_score(self) -> str:
        """Accuracy or R^2 of the output, in words."""
        return score_text(float(getattr(self.history, SCORES[self.labels])[-1]), self.labels)

    @cached_property
    def schema(self) -> "Schema | None":
        """What the columns of the table are of which features were made, if there are any."""
        from mu2mpi.data.schema import parse_schema

        return None if self.columns is None else parse_schema(self.columns)

    @property
    def tests_on_a_share(self) -> bool:
        """Whether the test set is a share of a file of the user's: people's data, which no noise protects."""
        declared = None if (schema := self.schema) is None else schema.test
        of_schema = self.experiment.test is None and isinstance(declared, str)
        return self.experiment.tests_on_a_share and not of_schema

    @property
    def classes(self) -> int:
        """K; where labels are numbers any number, as nothing depends on it."""
        return max(2, len(self.x)) if self.class_names is None else len(self.class_names)

    @property
    def names_of_classes(self) -> tuple[str, ...]:
        """What the classes are called, by their numbers if by nothing else."""
        return self.class_names or tuple(map(str, range(self.classes)))

    @property
    def row_names(self) -> tuple[str, ...]:
        """What each row of the model speaks for: a class, the second of two, or the number learned."""
        if self.label_range is not None:
            schema = self.schema
            return (self.experiment.labels or "label" if schema is None else schema.label[0],)
        return self.names_of_classes if len(self.x) > 1 else self.names_of_classes[-1:]

    def predict(self, X: Any) -> NDArray[Any]:
        """Return what the model predicts, shape (n,): names of classes, or numbers in the label's own units.

        X is a data frame, a mapping of the columns' names to values, or the path of a file; without a schema,
        it is an array of features as they are stored, shape (n, features - 1), or the path of a file of such.
        Other columns do no harm. Raises InputError if X does not fit the model.
        """
        from mu2mpi.results.model.prediction import margins_of, predictions

        return predictions(self, margins_of(self, X))

    def scores(self, X: Any) -> Floats:
        """Return a score for each class, shape (n, K), the largest for the prediction; X as for `predict`.

        They are probabilities where the loss is a likelihood: those of softmax and logistic.
        """
        from mu2mpi.results.model.prediction import class_scores, margins_of

        return class_scores(self, margins_of(self, X))

    def coefficients(self, scaled: bool = False) -> "Coefficients":
        """Return the model in the columns' own units, or as it was trained, with what noise alone would give.

        See `Coefficients`. Raises InputError if there is no run of the experiment.
        """
        from mu2mpi.results.model.coefficients import coefficients_of

        return coefficients_of(self, scaled)

    def to_xarray(self) -> "xarray.Dataset":
        """Return history, model, confusion matrix and times with names, coordinates and units.

        Settings are attributes. What is private, such as the diagnostics, is left out.
        """
        from mu2mpi.core.extra import needed
        from mu2mpi.results.writer import plain

        features = self.feature_names or tuple(map(str, range(self.x.shape[1] - 1)))
        coordinates: dict[str, Any] = {
            "row": (self.row_names, "row of the model: what it speaks for"),
            "feature": ((*features, "(bias)"), "feature; the last is the bias"),
        }
        arrays: dict[str, Any] = {
            name: ("round", getattr(self.history, name), said)
            for name, said in History.described(self.labels, self.unit).items()
        }
        arrays["x"] = ("row", "feature"), self.x, described("output x_T of the algorithm")
        arrays["w"] = ("row", "feature"), self.w, described("last iterate w_T")
        if self.confusion is not None:
            arrays["confusion"] = tuple(OF_CONFUSION), self.confusion, described(CONFUSION)
            coordinates |= {name: (self.names_of_classes, text) for name, text in OF_CONFUSION.items()}
        for phase, seconds in self.timing.items():
            arrays[f"{phase}_seconds"] = "rank", seconds, described(f"time spent on {phase}", "s")
            coordinates["rank"] = range(len(seconds)), "MPI rank"
        named = {name: (name, np.array(of), described(text)) for name, (of, text) in coordinates.items()}
        dataset: xarray.Dataset = needed("xarray").Dataset(arrays, named, plain(self.experiment.settings()))
        return dataset.set_coords("round")

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.experiment.settings().items())
        return f"<Result of {settings}: test loss {self.history.test_loss[-1]:.4f}, {self.final_score}>"


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
