"""Private linear classifier and regressor with the interface of scikit-learn (extra ``sklearn``)."""

import itertools
import re
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.errors import InputError, MissingPackageError
from mu2mpi.core.parallel import world
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import check_agreement

try:
    from scipy.special import softmax
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_regressor
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    message = 'this needs scikit-learn from 1.6 on. Use: pip install "mu2mpi[sklearn]"'
    raise MissingPackageError(message) from error

_fit_numbers = itertools.count(1)  # of private fits in this process


class PrivacyWarning(UserWarning):
    """Warning that fits on the same samples together spend more privacy than each of them states."""


class _DPLinearModel(BaseEstimator):
    """Linear model that `mu2mpi.run` trains with the practical preset; base class of both estimators."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Any = None,
        machines: int | None = None,
        server: str = "trusted",
        method: str | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon, self.delta, self.bounds, self.machines = epsilon, delta, bounds, machines
        self.server, self.method, self.random_state = server, method, random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the model; under MPI all ranks call `fit`, and only the arrays of rank 0 are used.

        Parameters
        ----------
        X, y : array-like of shape (n_samples, n_features), array-like of shape (n_samples,)
            Features, which are clipped to `bounds`, and labels. The set of classes is taken to be public.
        """
        communicator = world()
        random_state = str(self.random_state).split(" at ")[0]  # without the address of a RandomState
        check_agreement({"the estimator": type(self), "random_state": random_state}, communicator)
        try:
            # Equal arrays on all ranks have equal errors; parameters may differ.
            X, y = validate_data(self, *communicator.bcast_object((X, y)), dtype=np.float64)
            with communicator.collective_errors():
                labels, settings, label_scale, label_middle = self._encode_labels(y)
                low, high = self.bounds_ = _check_bounds("bounds", self.bounds, (self.n_features_in_,))
                if self.epsilon is None or self.delta is None:
                    raise InputError("epsilon and delta must be numbers, not None")
        except (TypeError, ValueError) as error:
            raise _redacted_error(error) from None
        seed = None if self.random_state is None else check_random_state(self.random_state).randint(2**31 - 1)
        check_agreement({"the parameter bounds": (low.tobytes(), high.tobytes())}, communicator)
        middle, scale = low / 2 + high / 2, high / 2 - low / 2
        features = np.clip((np.clip(X, low, high) - middle) / scale, -1, 1)
        settings |= {"epsilon": self.epsilon, "delta": self.delta, "machines": self.machines, "seed": seed}
        settings |= {"server": self.server, "method": self.method, "preset": "practical", "normalize": "none"}
        # Every run evaluates its model: here on a sample of zeros, as no noise protects an evaluation.
        test = np.zeros((1, self.n_features_in_)), np.zeros(1, np.int64)
        result = run(settings | {"evaluations": 1}, data=(features, labels), test=test)
        coef = label_scale * result.x[:, :-1] / scale
        intercept = label_middle + label_scale * result.x[:, -1] - coef @ middle
        self.coef_, self.intercept_ = (coef[0], intercept[0]) if is_regressor(self) else (coef, intercept)
        self.privacy_ = result.privacy
        # All ranks communicate before a filter may turn a warning of rank 0 into an error.
        if communicator.rank == 0:
            self._warn(is_private=result.experiment.target_epsilon < np.inf)
        return self

    def _warn(self, is_private: bool) -> None:
        """Warn of default bounds, and at the second private fit of this process that losses add up."""
        for name, values in (("bounds", "features"), ("label_bounds", "labels")):
            if getattr(self, name, ()) is None:
                warnings.warn(f"{name} not given: {values} are clipped to (-1, 1)", stacklevel=3)
        if is_private and next(_fit_numbers) == 2:
            text = (
                "Another private fit: privacy losses of fits that share samples add up. A search over c "
                "candidates with k folds and a final fit spends up to (c k + 1) epsilon."
            )
            warnings.warn(text, PrivacyWarning, stacklevel=3)

    def _margins(self, X: Any) -> FloatArray:
        """Margins of new samples, whose features are clipped as in training: shape (n_samples, rows)."""
        check_is_fitted(self)
        X = np.clip(validate_data(self, X, reset=False, dtype=np.float64), *self.bounds_)
        return np.asarray(X @ np.atleast_2d(self.coef_).T + self.intercept_)


class DPClassifier(ClassifierMixin, _DPLinearModel):
    """Differentially private logistic regression (softmax regression for more than two classes).

    Parameters
    ----------
    epsilon, delta : float
        Privacy budget of each `fit`; `epsilon` may be infinite, for no noise.
    bounds : tuple (low, high) of floats or arrays of shape (n_features,)
        Public ranges of the features, which are clipped to them. The default is (-1, 1), with a warning.
    machines, server, method
        Settings of `mu2mpi.run`; by default a machine per rank, and the method of the practical preset.
    random_state : int, RandomState instance or None
        Seed of noise and order of samples. Who knows it can remove the noise: use it for tests only. By
        default the key of the noise comes from the operating system.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (1 or n_classes, n_features), ndarray of shape (1 or n_classes,)
        Model in the units of the features.
    classes_, n_features_in_, bounds_ : ndarray, int, tuple of ndarray
        Classes in sorted order, number of features, and bounds of each feature.
    privacy_ : PrivacyStatement
        Guarantee of the fitted model.
    """

    def _encode_labels(self, y: Any) -> Any:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("DPClassifier needs samples of at least 2 classes, got 1 class")
        return labels, {"loss": "logistic" if len(self.classes_) == 2 else "softmax"}, 1.0, 0.0

    def decision_function(self, X: Any) -> FloatArray:
        """Return margins, shape (n_samples,) for two classes and else (n_samples, n_classes)."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each sample, shape (n_samples,)."""
        most_probable = self.predict_proba(X).argmax(axis=1)  # before classes_, which an unfitted model lacks
        return np.asarray(self.classes_[most_probable])

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities of the classes, shape (n_samples, n_classes)."""
        margins = self._margins(X)
        if len(self.classes_) == 2:
            margins = np.hstack([np.zeros_like(margins), margins])
        return np.asarray(softmax(margins, axis=1))


class DPRegressor(RegressorMixin, _DPLinearModel):
    """Differentially private least squares, with the parameters and attributes of `DPClassifier`.

    Parameters
    ----------
    label_bounds : tuple (low, high) of floats
        Public range of the labels. Labels outside are clipped. The default is (-1, 1), with a warning.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,), float
        Model in the units of features and labels.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Any = None,
        label_bounds: Any = None,
        machines: int | None = None,
        server: str = "trusted",
        method: str | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, machines, server, method, random_state)
        self.label_bounds = label_bounds

    def _encode_labels(self, y: Any) -> Any:
        bounds = _check_bounds("label_bounds", self.label_bounds, ())
        low, high = self.label_bounds_ = float(bounds[0]), float(bounds[1])
        settings = {"loss": "squared", "label_range": f"{low!r}:{high!r}"}
        return y.astype(np.float64), settings, high / 2 - low / 2, low / 2 + high / 2

    def predict(self, X: Any) -> FloatArray:
        """Return predicted labels, clipped to `label_bounds`: shape (n_samples,)."""
        return np.asarray(np.clip(self._margins(X)[:, 0], *self.label_bounds_))


def _redacted_error(error: Exception) -> Exception:
    """Error of the same kind, without values of private data, which stand in quotes or in further lines."""
    text = re.split("['\"\n]", str(error))[0] or "X or y has values of a type that cannot be used"
    if isinstance(error, InputError):
        return InputError(text)
    return TypeError(text) if isinstance(error, TypeError) else ValueError(text)


def _check_bounds(name: str, bounds: Any, shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds as arrays of a shape; InputError unless finite with low < high."""
    bounds = (-1.0, 1.0) if bounds is None else bounds
    try:
        low, high = (np.broadcast_to(np.array(bound, np.float64), shape) for bound in bounds)
    except (TypeError, ValueError):
        low = high = np.zeros(())
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (high / 2 - low / 2 > 0).all()):
        values = f"numbers or arrays of {shape[0]} numbers" if shape else "numbers"
        raise InputError(f"{name} must be a pair (low, high) of finite {values} with low < high")
    return low, high
