"""Result of a run, with what follows from it: predictions, coefficients, a labelled dataset."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.extra import needed
from mu2mpi.privacy.accounting.machines import Floats, described
from mu2mpi.results.schema import CONFUSION, OF_CONFUSION, History, StoredResult
from mu2mpi.results.writer import plain

if TYPE_CHECKING:
    import xarray

    from mu2mpi.results.model.coefficients import Coefficients


@dataclass(frozen=True, eq=False, repr=False)
class Result(StoredResult):
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
    facts : Facts or None
        What is public of the data, and presets may use.
    unit : str
        That of losses: ``nat``, or ``1`` for those that are no likelihoods.
    accounts : Accounts or None
        What each machine does and spends, where they differ or some are away.
    path : Path or None
        The file that it was read from, or written to.
    """

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
