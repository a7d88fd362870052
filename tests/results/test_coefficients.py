"""What is made of a model: predictions and coefficients, against numpy."""

import numpy as np
import pandas as pd
import pytest
from helpers.patients import FEATURES, learn, table, write

import mu2mpi
from mu2mpi import Experiment, InputError, run
from mu2mpi.cli import main

UNIT_NORM_BIAS = 0.1


def encoded(columns):
    """Return features in [-1, 1] and the bias, apart from the package."""
    age = np.nan_to_num((np.clip(columns["age"], 18, 90) - 54) / 36, nan=0)
    stage = np.select([columns["stage"] == name for name in ("I", "II", "III")], [-1.0, 0.0, 1.0])
    smoker = np.where(columns["smoker"] == "yes", 1.0, -1.0)
    sexes = [columns["sex"] == name for name in ("f", "m")]
    return np.column_stack([age, columns["dose"] / 0.0005 - 1, *sexes, smoker, stage, np.ones(len(age))])


def scaled(z, settings):
    """Return samples as they are with norm 1 or clipped to a norm."""
    norms = np.linalg.norm(z[:, :-1], axis=1, keepdims=True)
    if settings.get("normalize") == "unit":
        return np.hstack(
            [z[:, :-1] * np.sqrt(1 - UNIT_NORM_BIAS**2) / norms, np.full((len(z), 1), UNIT_NORM_BIAS)]
        )
    factor = np.minimum(1, settings.get("norm_bound", np.inf) / norms)
    return np.hstack([z[:, :-1] * factor, z[:, -1:]])


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": "softmax"}, {"loss": "smoothed-hinge"}, {"normalize": "unit"}, {"norm_bound": 1.5}],
)
def test_classes_are_those_of_numpy_and_as_good_as_the_run_measured(tmp_path, settings):
    result, columns = learn(tmp_path, **settings), table(seed=1)
    margins = scaled(encoded(columns), settings) @ result.x.T
    if len(result.x) == 1:
        margins = np.hstack([np.zeros_like(margins), margins])
    best = np.array(["well", "ill"])[margins.argmax(axis=1)]
    found = result.predict(columns)
    np.testing.assert_array_equal(found, best)
    share = np.mean(found == columns["outcome"])
    assert share == result.history.test_accuracy[-1] == pytest.approx(result.metrics["accuracy"])
    scores = result.scores(columns)
    np.testing.assert_array_equal(np.array(["well", "ill"])[scores.argmax(axis=1)], found)
    if settings.get("loss") != "smoothed-hinge":
        expected = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(scores, expected, rtol=1e-4)


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_numbers_are_in_the_labels_own_units_and_as_good_as_the_run_measured(tmp_path, loss):
    diameter = 1.0 if loss == "poisson" else 4.0
    result, columns = learn(tmp_path, "numbers", loss=loss, diameter=diameter), table(seed=1)
    margins = (encoded(columns) @ result.x.T)[:, 0]
    expected = np.minimum(6000, 3000 * np.exp(margins))
    if loss != "poisson":
        expected = 3000 + 3000 * np.clip(margins, -1, 1)
    found = result.predict(columns)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0.01)
    error = found - columns["cost"]
    assert np.sqrt(np.mean(error**2)) == pytest.approx(result.metrics["rmse"])
    assert np.mean(np.abs(error)) == pytest.approx(result.metrics["mae"])
    assert 1 - np.mean(error**2) / np.var(columns["cost"]) == pytest.approx(result.history.test_r2[-1])
    with pytest.raises(InputError, match="numbers"):
        result.scores(columns)


def test_frames_mappings_and_files_say_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    learn(tmp_path, output=tmp_path / "a.h5")
    [loaded], columns = mu2mpi.load(tmp_path / "a.h5"), table(seed=2)
    expected = loaded.scores(columns)
    frame = pandas.DataFrame(columns).astype({"sex": "category", "stage": "string"})
    for given in (
        frame,
        frame[list(reversed(FEATURES))],
        write(tmp_path / "new.csv", columns),
        str(write(tmp_path / "bare.csv", {name: columns[name] for name in FEATURES})),
    ):
        np.testing.assert_array_equal(loaded.scores(given), expected)
    np.testing.assert_array_equal(loaded.predict(frame.iloc[:1]), loaded.predict(columns)[:1])
    one = {"age": 54, "dose": 0.0005, "sex": None, "smoker": "Yes", "stage": "III"}
    assert loaded.predict(one).shape == (1,)


def test_stored_features_without_a_schema(tmp_path):
    """Pixels from 0 to 255 and the like are scaled by what the file of the result says."""
    draw = np.random.default_rng(0)
    X, y = (
        draw.integers(0, 256, (300, 4)).astype(np.uint8),
        np.array(["a", "b", "c"])[draw.integers(0, 3, 300)],
    )
    np.savez(tmp_path / "t.npz", X=X, y=y)
    np.savez(tmp_path / "new.npz", X=X)
    with open(tmp_path / "new.csv", "w") as file:
        np.savetxt(file, X, delimiter=",", header="p,q,r,s", comments="")
    settings = {"normalize": "box", "feature_bound": 255.0, "test": str(tmp_path / "t.npz"), "machines": 1}
    np.savez(tmp_path / "training.npz", X=X, y=y)
    result = run(Experiment(data=str(tmp_path / "training.npz"), rho=4.0, seed=1, **settings))
    margins = np.hstack([X / 255, np.ones((300, 1))]) @ result.x.T
    expected = np.array(["a", "b", "c"])[margins.argmax(axis=1)]
    for given in (X, X.astype(np.float64), X.reshape(300, 2, 2), tmp_path / "new.npz", tmp_path / "new.csv"):
        np.testing.assert_array_equal(result.predict(given), expected)
    assert np.mean(result.predict(X) == y) == result.history.test_accuracy[-1]
    for bad, what in (
        (X[:, :3], "3 features"),
        (X * 2.0, "exceeds the bound 255"),
        (np.full((1, 4), np.nan), "not finite"),
        (X.astype(str), "not numbers"),
        (X[:0], "no rows"),
    ):
        with pytest.raises(InputError, match=what):
            result.predict(bad)


def test_what_does_not_fit_a_schema_is_named_and_private_values_are_not(tmp_path):
    result, columns = learn(tmp_path), table(seed=2)
    with pytest.raises(InputError, match="no column age"):
        result.predict({name: columns[name] for name in ("sex", "dose", "smoker", "stage")})
    with pytest.raises(InputError, match="named columns"):
        result.predict(np.zeros((3, 6)))
    columns["age"] = np.array(["secret", *["40"] * 599])
    path = write(tmp_path / "bad.csv", columns)
    with pytest.raises(InputError, match="age") as hidden:
        result.margins(path, is_public=False)
    assert "secret" not in str(hidden.value)
    with pytest.raises(InputError, match="secret"):
        result.margins(path, is_public=True)


def test_features_that_have_a_usual_name_of_labels(tmp_path):
    """Of columns that might be the label, the one is that the run took."""
    random = np.random.default_rng(0)
    features, path = random.uniform(-1, 1, (40, 3)), tmp_path / "a.csv"
    rows = np.column_stack([features, features[:, 0] > 0])
    np.savetxt(path, rows, "%.17g", ",", header="a,y,target,label", comments="")
    result = run(Experiment(data=str(path), loss="logistic", machines=2, rounds=9, seed=1))
    expected = result.predict(features)
    np.testing.assert_array_equal(result.predict(path), expected)
    np.savetxt(path, features, "%.17g", ",", header="a,y,target", comments="")
    np.testing.assert_array_equal(result.predict(path), expected)


def test_columns_without_a_schema_are_found_by_their_names(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.uniform(-1, 1, (60, 3)), columns=["a", "b", "c"])
    frame["label"] = np.where(frame.a > frame.c, "x", "y")
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["c", "label", "a", "b"]].to_csv(tmp_path / "b.csv", index=False)
    result = run(Experiment(data=str(tmp_path / "a.csv"), loss="logistic", machines=2, diameter=10.0, seed=1))
    assert result.feature_names == ("a", "b", "c")
    frame.to_parquet(tmp_path / "d.parquet")
    for name in ("b.csv", "d.parquet"):
        np.testing.assert_array_equal(result.scores(tmp_path / "a.csv"), result.scores(tmp_path / name))
    frame[["a", "c"]].to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(InputError, match="has no column b"):
        result.predict(tmp_path / "c.csv")


def in_own_units(columns):
    """Return raw values, in the order of the terms, with a 1 for the intercept."""
    stage = np.select([columns["stage"] == name for name in ("I", "II", "III")], [0.0, 1.0, 2.0])
    sexes = [columns["sex"] == name for name in ("f", "m")]
    smoker = columns["smoker"] == "yes"
    ones = np.ones(len(smoker))
    return np.column_stack([columns["age"], columns["dose"], *sexes, smoker, stage, ones])


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_they_repeat_predictions_on_raw_values(tmp_path, labels):
    result, columns = learn(tmp_path, labels), table(seed=3)
    inside = (columns["age"] >= 18) & (columns["age"] <= 90)
    columns = {name: column[inside] for name, column in columns.items()}
    found = result.coefficients()
    terms = "age", "dose", "sex = f", "sex = m", "smoker = true", "stage (a step)", "(intercept)"
    assert found.terms == terms
    assert found.row_names == (("ill",) if labels == "classes" else ("cost",))
    margins = (in_own_units(columns) @ found.values.T)[:, 0]
    if labels == "classes":
        scores = result.scores(columns)
        np.testing.assert_allclose(margins, np.log(scores[:, 1] / scores[:, 0]), rtol=1e-3, atol=1e-5)
    else:
        np.testing.assert_allclose(np.clip(margins, 0, 6000), result.predict(columns), rtol=1e-4, atol=0.01)


@pytest.mark.parametrize("settings", [{"normalize": "unit"}, {"norm_bound": 1.0}])
def test_samples_scaled_one_by_one_have_no_coefficients_in_own_units(tmp_path, settings):
    result = learn(tmp_path, **settings)
    found = result.coefficients()
    bias = 0.1 if "normalize" in settings else 1.0
    np.testing.assert_allclose(found.values, result.x * [1, 1, 1, 1, 1, 1, bias])
    assert any("factor of its own" in note for note in found.notes)


def test_many_features_need_memory_for_the_model_alone(tmp_path):
    """A matrix of 200,000 x 200,000 numbers has 320 GB."""
    path, features = tmp_path / "wide.npz", 200_000
    X = np.random.default_rng(0).uniform(-1, 1, (4, features)).astype(np.float32)
    np.savez(path, X=X, y=np.arange(4) % 2)
    experiment = Experiment(data=str(path), loss="logistic", machines=1, rounds=2, seed=1)
    run(experiment, output=tmp_path / "wide.h5")
    found = mu2mpi.load(tmp_path / "wide.h5")[0].coefficients()
    assert found.values.shape == (1, len(found.terms)) == (1, features + 1)
    assert main(["show", "--coefficients", str(tmp_path / "wide.h5")]) == 0
