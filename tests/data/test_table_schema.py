"""Schemas: every format gives the same features, and those that an independent version gives."""

import math

import h5py
import numpy as np
import pandas as pd
import pytest
from helpers.property_tests import given
from helpers.schema_tables import FEATURES, FORMATS, SCHEMA, expected, opened, table, written
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core import memory
from mu2mpi.core.errors import InputError
from mu2mpi.data.column_values import ColumnValues
from mu2mpi.data.sources import user_file
from mu2mpi.data.sources.user_file import HoldoutSplit
from mu2mpi.data.table_schema import InvalidValues, parse_schema
from mu2mpi.execution.plan import open_source

ROWS = 60


def everything(source):
    """Return the features and labels of training and test samples together."""
    parts = (
        source.read_training(np.arange(source.training_samples)),
        source.read_test(np.arange(source.test_samples)),
    )
    return np.vstack([p.features for p in parts]), np.concatenate([p.labels for p in parts])


def order(rows=ROWS, share=0.2):
    """Return the rows of training samples, then those of test samples."""
    split = HoldoutSplit(rows, share, 0)
    return np.append(
        split.training_rows(np.arange(split.training_samples)), split.test_rows(np.arange(split.test_samples))
    )


@pytest.mark.parametrize("at_once", [1, 10**6])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_what_is_declared(tmp_path, schema, name, at_once, monkeypatch):
    monkeypatch.setattr(user_file, "FEATURE_READ_BYTES", at_once)
    frame = table(ROWS)
    source = opened(written(tmp_path, name, frame), schema)
    features, labels = expected(frame)
    found = everything(source)
    assert found[0].dtype == np.float32
    np.testing.assert_array_equal(found[1], labels[order()])
    np.testing.assert_allclose(found[0], features[order()], rtol=0, atol=1e-7)
    assert np.abs(found[0]).max() == 1
    assert (source.dimension, source.feature_names, source.max_squared_norm) == (6, FEATURES, 4)
    assert (source.classes, source.class_names, source.label_range) == (2, ("no", "yes"), None)
    np.testing.assert_array_equal(source.training_labels(), labels[order()][:48])
    np.testing.assert_array_equal(source.training_owners(), frame.clinic.to_numpy()[order()][:48])
    shuffled = np.array([5, 3, 47, 5])
    np.testing.assert_array_equal(source.read_training(shuffled).features, found[0][shuffled])


def test_the_digest_is_of_what_was_made_of_the_file_and_of_the_schema(tmp_path, schema):
    digests = []
    for name in FORMATS:
        path = written(tmp_path, name, table(ROWS))
        digests.append(opened(path, schema).digest)
    assert len(set(digests)) == 1
    schema.write_text(SCHEMA.replace('"no", "yes"', '"yes", "no"'))
    assert opened(path, schema).digest != digests[0]
    schema.write_text(SCHEMA + "\n# a comment\n")
    assert opened(path, schema).digest == digests[0]
    frame = table(ROWS)
    path = written(tmp_path, "a.csv", frame[frame.sex != "x"])
    first = opened(path, schema).digest
    # The features are the same, as no value is x or y, but not what they mean.
    schema.write_text(SCHEMA.replace('"x"', '"y"'))
    assert opened(path, schema).digest != first


@pytest.mark.parametrize("name", ["a.h5", "a.npz", "a.svm"])
def test_features_without_names_have_no_schema(tmp_path, schema, name):
    if name == "a.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file["X"], file["y"] = np.zeros((9, 2)), np.zeros(9)
    elif name == "a.npz":
        np.savez(tmp_path / name, X=np.zeros((9, 2)), y=np.zeros(9))
    else:
        (tmp_path / name).write_text("1 1:0.5\n0 1:1\n")
    with pytest.raises(InputError, match="features without names"):
        opened(tmp_path / name, schema)


# Against plain Python, one value at a time -----------------------------------------------------------------

numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf])
words = st.sampled_from(
    ["a", "b", "01", "1", "1.0", "2", "", "NA", "?", "None", "elsewhere", "true", "F", "No"]
)


def one(declared, texts_or_numbers, kind=object):
    """Encode a column by itself; return its features, and how many values are missing and outside."""
    text = f'[columns.a]\n{declared}\n[columns.b]\ntype = "label"\nclasses = [0, 1]\n'
    schema = parse_schema(text)
    values = np.array([*texts_or_numbers, None], dtype=object)[:-1].astype(kind)
    into, invalid = np.empty((len(values), len(schema.feature_names)), np.float32), InvalidValues()
    schema.columns["a"].encode(ColumnValues("file", "a", np.arange(len(values)), values), into, invalid)
    return into, *invalid["a"]


def says_missing(value):
    return value in ("", "NA", "?", "None")


@given(st.lists(numbers, min_size=1, max_size=20), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.booleans())
def test_numeric(values, low, width, text_table):
    high = low + width
    given_values = [repr(value) for value in values] if text_table else values
    got, missing, outside = one(
        f'type = "numeric"\nlow = {low!r}\nhigh = {high!r}', given_values, object if text_table else float
    )
    assert missing == sum(map(math.isnan, values))
    assert outside == sum(value < low or value > high for value in values)
    for value, x in zip(values, got[:, 0], strict=True):
        clamped = 0 if math.isnan(value) else 2 * (min(max(value, low), high) - low) / (high - low) - 1
        assert abs(x - clamped) < 1e-6 + 1e-9 * (abs(low) + high) / width
        assert -1 <= x <= 1


@given(st.lists(words, min_size=1, max_size=20))
def test_words(values):
    for categories, codes in (
        ('["a", "b", "1"]', {"a": 0, "b": 1, "1": 2}),
        ("[1, 2, 3]", {"1": 0, "01": 0, "1.0": 0, "2": 1}),
        ('["NA", "a", "None"]', {"NA": 0, "a": 1, "None": 2}),
    ):
        wanted = [codes.get(value) for value in values]
        got, missing, outside = one(f'type = "categorical"\ncategories = {categories}', values)
        np.testing.assert_array_equal(got, [[float(k == code) for k in range(3)] for code in wanted])
        undeclared = [value for value in values if value not in codes]
        assert missing == sum(map(says_missing, undeclared))
        assert missing + outside == len(undeclared)
        got, _, _ = one(f'type = "ordinal"\ncategories = {categories}', values)
        np.testing.assert_array_equal(got[:, 0], [0 if code is None else code - 1 for code in wanted])
    usual = {"1": 1, "01": 1, "1.0": 1, "true": 1, "F": -1, "No": -1}
    got, missing, _ = one('type = "boolean"', values)
    np.testing.assert_array_equal(got[:, 0], [usual.get(value, 0) for value in values])
    assert missing == sum(map(says_missing, values))
    got, *_ = one('type = "boolean"\ntrue = "a"\nfalse = "b"', values)
    np.testing.assert_array_equal(got[:, 0], [{"a": 1, "b": -1}.get(value, 0) for value in values])


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_whole_numbers_of_any_type(kind):
    got, *_ = one('type = "boolean"', [1, 0], kind)
    assert got[:, 0].tolist() == [1, -1]
    got, *_ = one('type = "categorical"\ncategories = [0, 1]', [1, 0], kind)
    assert got.tolist() == [[0, 1], [1, 0]]


def test_whole_numbers_that_are_one_to_a_float():
    """Else names of the one class would be those of the other."""
    one_more = 2**53 + 1
    got, *_ = one(f'type = "categorical"\ncategories = [{2**53}, {one_more}]', [one_more, 2**53], np.int64)
    assert got.tolist() == [[0, 1], [1, 0]]


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.floats(-100, 100), st.floats(1, 100))
def test_numbers_as_labels(values, low, width):
    label = parse_schema(
        f'[columns.a]\ntype = "boolean"\n[columns.b]\ntype = "label"\nlow = {low!r}\nhigh = {low + width!r}\n'
    ).label[1]
    got = label.encode_labels(
        ColumnValues("file", "b", np.arange(len(values)), np.array(values)), InvalidValues()
    )
    assert got.dtype == np.float64
    want = np.clip((np.array(values) - (low + width / 2)) / (width / 2), -1, 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)


# Labels, owners, tests -------------------------------------------------------------------------------------


def numbers_as_labels(tmp_path, frame):
    (tmp_path / "n.toml").write_text(SCHEMA.replace('classes = ["no", "yes"]', "low = 0\nhigh = 20"))
    return written(tmp_path, "a.csv", frame), tmp_path / "n.toml"


def test_a_table_with_numbers_as_labels(tmp_path):
    frame = table(ROWS)
    frame["outcome"] = np.linspace(-3, 23, ROWS)
    path, schema = numbers_as_labels(tmp_path, frame)
    source = opened(path, schema, "squared")
    want = np.clip((frame.outcome.to_numpy() - 10) / 10, -1, 1)[order()]
    labels = everything(source)[1]
    assert labels.dtype == np.float64
    np.testing.assert_allclose(labels, want, atol=1e-12)
    assert (source.classes, source.class_names, source.label_range) == (10, None, (0, 20))
    tenths = np.minimum((want[:48] + 1) * 5, 9).astype(int)
    np.testing.assert_array_equal(source.training_labels(), tenths)
    assert source.training_labels().dtype == np.int32
    frame = frame.assign(**table(ROWS, flawed=False)[["age", "sex", "stage", "smoker"]])
    frame.loc[7, "outcome"] = np.nan
    with pytest.raises(InputError, match="outcome"):
        everything(opened(*numbers_as_labels(tmp_path, frame), "squared"))


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "a.svm"])
def test_a_range_of_labels_without_a_schema(tmp_path, name):
    random = np.random.default_rng(3)
    X, y = random.integers(-4, 5, (ROWS, 2)) / 4, np.linspace(-7, 7, ROWS).round(3)
    path = tmp_path / name
    if name == "a.csv":
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "label": y}).to_csv(path, index=False)
    elif name == "a.npz":
        np.savez(path, X=X, y=y)
    else:
        path.write_text("\n".join(f"{k} 1:{a} 2:{b}" for k, (a, b) in zip(y, X, strict=True)))
    source = open_source(Experiment(data=str(path), loss="squared", label_range="-5:5"))
    features, labels = everything(source)
    np.testing.assert_array_equal(features, X[order()])
    np.testing.assert_allclose(labels, np.clip(y / 5, -1, 1)[order()], atol=1e-12)
    assert (source.classes, source.label_range, source.max_squared_norm) == (10, (-5, 5), None)
    assert source.class_sizes.sum() == 48
    assert sum(map(sum, source.invalid_values.values())) >= np.sum(abs(y) > 5)
    source = open_source(Experiment(data=str(path), loss="squared", label_range="-7:7"))
    everything(source)
    assert not any(map(np.any, source.invalid_values.values()))


def test_a_test_share_or_file_of_the_schema_is_overridden_by_an_option(tmp_path):
    (tmp_path / "a").mkdir()
    path = written(tmp_path, "a.csv", table(ROWS))
    written(tmp_path / "a", "b.parquet", table(9, seed=1))
    share, file = tmp_path / "a" / "share.toml", tmp_path / "a" / "file.toml"
    share.write_text("test = 0.5\n" + SCHEMA)
    file.write_text('test = "b.parquet"\n' + SCHEMA)
    assert opened(path, share).test_samples == 30
    source = opened(path, file)
    assert (source.training_samples, source.test_samples) == (60, 9)
    np.testing.assert_allclose(
        source.read_test(np.arange(9)).features, expected(table(9, seed=1))[0], atol=1e-7
    )
    assert [opened(path, schema, test=0.1).test_samples for schema in (share, file)] == [6, 6]


# Parquet ---------------------------------------------------------------------------------------------------


def test_types_of_parquet(tmp_path, schema):
    frame = table(ROWS)
    path = written(tmp_path, "a.parquet", frame)
    want = everything(opened(path, schema))[0]
    frame["sex"], frame["outcome"] = (
        frame.sex.replace("", None).astype("category"),
        frame.outcome.astype("category"),
    )
    frame["stage"] = frame.stage.astype("Int16")
    frame["smoker"] = frame.smoker.map({"yes": True, "no": False}).astype("boolean")
    frame["note"] = pd.Timestamp("2020-01-01")
    np.testing.assert_array_equal(everything(opened(written(tmp_path, "a.parquet", frame), schema))[0], want)
    frame["age"] = pd.Timestamp("2020-01-01")
    with pytest.raises(InputError, match=r"age must .* the type datetime64.*\. Declare it as ignored"):
        opened(written(tmp_path, "a.parquet", frame), schema)


def test_parquet_reads_the_columns_that_a_schema_declares_once(tmp_path, schema, monkeypatch):
    from pyarrow.parquet import ParquetFile

    columns_read, read = [], ParquetFile.read

    def noted(self, columns, use_threads):
        columns_read.append(columns)
        return read(self, columns=columns, use_threads=use_threads)

    monkeypatch.setattr(ParquetFile, "read", noted)
    source = opened(written(tmp_path, "a.parquet", table(ROWS)), schema)
    everything(source)
    assert columns_read == [[name for name in table(ROWS) if name != "note"]]


def test_a_parquet_file_larger_than_memory_is_refused(tmp_path, schema, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 60 * (8 + 64 * 5) - 1)
    with pytest.raises(InputError, match=r"does not fit into memory.* Use HDF5"):
        opened(written(tmp_path, "a.parquet", table(ROWS)), schema)


def test_without_a_schema_parquet_asks_for_one(tmp_path):
    with pytest.raises(InputError, match="mu2mpi init"):
        open_source(Experiment(data=str(written(tmp_path, "a.parquet", table(ROWS)))))


# What is said ----------------------------------------------------------------------------------------------


def test_missing_and_clamped_values_are_counted_by_column(tmp_path, schema):
    values = {
        "age": (np.nan, 17.99, 90.51, np.inf),
        "sex": ("", "d"),
        "stage": (5,),
        "smoker": ("?", "never"),
    }
    for column, value in ((column, value) for column, some in values.items() for value in some):
        frame = table(ROWS, flawed=False)
        frame.loc[33, column] = value
        source = opened(written(tmp_path, "a.csv", frame), schema)
        everything(source)
        is_missing = value in ("", "?") or value != value
        counts = {name: tuple(found) for name, found in source.invalid_values.items() if found.any()}
        assert counts == {column: (is_missing, not is_missing)}


# Options ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"features": "a"},
        {"labels": "a", "missing_labels": "keep"},
        {"feature_bound": 2.0, "normalize": "box"},
        {"normalize": "box"},
        {"label_range": "0:1"},
        {"data": "mnist"},
        *({"schema": None, "label_range": text} for text in ("1", "2:1", "nan:1", "0:1:2", "0:1e200")),
    ],
)
def test_settings_that_do_not_go_together(settings):
    with pytest.raises(InputError, match="|".join(settings)):
        Experiment(**{"data": "a.csv", "schema": "a.toml", **settings})
