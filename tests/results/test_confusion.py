"""Which samples a model was tested on, and as what it takes those of each class."""

import csv
import math
from dataclasses import replace

import h5py
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from mu2mpi.analysis.description import describe_result
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

NAMES = ("calm", "mild", "wild")
SMALL = {"machines": 2, "rounds": 60, "rho": math.inf, "seed": 1}


def write_data(path, n=157):
    """Write samples of three classes, of which the last is rare, and return them."""
    draw = np.random.default_rng(0)
    labels = np.array(NAMES)[draw.choice(3, n, p=[0.5, 0.45, 0.05])]
    X = draw.uniform(-1, 1, (n, 3)) / 2 + (labels == "calm")[:, np.newaxis] / 2
    if path.suffix == ".npz":
        np.savez(path, features=X, labels=labels)
    else:
        lines = [[*map(repr, x), y] for x, y in zip(X.tolist(), labels, strict=True)]
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["f", "g", "h", "label"], *lines])
    return X, labels


@pytest.mark.parametrize("name", ["data.npz", "data.csv"])
def test_the_rows_of_the_file_and_the_model_give_the_matrix_again(name, tmp_path):
    X, labels = write_data(tmp_path / name)
    settings = {"data": str(tmp_path / name), "data_seed": 5, **SMALL}
    result = run(Experiment(**settings), output=tmp_path / "a.h5")
    rows = result.test_rows
    assert len(rows) == round(0.2 * len(X))
    predicted = result.predict(X[rows])
    np.testing.assert_array_equal(result.confusion, confusion_matrix(labels[rows], predicted, labels=NAMES))
    assert np.trace(result.confusion) / len(rows) == result.history.test_accuracy[-1]
    back = read_result(tmp_path / "a.h5")
    np.testing.assert_array_equal(back.confusion, result.confusion)
    np.testing.assert_array_equal(back.test_rows, rows)
    shown = [line.split()[:3] for line in describe_result(back, back.path).splitlines()]
    for k, taken in enumerate(result.confusion):
        assert [NAMES[k], str(taken.sum()), f"{taken[k] / taken.sum():.1%}"] in shown


def test_there_is_no_matrix_of_numbers_and_no_row_of_what_is_in_no_file(tmp_path):
    write_data(tmp_path / "data.npz")
    write_data(tmp_path / "test.npz", 40)
    files = {"data": str(tmp_path / "data.npz"), "test": str(tmp_path / "test.npz")}
    apart = run(Experiment(**files, **SMALL))
    assert apart.test_rows is None
    assert apart.confusion.sum() == 40
    for settings in ({"loss": "squared"}, {"data": "population", "features": 3}):
        experiment = Experiment(**{"data": "digits", **SMALL, **settings})
        result = run(experiment, output=tmp_path / "b.h5", overwrite=True)
        assert result.confusion is result.test_rows is None
        assert "Test samples by class" not in describe_result(result, result.path)
        with h5py.File(tmp_path / "b.h5") as file:
            assert "confusion" not in file["metrics"]


def test_classes_without_samples_or_mistakes_are_shown(tmp_path):
    result = run(Experiment(data="digits", **SMALL))
    counts = np.diag([3] * 9 + [0])
    text = describe_result(replace(result, confusion=counts), tmp_path)
    assert "none" in text.split("Test samples by class")[1].split("History")[0]
    assert "nan" not in text
