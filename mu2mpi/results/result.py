"""Result of a run: model, history and privacy, with predictions."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import html_table
from mu2mpi.data.source import PublicFacts, row_chunks
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results import records
from mu2mpi.results.records import SCORE_COLUMNS, Diagnostics, History, Theory, format_score

if TYPE_CHECKING:
    from mu2mpi.data.table_schema import Schema
    from mu2mpi.federation.problem import Problem
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.results.coefficients import Coefficients

MAX_CHUNK_FEATURE_VALUES = 1 << 22  # feature values per chunk of samples in predictions


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Result of a complete run: the contents of its result file.

    Attributes
    ----------
    experiment, privacy : Experiment, PrivacyStatement
        The experiment, with machines and rounds filled in, and the guarantee of all released values.
    x, w : ndarray of float64, shape (rows, features)
        Output of the method (x_T for most) and last iterate w_T; the last feature is the bias.
    history : History
        Test loss, score and cost at the evaluation rounds.
    theory : Theory or None
        Bound of the theorem and minimum of the test loss over K; None if withheld with the test results.
    diagnostics : Diagnostics or None
        Clipping statistics, computed from private data; None in published files and on ranks other than 0.
    timing : dict of str to ndarray of float64, shape (ranks,)
        Seconds by phase, one value per rank; empty in published files.
    environment : dict of str to str or int
        Run id, hosts, ranks, MPI library, software; ``published`` names what was withheld.
    class_names, label_range : tuple of str or None, tuple of float or None
        Names of the classes (None: numbered); range of regression labels (None for classification).
    metrics : dict of str to float
        Metrics of the output on the test set, such as ``auc`` or ``rmse``; empty if withheld.
    feature_names, schema_toml : tuple of str or None, str or None
        Names of the features, if any, and the table schema (TOML) that they were encoded with.
    feature_scale, loss_unit : float, str
        Factor that maps stored features to [-1, 1]; unit of the losses, ``nat`` or ``1``.
    facts, path : PublicFacts or None, Path or None
        Public facts of the data that presets may use; path of the result file.
    accounts : PerMachineAccounts or None
        Participation and privacy of each machine, if machines are unequal or partially participate.
    confusion : ndarray of int64, shape (classes, classes), or None
        Test samples by true and predicted class; None for regression and for very many classes.
    test_rows : ndarray of int64 or None
        Rows (from 0) of the test samples if the test set is a share of the data file.
    cost : dict of str to float, str or ndarray
        ``core_seconds``, ``peak_memory`` (bytes by rank), and of a batch job ``job``, ``array_task``,
        ``cluster`` and ``partition``; empty in published files.
    """

    experiment: Experiment
    x: FloatArray
    w: FloatArray
    history: History
    privacy: PrivacyStatement
    theory: Theory | None
    diagnostics: Diagnostics | None
    timing: dict[str, FloatArray]
    environment: dict[str, str | int]
    class_names: tuple[str, ...] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    label_range: tuple[float, float] | None = None
    feature_names: tuple[str, ...] | None = None
    schema_toml: str | None = None
    feature_scale: float = 1.0
    public_facts: PublicFacts | None = None
    loss_unit: str = "nat"
    accounts: PerMachineAccounts | None = None
    confusion: IntArray | None = None
    test_rows: IntArray | None = None
    path: Path | None = None
    cost: dict[str, Any] = field(default_factory=dict)

    @property
    def label_kind(self) -> str:
        """Kind of labels: ``classes`` (classification) or ``numbers`` (regression)."""
        return "classes" if self.label_range is None else "numbers"

    @property
    def final_score(self) -> str:
        """Test accuracy or R^2 of the output as text."""
        return format_score(float(getattr(self.history, SCORE_COLUMNS[self.label_kind])[-1]), self.label_kind)

    @cached_property
    def schema(self) -> "Schema | None":
        """Schema of the data table; None for data without a schema."""
        from mu2mpi.data.table_schema import parse_schema

        return None if self.schema_toml is None else parse_schema(self.schema_toml)

    @property
    def has_unprotected_test_set(self) -> bool:
        """Whether the test set is a share of the user's data file, so that test results reveal samples."""
        test_of_schema = None if (schema := self.schema) is None else schema.test
        is_in_schema = self.experiment.test is None and isinstance(test_of_schema, str)
        return self.experiment.has_unprotected_test_set and not is_in_schema

    @property
    def class_count(self) -> int:
        """Number of classes K; arbitrary for regression."""
        return max(2, len(self.x)) if self.class_names is None else len(self.class_names)

    @property
    def class_labels(self) -> tuple[str, ...]:
        """Names of the classes, by default their numbers from 0."""
        return self.class_names or tuple(map(str, range(self.class_count)))

    @property
    def model_row_names(self) -> tuple[str, ...]:
        """Names of the model's rows: the classes (of two, the second), or the label of a regression."""
        if self.label_range is not None:
            schema = self.schema
            return (self.experiment.labels or "label" if schema is None else schema.label[0],)
        return self.class_labels if len(self.x) > 1 else self.class_labels[-1:]

    @property
    def problem(self) -> "Problem":
        """Optimisation problem of the run, rebuilt from the result; InputError if inconsistent."""
        from mu2mpi.config.problem_builder import build_problem, build_unequal_machines

        samples, unequal_machines = self.privacy.mechanism.samples, None
        if (accounts := self.accounts) is not None:
            samples = max(1, int(accounts.samples.min()))
            owned = accounts.samples, accounts.machine_owners, accounts
            unequal_machines = build_unequal_machines(self.experiment, *owned)
        norm = None if self.public_facts is None else self.public_facts.max_squared_norm
        shape = self.experiment.machines or 1, self.class_count, self.x.shape[1], samples
        options: dict[str, Any] = {"max_squared_norm": norm, "unequal_machines": unequal_machines}
        return build_problem(self.experiment, *shape, **options)

    @property
    def constants(self) -> "RunConstants":
        """Constants of all rounds, rebuilt from the result; InputError if inconsistent."""
        problem, method = self.problem, self.experiment.chosen_method
        batching = method.batching(problem, self.experiment.rounds)
        constants: RunConstants = method.run_constants(problem, batching)
        return constants

    @property
    def model_digest(self) -> bytes:
        """Digest of the model's bits, as by `records.model_digest`."""
        return records.model_digest(self.x, self.w)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of new samples, shape (n,): classes, or numbers in the label's own units.

        With a schema, X is a data file, a data frame or a mapping of columns by name, else an array
        of stored features, shape (n, features - 1), or a file of such. Other columns are ignored. Raises
        InputError if X does not fit the model.
        """
        return self.predictions(self.margins(X))

    def scores(self, X: Any) -> FloatArray:
        """Return scores of the classes, shape (n, K); X as for `predict`.

        The predicted class has the largest score. Softmax and logistic loss give probabilities.
        """
        return self.class_scores(self.margins(X))

    def margins(self, X: Any, is_public: bool = True) -> FloatArray:
        """Return the margins (linear scores) of new samples, shape (n, rows); X as for `predict`.

        Unless `is_public`, error messages are redacted: they contain no row number and no value of a file.
        """
        from mu2mpi.data.redaction import redacted_errors
        from mu2mpi.losses.model.linear import all_margins
        from mu2mpi.results.coefficients import encode_features, feature_matrix

        scaling, scale, width = self.problem.feature_scaling, self.feature_scale, self.x.shape[1]
        with redacted_errors(is_public or not isinstance(X, str | Path)):
            schema = self.schema
            features = feature_matrix(X, self) if schema is None else encode_features(schema, X)
        blocks = row_chunks(len(features), max(1, MAX_CHUNK_FEATURE_VALUES // width))
        margins = [all_margins(self.x, scaling.scaled_samples(features[rows], scale)) for rows in blocks]
        return np.concatenate([np.empty((0, len(self.x))), *margins])

    def predictions(self, margins: FloatArray) -> NDArray[Any]:
        """Return predicted labels, shape (n,), for margins of shape (n, rows)."""
        loss_function = self.problem.loss
        if self.label_range is not None:
            low, high = self.label_range
            return (low + high) / 2 + (high - low) / 2 * loss_function.predict_numbers(margins)
        class_indices = loss_function.predict_classes(margins)
        return class_indices if self.class_names is None else np.array(self.class_names)[class_indices]

    def class_scores(self, margins: FloatArray) -> FloatArray:
        """Return scores of the classes, shape (n, K), for margins of shape (n, rows)."""
        if self.label_range is not None:
            raise InputError("this model predicts numbers and has no scores of classes; use predict instead")
        return self.problem.loss.class_scores(margins)

    def coefficients(self) -> "Coefficients":
        """Return the coefficients per unit of a data column; `x` has them per unit of a scaled feature."""
        from mu2mpi.results.coefficients import compute_coefficients

        return compute_coefficients(self)

    def _repr_html_(self) -> str:
        settings = self.experiment.settings().items()
        rows = [
            ("experiment", ", ".join(f"{name} = {value}" for name, value in settings)),
            ("test loss", f"{self.history.test_loss[-1]:.4f}"),
            ("test score", self.final_score),
            ("file", str(self.path or "none")),
        ]
        return html_table(rows) + self.privacy._repr_html_()

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.experiment.settings().items())
        return f"<Result of {settings}: test loss {self.history.test_loss[-1]:.4f}, {self.final_score}>"
