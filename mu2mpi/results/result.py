"""Result of a run, with what follows from it: predictions, coefficients, a labelled dataset."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, needed
from mu2mpi.core.hdf5 import plain
from mu2mpi.data.source import PublicFacts
from mu2mpi.privacy.accounting.per_machine import Accounts, Floats, Integers, described
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import CONFUSION, OF_CONFUSION, SCORES, Diagnostics, History, Theory, score_text

if TYPE_CHECKING:
    import xarray

    from mu2mpi.data.table_schema import Schema
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.federation.task import Task
    from mu2mpi.results.coefficients import Coefficients

FEATURES_AT_ONCE = 1 << 22  # features that are scaled in one go


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """One finished run: everything that its file holds.

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
        Hosts, ranks, MPI library and versions; of a published file, what it was `published` without.
    class_counts : ndarray of int64, shape (machines, classes), or None
        How many samples of each class each machine spent; private, and None, like the diagnostics.
    class_names : tuple of str or None
        What the classes are called, where it is not by their numbers.
    metrics : dict of str to float
        Of the output on the test set, such as ``auc`` or ``rmse``; empty like `theory`.
    label_range : tuple of float or None
        Where labels are numbers, the declared range in which they lie, in their own units.
    feature_names, columns : tuple of str or None, str or None
        Names of the features, if any, and the TOML schema of the columns that they were made of.
    scale : float
        What takes a stored feature into [-1, 1].
    facts : Facts or None
        What is public of the data, and presets may use.
    unit : str
        That of losses: ``nat``, or ``1`` for those that are no likelihoods.
    accounts : Accounts or None
        What each machine does and spends, where they differ or some are away.
    confusion : ndarray of int64, shape (classes, classes), or None
        How many test samples of each class the output takes for each; None where classes are many.
    test_rows : ndarray of int64 or None
        Where the test set is a share of a file, its rows, from 0 on.
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
        """Schema of the table whose columns the features were made of, if there is one."""
        from mu2mpi.data.table_schema import parse_schema

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

    @property
    def task(self) -> "Task":
        """Task of the run's method; InputError if there is no such task."""
        from mu2mpi.config.task_builder import task_of, unequal_machines_of

        samples, unequal = self.privacy.mechanism.samples, None
        if (accounts := self.accounts) is not None:
            samples = max(1, int(accounts.samples.min()))
            unequal = unequal_machines_of(self.experiment, accounts.samples, accounts.owners, accounts)
        square = None if self.facts is None else self.facts.square
        sizes = self.experiment.machines or 1, self.classes, self.x.shape[1], samples
        return task_of(self.experiment, *sizes, square=square, unequal=unequal)

    @property
    def constants(self) -> "RunConstants":
        """Constants of the run, with its noise and steps; InputError if there is no such run."""
        task, method = self.task, self.experiment.chosen_method
        constants: RunConstants = method.constants(task, method.sampling(task, self.experiment.rounds))
        return constants

    def predict(self, X: Any) -> NDArray[Any]:
        """Return what the model predicts, shape (n,): names of classes, or numbers in the label's own units.

        X is a data frame, a mapping of the columns' names to values, or the path of a file; without a schema,
        it is an array of features as they are stored, shape (n, features - 1), or the path of a file of such.
        Other columns do no harm. Raises InputError if X does not fit the model.
        """
        return self.predictions(self.margins(X))

    def scores(self, X: Any) -> Floats:
        """Return a score for each class, shape (n, K), the largest for the prediction; X as for `predict`.

        They are probabilities where the loss is a likelihood: those of softmax and logistic.
        """
        return self.class_scores(self.margins(X))

    def margins(self, X: Any, public: bool = True) -> Floats:
        """Return the margins of new samples, shape (n, rows); X as for `predict`.

        Unless data are `public`, messages name no row and no value of a file.
        """
        from mu2mpi.data.redaction import telling
        from mu2mpi.data.source import row_blocks
        from mu2mpi.losses.model.linear import all_margins
        from mu2mpi.results.coefficients import encoded_features, stored_features

        scaling, names, width = self.task.scaling, self.feature_names, self.x.shape[1]
        with telling(public or not isinstance(X, str | Path)):
            if self.schema is not None:
                features = encoded_features(self.schema, X)
            else:
                features = stored_features(X, self.experiment, names, width - 1, self.scale, scaling.unit)
        blocks = row_blocks(len(features), max(1, FEATURES_AT_ONCE // width))
        margins = [all_margins(self.x, scaling.samples(features[rows], self.scale)) for rows in blocks]
        return np.concatenate([np.empty((0, len(self.x))), *margins])

    def predictions(self, margins: Floats) -> NDArray[Any]:
        """Return the predictions that follow from margins."""
        problem = self.task.problem
        if self.label_range is not None:
            low, high = self.label_range
            return (low + high) / 2 + (high - low) / 2 * problem.predictions(margins)
        best = problem.best(margins)
        return best if self.class_names is None else np.array(self.class_names)[best]

    def class_scores(self, margins: Floats) -> Floats:
        """Return the scores of classes that follow from margins."""
        if self.label_range is not None:
            raise InputError("this model predicts numbers, and has no scores of classes; ask it to predict")
        return self.task.problem.scores(margins)

    def coefficients(self, scaled: bool = False) -> "Coefficients":
        """Return the model in the columns' own units, or as it was trained, with what noise alone would give.

        See `Coefficients`. Raises InputError if there is no run of the experiment.
        """
        from mu2mpi.results.coefficients import Units, coefficients_of, own_units

        constants, features = self.constants, self.x.shape[1] - 1
        is_own = not (scaled or constants.task.scaling.is_by_sample)
        if is_own and self.schema is not None:
            units = own_units(self.schema)
        else:
            names = self.feature_names or tuple(map(str, range(features)))
            halves = np.ones(features) / (self.scale if is_own else 1.0)
            units = Units(names, np.zeros(features), halves)
        return coefficients_of(self.x, self.row_names, constants, units, self.label_range, scaled)

    def to_xarray(self) -> "xarray.Dataset":
        """Return history, model, confusion matrix and times with names, coordinates and units.

        Settings are attributes. What is private, such as the diagnostics, is left out.
        """
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
