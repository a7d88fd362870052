"""The estimators keep scikit-learn's rules, train what `run` trains, and warn where fits add up."""

import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import mu2mpi
from mu2mpi import sklearn as module
from mu2mpi.core.errors import InputError
from mu2mpi.sklearn import DPClassifier, DPRegressor, PrivacyWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::mu2mpi.sklearn.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore:.*bounds not given"),
]
# Checks that privacy forbids to pass, with the reasons
FORBIDDEN = {
    DPRegressor: {
        "check_regressors_train": "labels leave the default label_bounds (-1, 1) and are clipped, as bounds "
        "must not be computed from the data"
    }
}
IRIS = datasets.load_iris(return_X_y=True)
BOUNDS = np.array([4.0, 2.0, 1.0, 0.0]), np.array([8.0, 5.0, 7.0, 3.0])


@parametrize_with_checks(
    [DPClassifier(), DPRegressor()], expected_failed_checks=lambda e: FORBIDDEN.get(type(e), {})
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_without_noise_the_regressor_learns_labels_of_a_known_range():
    X, y = datasets.load_diabetes(return_X_y=True)
    model = DPRegressor(epsilon=np.inf, bounds=(-0.2, 0.2), label_bounds=(0, 400)).fit(X, y)
    assert model.score(X, y) > 0.5
    assert model.coef_.shape == (10,)
    assert isinstance(model.intercept_, float)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_model_is_that_of_a_run_on_clipped_and_scaled_features(classes):
    X, y = (values[: 50 * classes] for values in IRIS)
    model = DPClassifier(epsilon=3.0, bounds=BOUNDS, machines=2, random_state=7).fit(X, y)
    low, high = BOUNDS
    scaled = np.clip((2 * X - low - high) / (high - low), -1, 1)
    settings = {"loss": "logistic" if classes == 2 else "softmax", "normalize": "none", "preset": "practical"}
    seed = np.random.RandomState(7).randint(2**31 - 1)
    settings |= {"epsilon": 3.0, "machines": 2, "server": "trusted", "seed": seed, "evaluations": 1}
    result = mu2mpi.run(settings, data=(scaled, y), test=(np.zeros((1, 4)), np.zeros(1, int)))
    assert model.privacy_ == result.privacy
    assert model.privacy_.noise_recomputable
    np.testing.assert_allclose(model.predict_proba(X), result.scores(scaled), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X).astype(str), result.predict(scaled))
    margins = np.clip(X, low, high) @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), margins[:, 0] if classes == 2 else margins)
    # New values outside of the bounds count as the bounds.
    beyond, at = (np.column_stack([np.full(len(X), sepal_length), X[:, 1:]]) for sepal_length in (99, 8))
    np.testing.assert_array_equal(model.predict_proba(beyond), model.predict_proba(at))


def test_labels_and_features_outside_of_their_bounds_are_clipped():
    X, y = np.linspace(-2, 2, 80).reshape(40, 2), np.linspace(-5, 5, 40)
    common = {"label_bounds": (-1, 1), "random_state": 1}
    model = DPRegressor(**common).fit(X, y)
    same = DPRegressor(**common).fit(X.clip(-1, 1), y.clip(-1, 1))
    np.testing.assert_array_equal(model.coef_, same.coef_)
    assert np.abs(model.predict(X)).max() <= 1


def test_the_key_of_the_noise_is_that_of_the_system_unless_there_is_a_random_state():
    X, y = IRIS
    models = [DPClassifier(bounds=BOUNDS).fit(X, y) for _ in range(2)]
    assert not models[0].privacy_.noise_recomputable
    assert not np.array_equal(models[0].coef_, models[1].coef_)
    states = [np.random.RandomState(3), 3]
    models = [DPClassifier(bounds=BOUNDS, random_state=state).fit(X, y) for state in states]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_pipelines_of_frames_and_searches():
    X, y = datasets.load_iris(return_X_y=True, as_frame=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    pipeline = make_pipeline(FunctionTransformer(), DPClassifier(bounds=BOUNDS, epsilon=10.0, random_state=0))
    search = GridSearchCV(pipeline, {"dpclassifier__epsilon": [0.01, 50.0]}, cv=3).fit(X, names)
    assert search.best_params_ == {"dpclassifier__epsilon": 50.0}
    assert search.score(X, names) > 0.85
    last = search.best_estimator_[-1]
    assert list(last.feature_names_in_) == list(X.columns)
    assert list(last.classes_) == ["setosa", "versicolor", "virginica"]
    assert last.privacy_.epsilon_exact <= 50


def test_a_search_warns_that_its_fits_add_up(monkeypatch):
    monkeypatch.setattr(module, "_fit_numbers", iter(range(1, 100)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DPClassifier(bounds=BOUNDS).fit(*IRIS)
        monkeypatch.setattr(module, "_fit_numbers", iter(range(1, 100)))
        cross_val_score(DPClassifier(bounds=BOUNDS, epsilon=np.inf), *IRIS, cv=3)
    with pytest.warns(PrivacyWarning, match=r"up to \(c k \+ 1\) epsilon") as shown:
        cross_val_score(DPClassifier(bounds=BOUNDS), *IRIS, cv=4)
    assert len(shown) == 1


def test_default_bounds_warn_without_a_look_at_the_data():
    X, y = np.linspace(-1, 1, 80).reshape(40, 2), np.linspace(-1, 1, 40)
    with pytest.warns(UserWarning, match="not given") as shown:
        model = DPRegressor(random_state=1).fit(X, y)
    assert [str(warning.message) for warning in shown] == [
        "bounds not given: features are clipped to (-1, 1)",
        "label_bounds not given: labels are clipped to (-1, 1)",
    ]
    assert shown[0].filename == __file__
    given = {"bounds": (-1, 1), "label_bounds": (-1, 1), "random_state": 1}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "not given")
        np.testing.assert_array_equal(DPRegressor(**given).fit(X, y).coef_, model.coef_)


def test_bounds_are_copies():
    low, high = (bound.copy() for bound in BOUNDS)
    model = DPClassifier(bounds=(low, high)).fit(*IRIS)
    low[:] = high[:] = 5.0
    np.testing.assert_array_equal(model.bounds_, BOUNDS)


@pytest.mark.parametrize(
    ("estimator", "X", "y"),
    [
        (DPClassifier, np.array([["1", "secret"], ["2", "3"]], object), [0, 1]),
        (DPClassifier, np.array([[1, 2], [3, 4]]) + 271828j, [0, 1]),
        (DPClassifier, [271828, 271829], [0, 1]),
        (DPClassifier, [[1.0], [2.0]], np.array(["secret", 271828], object)),
        (DPRegressor, [[1.0], [2.0]], ["1", "secret"]),
    ],
)
def test_errors_of_fit_name_no_values(estimator, X, y):
    with pytest.raises((TypeError, ValueError)) as refused:
        estimator().fit(X, y)
    assert "secret" not in str(refused.value)
    assert "271828" not in str(refused.value)
    assert len(str(refused.value)) > 10
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"bounds": (1, 0)}, r"bounds must be a pair \(low, high\) of finite numbers or arrays of 4 numbers"),
        ({"bounds": 3}, "bounds must be a pair"),
        ({"bounds": (0, 5e-324)}, "bounds must be a pair"),
        ({"epsilon": None}, "epsilon and delta must be numbers, not None"),
        ({"delta": None}, "epsilon and delta must be numbers, not None"),
        ({"bounds": (np.zeros(3), np.ones(3))}, "bounds must be a pair"),
        ({"bounds": (0, np.inf)}, "bounds must be a pair"),
        ({"epsilon": -1}, "epsilon = -1 should be greater than 0"),
        ({"method": "none"}, "method = 'none' should be"),
        ({"method": "dp-sgd", "server": "untrusted"}, "dp-sgd"),
    ],
)
def test_parameters_that_cannot_be_used(parameters, told):
    with pytest.raises(InputError, match=told):
        DPClassifier(**parameters).fit(*IRIS)


def test_scikit_learn_is_imported_by_this_module_alone():
    script = "import sys, mu2mpi; mu2mpi.run; print('sklearn' in sys.modules)\n"
    script += "sys.modules['sklearn'] = None\nimport mu2mpi.sklearn"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    assert 'pip install "mu2mpi[sklearn]"' in done.stderr.splitlines()[-1]


def test_series_and_frames_are_data():
    X = pd.DataFrame(IRIS[0], columns=list("abcd"))
    models = [DPClassifier(bounds=BOUNDS, random_state=2).fit(X, y) for y in (pd.Series(IRIS[1]), IRIS[1])]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
