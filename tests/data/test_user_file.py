"""Data of the user's own: every format gives the same samples, any kind of label, a split, owners, bounds."""

import csv
import gzip
import os
import re

import h5py
import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats import hdf5_format
from mu2mpi.data.source import DataRequest
from mu2mpi.data.source_description import describe_source
from mu2mpi.data.sources.user_file import HoldoutSplit
from mu2mpi.execution.plan import open_source

ROWS, FEATURES = 60, 5
random = np.random.default_rng(4)
# Numbers that a file of text, and 32 bits, hold exactly.
X = random.integers(-64, 65, (ROWS, FEATURES)) / 64
Y = random.integers(0, 3, ROWS)
NAMES = np.array(["no", "perhaps", "yes"], dtype=object)
OWNERS = np.array([f"clinic {k}" for k in random.permutation(np.arange(ROWS) % 4)], dtype=object)


def write_csv(path, names, table, delimiter=","):
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([names] if names else [])
        writer.writerows(zip(*table, strict=True))


def write_h5(path, features, **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=features.astype(np.float32), **options)
        file["labels"] = Y


def written(folder, name, features=X):
    """Write the samples in one of the formats and return its path."""
    path = folder / name
    names = [*(f"f{k}" for k in range(FEATURES)), "label"]
    match name.split("."):
        case ["plain", "h5"]:
            write_h5(path, features)
        case ["packed", "h5"]:
            write_h5(path, features, chunks=(7, 3), compression="gzip")
        case ["swapped", "hdf5"]:
            with h5py.File(path, "w", userblock_size=512) as file:
                file["X"], file["y"] = features.astype(">f8"), Y.astype(">i2")
        case ["images", "h5"]:
            with h5py.File(path, "w") as file:
                file["images"], file["target"] = features.reshape(ROWS, FEATURES, 1), Y[:, np.newaxis]
        case [_, "npz"]:
            np.savez(path, features=np.asfortranarray(features), labels=Y)
        case ["semicolon", "csv"]:
            write_csv(path, names, [*features.T, Y], ";")
        case [_, "csv"] | [_, "csv", "gz"]:
            write_csv(path, names, [*features.T, Y])
        case _:
            from sklearn.datasets import dump_svmlight_file

            dump_svmlight_file(features, Y, str(path), zero_based=False)
    return path


FORMATS = [
    "plain.h5", "packed.h5", "swapped.hdf5", "images.h5", "a.npz", "a.csv", "a.csv.gz", "semicolon.csv",
    "a.svm", "a.libsvm",
]  # fmt: skip


def opened(path, **settings):
    return open_source(Experiment(data=str(path), data_is_public=True, **settings))


def everything(source):
    """Return all samples, training first."""
    parts = (
        source.read_training(np.arange(source.training_samples)),
        source.read_test(np.arange(source.test_samples)),
    )
    return np.vstack([p.features for p in parts]).astype(float), np.concatenate([p.labels for p in parts])


def rows_of_split(fraction=0.2):
    split = HoldoutSplit(ROWS, fraction, 0)
    return np.append(
        split.training_rows(np.arange(split.training_samples)), split.test_rows(np.arange(split.test_samples))
    )


@pytest.mark.parametrize("at_once", [200, hdf5_format.HDF5_BLOCK_BYTES])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_samples(tmp_path, monkeypatch, name, at_once):
    monkeypatch.setattr(hdf5_format, "HDF5_BLOCK_BYTES", at_once)
    source = opened(written(tmp_path, name))
    assert (source.training_samples, source.test_samples) == (48, 12)
    assert (source.dimension, source.classes, source.class_names) == (FEATURES, 3, ("0", "1", "2"))
    features, labels = everything(source)
    rows = rows_of_split()
    np.testing.assert_array_equal(features, X[rows])
    np.testing.assert_array_equal(labels, Y[rows])
    np.testing.assert_array_equal(source.training_labels(), labels[:48])
    order = np.append(random.permutation(48)[:20], [5, 5, 0])
    samples = source.read_training(order)
    np.testing.assert_array_equal(samples.features, X[rows][order])
    assert samples.features.flags.c_contiguous
    assert samples.labels.dtype == np.int32


STORED = {"u1": "u1", "?": "u1", "i1": "f4", "i2": "f4", "f2": "f4", "f4": "f4", "i4": "f8", "f8": "f8"}


@pytest.mark.parametrize("suffix", ["h5", "npz"])
def test_features_keep_their_type_or_get_one_that_holds_them(tmp_path, suffix):
    for stored, read in STORED.items():
        values = random.integers(0, 2, (ROWS, FEATURES)).astype(stored)
        path = tmp_path / f"{stored.strip('?')}a.{suffix}"
        if suffix == "h5":
            with h5py.File(path, "w") as file:
                file["X"], file["y"] = values, Y
        else:
            np.savez(path, X=values, y=Y)
        samples = opened(path).read_training(np.arange(48))
        assert samples.features.dtype == read
        np.testing.assert_array_equal(samples.features, values[rows_of_split()[:48]])


LABELS = {
    "text": (NAMES[Y], ("no", "perhaps", "yes")),
    "bytes": (NAMES[Y].astype("S7"), ("no", "perhaps", "yes")),
    "booleans": (Y > 0, ("0", "1")),
    "negative": (Y * 10 - 10, ("-10", "0", "10")),
    "floats": (Y * 2.0 - 1, ("-1", "1", "3")),
    "large": (Y.astype(np.uint64) + np.uint64(2**62), tuple(str(2**62 + k) for k in range(3))),
    "beyond 31 bits": (Y * 2**31, ("0", "2147483648", "4294967296")),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("suffix", ["h5", "npz"])
def test_labels_of_any_kind_become_classes_in_their_order(tmp_path, kind, suffix):
    labels, names = LABELS[kind]
    path = tmp_path / f"a.{suffix}"
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            file["X"], file["outcome"] = X, labels
    else:
        np.savez(path, X=X, outcome=labels.astype("U") if labels.dtype == object else labels)
    source = opened(path, labels="outcome")
    assert source.class_names == names
    _, found = everything(source)
    np.testing.assert_array_equal(found, np.unique(labels, return_inverse=True)[1][rows_of_split()])


def test_columns_of_csv_by_name_or_number(tmp_path):
    table = [*X.T, NAMES[Y], OWNERS]
    write_csv(tmp_path / "a.csv", ["a", "b", "c", "d", "e", "outcome", "machine"], table)
    source = opened(tmp_path / "a.csv", features="b, d", labels="outcome")
    assert (source.dimension, source.class_names, source.has_owners) == (2, ("no", "perhaps", "yes"), True)
    np.testing.assert_array_equal(everything(source)[0], X[rows_of_split()][:, [1, 3]])
    # By default all columns are features but labels and owners.
    assert opened(tmp_path / "a.csv", labels="outcome").dimension == 5
    write_csv(tmp_path / "b.csv", None, [*X.T, Y])
    source = opened(tmp_path / "b.csv", labels="5")
    np.testing.assert_array_equal(everything(source)[1], Y[rows_of_split()])
    assert opened(tmp_path / "b.csv", labels=5, features=3).dimension == 1


@given(st.integers(2, 2000), st.floats(0.001, 0.999), st.integers(0, 2**63 - 1))
def test_a_split_parts_the_rows(rows, fraction, seed):
    split = HoldoutSplit(rows, fraction, seed)
    training = split.training_rows(np.arange(split.training_samples))
    test = split.test_rows(np.arange(split.test_samples))
    np.testing.assert_array_equal(np.sort(np.append(training, test)), np.arange(rows))
    assert np.all(np.diff(training) > 0)
    assert np.all(np.diff(test) > 0)
    assert split.test_samples == min(rows - 1, max(1, round(fraction * rows)))


def test_every_row_is_as_likely_as_any_other_to_be_for_testing():
    counts = np.zeros(20)
    for seed in range(5000):
        counts[HoldoutSplit(20, 0.25, seed).test_rows(np.arange(5))] += 1
    # Binomial counts of mean 1250 and deviation 30.6: a fair split fails for one set of seeds in 10^5.
    assert np.abs(counts - 1250).max() < 5.2 * 30.6


def test_the_split_follows_from_the_seed_for_ever(tmp_path):
    assert HoldoutSplit(1000, 0.01, 7).test_rows(np.arange(10)).tolist()[:3] == [9, 126, 294]
    path = written(tmp_path, "plain.h5")
    first, same, other = (
        opened(path, data_seed=seed).read_test(np.arange(12)).features for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    assert np.any(first != other)
    # Very many rows need no list of them.
    split = HoldoutSplit(3 * 10**9, 0.1, 1)
    rows = split.training_rows(np.sort(random.integers(0, split.training_samples, 1000)))
    near = np.minimum(rows // 10 + np.arange(-1, 2)[:, np.newaxis], split.test_samples - 1)
    assert not np.isin(rows, split.test_rows(np.maximum(near, 0))).any()


def test_another_file_for_testing(tmp_path):
    training, test = written(tmp_path, "plain.h5"), tmp_path / "test.npz"
    np.savez(test, features=X[:7], labels=Y[:7])
    source = opened(training, test=str(test))
    assert (source.training_samples, source.test_samples) == (ROWS, 7)
    np.testing.assert_array_equal(source.read_test(np.arange(7)[::-1].copy()).features, X[6::-1])
    np.savez(test, features=X[:7, :2], labels=Y[:7])
    with pytest.raises(InputError, match=r"test\.npz has 2 features"):
        opened(training, test=str(test))
    np.savez(test, features=X[:7], labels=np.full(7, 3))
    with pytest.raises(InputError, match=r"test\.npz: row 1 .*'3'"):
        opened(training, test=str(test)).read_test(np.arange(7))


def replaced(path):
    """Put another file of the same size and time in the place of a file."""
    before, content = path.stat(), path.read_bytes()
    path.rename(path.with_name("old"))
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def written_to(path):
    with open(path, "r+b") as file:
        file.write(file.read(1))


@pytest.mark.parametrize("change", [replaced, written_to])
@pytest.mark.parametrize("name", ["plain.h5", "packed.h5"])
def test_nothing_is_taken_from_a_file_that_changes(tmp_path, monkeypatch, name, change):
    path = written(tmp_path, name)
    source = opened(path)
    source.read_training(np.arange(5))
    change(path)
    for read in (source.read_training, source.read_test):
        with pytest.raises(InputError, match=rf"{name} has changed while it was in use"):
            read(np.arange(5))
    source = opened(path)
    how = "_read_contiguous" if name == "plain.h5" else "_read_blocks"
    read_rows = getattr(hdf5_format.DatasetRows, how)

    def changed_meanwhile(rows, *arguments):
        read_rows(rows, *arguments)
        written_to(path)

    monkeypatch.setattr(hdf5_format.DatasetRows, how, changed_meanwhile)
    with pytest.raises(InputError, match=r"has changed while it was in use"):
        source.read_training(np.arange(5))


def test_the_training_file_is_no_test_file_by_any_name(tmp_path):
    path = written(tmp_path, "plain.h5")
    soft, hard = tmp_path / "soft.h5", tmp_path / "hard.h5"
    soft.symlink_to(path)
    hard.hardlink_to(path)
    for test in (path, path.parent / ".." / path.parent.name / path.name, soft, hard, tmp_path / "absent.h5"):
        with pytest.raises(InputError):
            opened(path, test=str(test))


def test_a_test_file_of_libsvm_may_lack_the_last_features(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:0.5 4:1\n-1 2:0.5\n")
    (tmp_path / "b.svm").write_text("1 1:0.25\n")
    source = opened(tmp_path / "a.svm", test=str(tmp_path / "b.svm"))
    np.testing.assert_array_equal(source.read_test(np.arange(1)).features, [[0.25, 0, 0, 0]])
    assert source.class_names == ("-1", "1")


@pytest.mark.parametrize("name", ["plain.h5", "a.csv", "a.svm"])
def test_features_beyond_the_declared_bound_are_refused(tmp_path, name):
    path = written(tmp_path, name, 16 * X)
    for settings in ({}, {"normalize": "box", "feature_bound": 4}):
        with pytest.raises(InputError, match=r"row \d+ "):
            everything(opened(path, **settings))
    source = opened(path, normalize="box", feature_bound=16)
    features, _ = everything(source)
    assert np.abs(features * source.feature_scale).max() <= 1
    assert source.feature_scale == 1 / 16
    # Scaled to norm 1, any finite numbers will do.
    everything(opened(path, normalize="unit"))
    everything(opened(path, preset="practical"))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_what_cannot_be_scaled_to_norm_1_is_refused(tmp_path, value):
    for stored in ("f4", "f8"):
        features = X.astype(stored)
        with np.errstate(over="ignore"):
            features[7, 2] = value
        np.savez(tmp_path / "a.npz", X=features, y=Y)
        with pytest.raises(InputError, match=r"row 8 .* in feature 2"):
            everything(opened(tmp_path / "a.npz", normalize="unit"))


CSV = {
    "a bound": ("age,size,label\n1,1,a\n1,9,a\n1,1,b\n", "1,9,a", "column size"),
    "no number": ("age,size,label\n1,1,a\n1,1,b\n1,x,b\n", "1,x,b", "column size"),
    "a short row": ("age,size,label\n1,1,a\n1,b\n1,1,b\n", "1,b", "2 values"),
    "a label": ("age,size,label\n1,1,a\n1,1,NA\n1,1,b\n", "1,1,NA", "'NA'"),
    "a line break": ('age,size,label\n1,"1\n",a\n1,9,b\n1,1,b\n', "1,9,b", "column size"),
    "no header": ("1,1,0\n1,9,0\n1,1,1\n1,1,1\n", "1,9,0", "feature 1"),
}


@pytest.mark.parametrize("name", CSV)
def test_rows_have_the_numbers_that_a_spreadsheet_shows_and_columns_their_names(tmp_path, name):
    path = tmp_path / "a.csv"
    text, bad, what = CSV[name]
    path.write_text(text)
    with open(path, newline="") as file:
        row = 1 + [",".join(one) for one in csv.reader(file)].index(bad)
    with pytest.raises(InputError) as caught:
        everything(opened(path, labels="2" if name == "no header" else "label"))
    assert re.search(rf"row {row} .*{what}", str(caught.value))


def write_owned(folder, kind):
    path = folder / f"a.{kind}"
    if kind == "csv":
        write_csv(path, ["a", "b", "c", "d", "e", "y", "machine"], [*X.T, Y, OWNERS])
    elif kind == "npz":
        np.savez(path, X=X, y=Y, machine=OWNERS.astype("U"))
    else:
        with h5py.File(path, "w") as file:
            file["X"], file["y"], file["machine"] = X, Y, OWNERS
    return path


@pytest.mark.parametrize("kind", ["csv", "npz", "h5"])
def test_owners_keep_their_samples(tmp_path, kind):
    path = write_owned(tmp_path, kind)
    source = opened(path)
    assert source.has_owners
    owners = source.training_owners()
    features = source.read_training(np.arange(source.training_samples)).features
    for owner, row in zip(owners, features, strict=True):
        assert row.tolist() in X[owner == OWNERS].tolist()
    np.testing.assert_array_equal(source.owner_sizes, np.unique(owners, return_counts=True)[1])
    experiment = Experiment(data=str(path))
    request = DataRequest(experiment.data, experiment.source_options)
    assert "4 owners with" in describe_source(experiment.source, request)
