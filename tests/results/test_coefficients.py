"""Coefficients in the columns' own units, and their standard errors against runs of noise alone."""

import math

import numpy as np
import pytest
from helpers.patients import learn, table

from mu2mpi import Experiment, run
from mu2mpi.methods.base import Method
from mu2mpi.results.coefficients import noise_of_output


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
    assert found.rows == (("ill",) if labels == "classes" else ("cost",))
    margins = (in_own_units(columns) @ found.values.T)[:, 0]
    if labels == "classes":
        scores = result.scores(columns)
        np.testing.assert_allclose(margins, np.log(scores[:, 1] / scores[:, 0]), rtol=1e-3, atol=1e-5)
    else:
        np.testing.assert_allclose(np.clip(margins, 0, 6000), result.predict(columns), rtol=1e-4, atol=0.01)


def test_errors_in_own_units_are_those_of_scaled_features(tmp_path):
    result = learn(tmp_path, "numbers")
    own, scaled = result.coefficients(), result.coefficients(scaled=True)
    np.testing.assert_array_equal(scaled.values, result.x)
    assert len(set(scaled.errors)) == 1
    one = 3000 * scaled.errors[0]
    np.testing.assert_allclose(own.errors[:-1], one / np.array([36, 0.0005, 1, 1, 0.5, 1]))
    assert own.errors[-1] == pytest.approx(one * math.sqrt(1 + (54 / 36) ** 2 + 1 + 1 + 1))


@pytest.mark.parametrize("settings", [{"normalize": "unit"}, {"norm_bound": 1.0}])
def test_samples_scaled_one_by_one_have_no_coefficients_in_own_units(tmp_path, settings):
    result = learn(tmp_path, **settings)
    found = result.coefficients()
    bias = 0.1 if "normalize" in settings else 1.0
    np.testing.assert_allclose(found.values, result.x * [1, 1, 1, 1, 1, 1, bias])
    assert any("factor of its own" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"server": "trusted", "l2": 0.1},
        {"diameter": 1e9, "eta_scale": 1.0},
        {"preset": "practical"},
        {"method": "anytime-sgd"},
        {"method": "parallel-sgd", "l2": 5.0},
        {"method": "storm", "clip_norm": 1.0},
        {"method": "dp-sgd", "server": "trusted"},
        {"method": "noisy-minibatch-sgd", "rounds": 100},
        {"method": "snowball-sgd", "server": "trusted"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "default",
)
def test_standard_errors_are_those_of_runs_that_can_learn_nothing(tmp_path, settings):
    """Features that are 0 have no gradient, so that their weights are noise and nothing else."""
    np.savez(tmp_path / "zeros.npz", X=np.zeros((1500, 400), np.float32), y=np.arange(1500) % 3)
    weights, base = [], {"data": str(tmp_path / "zeros.npz"), "machines": 4, "rho": 4.0}
    for seed in range(4):
        result = run(Experiment(**base, **settings, seed=seed))
        weights.append(result.x[:, :-1])
    deviation = float(np.std(weights))
    assert deviation == pytest.approx(noise_of_output(result.constants), rel=0.05)


def test_without_noise_there_is_no_standard_error(tmp_path):
    assert np.all(learn(tmp_path, rho=math.inf).coefficients().errors == 0)


def test_steps_of_the_method_itself_carry_the_noise(tmp_path, monkeypatch):
    """Half of every step is half of the noise, whatever a formula may say."""
    result = learn(tmp_path, diameter=1e9, eta_scale=1e-3)
    whole = result.coefficients(scaled=True).errors[0]
    size = Method.step_size
    monkeypatch.setattr(Method, "step_size", lambda *given: size(*given) / 2)
    assert result.coefficients(scaled=True).errors[0] == pytest.approx(whole / 2)
