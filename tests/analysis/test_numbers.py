"""Runs that learn numbers, alone and beside runs that learn classes: tables, figures, publication."""

import math

import numpy as np
import pytest
from helpers.patients import learn
from matplotlib.backends.backend_agg import FigureCanvasAgg

import mu2mpi
from mu2mpi import InputError
from mu2mpi.analysis.description import describe_result
from mu2mpi.analysis.figures import draw_figure
from mu2mpi.analysis.publication import publish
from mu2mpi.results.reader import read_result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with runs that learn numbers with two losses, and one that learns classes."""
    folder = tmp_path_factory.mktemp("numbers")
    for rho in (4.0, 16.0):
        learn(folder, "numbers", output=folder / f"squared-{rho}.h5", rho=rho)
    learn(folder, "numbers", output=folder / "poisson.h5", loss="poisson")
    learn(folder, output=folder / "logistic.h5")
    return folder


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder)


def test_a_table_has_r2_where_all_learn_numbers_and_both_where_some_do(runs):
    squared = runs.select(loss="squared")
    text = squared.table()
    assert "R²" in text
    assert "accuracy" not in text
    assert f"{squared[0].metrics['r2']:.4f}" in text
    assert f"{squared[0].metrics['rmse']:.4g}" in squared.table(values=["rmse", "mae"])
    both = runs.table(columns=["loss"])
    assert "R²" in both
    assert "accuracy %" in both
    header, *lines = runs.table(format="csv").splitlines()
    assert len(lines) == 4
    assert all(line.count(",") == header.count(",") for line in lines)


def test_a_frame_and_a_history_have_what_each_run_measured(runs):
    frame = runs.to_dataframe().set_index("loss")
    assert frame.loc["poisson", "rmse"] > frame.loc["poisson", "mae"] > 0
    assert math.isnan(frame.loc["poisson", "auc"])
    assert math.isnan(frame.loc["logistic", "test_r2"])
    for loss, score in (("squared", "test_r2"), ("logistic", "test_accuracy")):
        history = runs.select(loss=loss).to_dataframe(history=True)
        known = [name for name in ("test_r2", "test_accuracy") if history[name].notna().any()]
        assert known == [score]


@pytest.mark.parametrize("kind", ["history", "tradeoff"])
def test_figures_of_numbers_show_r2_and_no_nats(runs, kind):
    squared = runs.select(loss="squared").summaries
    figure = draw_figure(kind, squared)
    assert {panel.get_ylabel() for panel in figure.axes} == {"test loss", "test R²"}
    drawn = np.concatenate([line.get_ydata() for line in figure.axes[1].get_lines()])
    assert all(np.any(np.isclose(drawn, run.test_r2)) for run in squared)
    FigureCanvasAgg(figure).draw()
    assert "test loss (nats)" in {
        p.get_ylabel() for p in draw_figure(kind, runs.select(loss="poisson").summaries).axes
    }
    with pytest.raises(InputError, match="--where loss"):
        draw_figure(kind, runs.summaries)


def test_all_measures_are_shown(folder):
    said = describe_result(read_result(folder / "poisson.h5"), folder / "poisson.h5")
    assert all(word in said for word in ("RMSE", "MAE", "R2", "from 0 to 6000", " nats"))
    assert "accuracy" not in said
    assert " nats" not in describe_result(read_result(folder / "squared-4.0.h5"), folder / "squared-4.0.h5")
    classes = describe_result(read_result(folder / "logistic.h5"), folder / "logistic.h5")
    assert all(word in classes for word in ("balanced accuracy", "area under the ROC", "1 row x 7 features"))


def test_a_public_test_file_of_a_schema_keeps_what_is_measured_and_loses_its_folder(folder, tmp_path):
    publish([folder / "squared-4.0.h5"], tmp_path / "public.h5", even_if_unprotected=True)
    ours, theirs = read_result(folder / "squared-4.0.h5"), read_result(tmp_path / "public.h5")
    assert theirs.metrics == ours.metrics
    np.testing.assert_array_equal(theirs.history.test_r2, ours.history.test_r2)
    assert str(folder).encode() not in (tmp_path / "public.h5").read_bytes()
    assert theirs.schema.test == "test.csv"
    assert theirs.experiment.schema == "numbers.toml"
    np.testing.assert_array_equal(theirs.predict(folder / "test.csv"), ours.predict(folder / "test.csv"))
    np.testing.assert_array_equal(theirs.coefficients().values, ours.coefficients().values)


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_nothing_is_measured_in_public_on_people_whom_nothing_protects(tmp_path, labels):
    learn(tmp_path, labels, output=tmp_path / "a.h5", test=0.2)
    publish([tmp_path / "a.h5"], tmp_path / "public.h5", even_if_unprotected=True)
    result = read_result(tmp_path / "public.h5")
    assert result.metrics == {}
    assert result.theory is None
    for name in ("test_loss", "test_accuracy", "test_r2"):
        assert np.isnan(getattr(result.history, name)).all()
    said = describe_result(result, tmp_path / "public.h5")
    assert ("final test R2" in said) == (labels == "numbers")
    publish([tmp_path / "a.h5"], tmp_path / "kept.h5", even_if_unprotected=True, with_test_results=True)
    assert read_result(tmp_path / "kept.h5").metrics == read_result(tmp_path / "a.h5").metrics
