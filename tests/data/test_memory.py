"""Data of a Python program: the same bits as from a file, a schema for data frames, and refusals."""

import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from helpers.assertions import assert_same
from helpers.schema_tables import SCHEMA, table
from scipy.sparse import csr_array

import mu2mpi
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment, message_settings
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.memory import MemoryData
from mu2mpi.execution.plan import open_source

ROWS = 120
random = np.random.default_rng(5)
X = random.integers(-64, 65, (ROWS, 3)) / 64
Y = random.integers(0, 2, ROWS)
SETTINGS = {"machines": 2, "server": "trusted", "epsilon": 4.0, "seed": 1}
FRAME = pd.DataFrame(X, columns=["a", "b", "c"]).assign(stay=Y)
UNIT = {"type": "numeric", "low": -1.0, "high": 1.0}


def opened(data, target=None, schema=None, test=None, **settings):
    memory = MemoryData.share(Communicator(), data, target, schema, test)
    return open_source(Experiment(**{**settings, **memory.settings}), memory)


@pytest.fixture
def same_keys(monkeypatch):
    """Derive the key of the noise without the names of data and schema."""
    anonymous = {"data": "data", "schema": None, "labels": None}
    monkeypatch.setattr(
        "mu2mpi.execution.plan.message_settings",
        lambda e: message_settings(e).replace_unvalidated(**anonymous),
    )


@pytest.mark.usefixtures("same_keys")
def test_arrays_give_the_bits_of_a_file(tmp_path):
    np.savez(tmp_path / "a.npz", features=X, labels=Y)
    from_file = mu2mpi.run({**SETTINGS, "data": str(tmp_path / "a.npz")})
    assert_same(mu2mpi.run(SETTINGS, data=(X, Y)), from_file)
    assert_same(mu2mpi.run(Experiment(**SETTINGS), data=(X, Y[:, np.newaxis])), from_file)
    # A frame with the same columns, in its 64 bits, and labels by their name.
    assert_same(mu2mpi.run(SETTINGS, data=FRAME, target="stay"), from_file)
    assert_same(mu2mpi.run(SETTINGS, data=(FRAME.drop(columns="stay"), FRAME.stay)), from_file)


@pytest.mark.usefixtures("same_keys")
def test_a_frame_with_a_schema_gives_the_bits_of_its_csv_file(tmp_path):
    frame, path, schema = table(ROWS), tmp_path / "a.csv", tmp_path / "a.toml"
    frame.to_csv(path, index=False)
    schema.write_text(SCHEMA)
    settings = {**SETTINGS, "machines": 11}
    expected = mu2mpi.run({**settings, "data": str(path), "schema": str(schema)})
    frame["sex"] = frame.sex.replace("", None).astype("category")
    frame["stage"] = frame.stage.astype("Int64")
    for declared in (tomllib.loads(SCHEMA), schema):
        found = mu2mpi.run(settings, data=frame, target="outcome", schema=declared)
        assert_same(found, expected)
    assert_same(mu2mpi.run({**settings, "schema": str(schema)}, data=frame), expected)
    assert found.schema_toml == expected.schema_toml
    assert (found.predict(frame) == expected.predict(path)).all()
    assert found.experiment.settings().items() >= {"data": "memory", "schema": "memory"}.items()


def test_columns_with_numbers_as_names_and_labels_have_a_schema():
    label = {"type": "label", "low": 0.0, "high": 4.0}
    schema = {"columns": {**{str(k): {**UNIT, "low": -3.0} for k in range(3)}, "label": label}}
    with pytest.raises(InputError, match="features without names"):
        opened((X, 4 * Y), schema=schema, loss="squared")
    source = opened((pd.DataFrame(X), 4 * Y), schema=schema, loss="squared")
    samples = source.read_training(np.arange(source.training_samples))
    assert source.label_range == (0.0, 4.0)
    assert set(samples.labels) == {-1.0, 1.0}
    assert samples.features.min() == 0.0  # the middle of -3 .. 1 is -1


def test_test_samples_in_memory_leave_all_samples_for_training():
    source = opened((X, Y), test=(X[:7], Y[:7]))
    assert (source.training_samples, source.test_samples, source.test_rows) == (ROWS, 7, None)
    result = mu2mpi.run(SETTINGS, data=FRAME, target="stay", test=FRAME[:7])
    assert (result.experiment.test, result.history.test_samples[-1]) == ("memory", 7)
    assert not result.has_unprotected_test_set


def test_models_of_frames_predict_from_the_columns_that_they_know():
    result = mu2mpi.run(SETTINGS, data=FRAME, target="stay")
    assert result.feature_names == ("a", "b", "c")
    np.testing.assert_array_equal(result.predict(FRAME[["stay", "c", "a", "b"]]), result.predict(X))
    with pytest.raises(InputError, match="X has no column b"):
        result.predict(FRAME[["a", "c"]])


def test_the_label_of_a_pair_is_y_whatever_columns_the_frame_has():
    frame = FRAME.drop(columns="stay").rename(columns={"c": "labels"})
    assert mu2mpi.run(SETTINGS, data=(frame, Y)).feature_names == ("a", "b", "labels")


def test_columns_accepted_in_training_are_accepted_in_predictions():
    numbered, columns = pd.DataFrame(X), {name: X[:, [k]].tolist() for k, name in enumerate("abc")}
    for data, known in (((numbered, Y), numbered), ({**columns, "y": Y}, columns), ((X, Y), numbered)):
        result = mu2mpi.run(SETTINGS, data=data)
        np.testing.assert_array_equal(result.predict(known), result.predict(X))
    schema = {"columns": {**dict.fromkeys("012", UNIT), "label": {"type": "label", "classes": [0, 1]}}}
    result = mu2mpi.run(SETTINGS, data=(numbered, Y), schema=schema)
    assert (result.predict(numbered) == result.predict(numbered.add_prefix("").astype(object))).all()


def test_a_result_says_that_its_data_were_in_memory_and_cannot_be_repeated_without(tmp_path, capsys):
    path = tmp_path / "a.h5"
    mu2mpi.run(SETTINGS, data=(X, Y), output=path)
    (tmp_path / "again.toml").write_text(mu2mpi.read_result(path).experiment.to_toml())
    assert main(["run", "--config", str(tmp_path / "again.toml"), "--output", str(tmp_path / "b.h5")]) == 2
    told = capsys.readouterr().err
    assert "memory stands for training data of a Python program, which are not stored" in told
    assert "Traceback" not in told


def test_sweeps_take_data_in_memory_and_skip_finished_runs(tmp_path):
    settings = {**SETTINGS, "seed": [1, 2], "data": ["digits", "mnist"]}
    frames = {"data": FRAME, "target": "stay", "progress": False}
    runs = mu2mpi.sweep(settings, output=tmp_path, **frames)
    written = [run.path.stat().st_mtime_ns for run in runs]
    again = mu2mpi.sweep(settings, output=tmp_path, **frames)
    assert [run.path.stat().st_mtime_ns for run in again] == written
    np.testing.assert_array_equal(runs[1].x, mu2mpi.run({**SETTINGS, "seed": 2}, data=FRAME, target="stay").x)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"data": X}, "memory must be a pair (X, y), a data frame, or a mapping of columns"),
        ({"data": (X, Y, Y)}, "memory must be a pair (X, y)"),
        ({"data": (X, Y[:5])}, "memory holds 120 rows of features but 5 labels"),
        ({"data": (X, X)}, "memory: label must have one axis, got the shape (120, 3)"),
        ({"data": (FRAME, Y[:5])}, "memory has columns of different lengths"),
        ({"data": {1: Y, "1": Y, "label": Y}}, "memory: columns 1 and 2 have the same name, of "),
        ({"data": (3 * X, Y)}, "memory has a value in feature 0 that is too large"),
        ({"data": (X, Y), "test": (X[:, 1:], Y)}, "test data in memory has 2 features a sample"),
        ({"data": FRAME.assign(a="x"), "target": "stay"}, "memory: column a has a value that is not"),
        ({"data": {"a": Y, "label": [None, *"x" * 119]}}, "of labels has a value that is missing"),
        ({"data": {"a": Y, "label": pd.Series([np.nan, *"x" * 119])}}, "has a value that says it is"),
        ({"data": FRAME, "target": "staid"}, "memory has no staid, but a, b, c, stay. Give target=NAME."),
        ({"data": (FRAME, Y), "target": "stay"}, "memory: the label of a pair (X, y) is y. Drop target"),
        ({"data": (csr_array(X), Y)}, "memory: features is a sparse matrix. Pass its toarray()."),
        ({"data": (np.ma.masked_less(X, 0), Y)}, "memory: features has masked values. Fill or remove them."),
        ({"data": {"a": np.ma.masked_less(X[:, 0], 0), "y": Y}}, "memory: a has masked values"),
        ({"data": FRAME, "schema": {"columns": {"a": UNIT}}}, "schema: has 0 columns of the type label"),
        ({"target": "stay"}, "target, schema and test belong to data in memory"),
    ],
)  # fmt: skip
def test_refusals(arguments, told):
    with pytest.raises(InputError, match=re.escape(told)) as refused:
        mu2mpi.run(SETTINGS, **arguments)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [X, (X, Y), FRAME])
def test_arrays_as_a_setting_are_refused_in_one_line(data):
    kind = type(data).__name__
    hint = "Pass arrays and data frames as mu2mpi.run(settings, data=...)"
    with pytest.raises(InputError, match=re.escape(f"not of type {kind}. {hint}")) as refused:
        Experiment(data=data)
    assert len(str(refused.value)) < 150
