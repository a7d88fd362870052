"""The digest of data: it sees whatever decides what is sent, and nothing else."""

import h5py
import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.source import column_digest
from mu2mpi.execution.plan import open_source

random = np.random.default_rng(2)
X = random.integers(-64, 65, (50, 4)).astype(np.int16)
Y = random.integers(0, 2, 50)
OWNERS = np.array(["north", "south"], dtype=object)[random.integers(0, 2, 50)]
BOX = {"normalize": "box", "feature_bound": 64.0}


def digest(folder, features=X, labels=Y, owners=OWNERS, name="a.h5", **settings):
    path = folder / name
    with h5py.File(path, "w") as file:
        file["features"], file["labels"] = features, labels
        if owners is not None:
            file["machine"] = owners
    return open_source(Experiment(data=str(path), **{**BOX, **settings})).digest


def test_where_parts_end_does_not_matter():
    whole = column_digest("facts", [(X, Y, OWNERS)])
    for cuts in ([7], [1, 2, 40]):
        parts = list(zip(*(np.split(column, cuts) for column in (X, Y, OWNERS)), strict=True))
        assert column_digest("facts", parts) == whole
    assert len(whole) == 32


@pytest.mark.parametrize(
    ("facts", "columns"),
    [
        ("other facts", (X, Y, OWNERS)),
        ("facts", (X.view(np.uint16), Y, OWNERS)),
        ("facts", (X[::-1], Y, OWNERS)),
        ("facts", (X, Y)),
        ("facts", (Y, X, OWNERS)),
        ("facts", ()),
        ("facts", (X, Y, np.array(["a", *OWNERS[1:]], dtype=object))),
    ],
)
def test_every_bit_type_and_order_matters(facts, columns):
    assert column_digest(facts, [columns]) != column_digest("facts", [(X, Y, OWNERS)])


def test_where_one_text_ends_matters():
    texts = [["ab", "c"], ["a", "bc"], ["abc", ""], ["ab1:c", ""]]
    assert len({column_digest("", [(np.array(of, dtype=object),)]) for of in texts}) == len(texts)


def test_how_the_file_is_written_does_not_matter(tmp_path, monkeypatch):
    expected = digest(tmp_path)
    assert digest(tmp_path, name="b.h5") == expected
    assert digest(tmp_path, X.astype(np.float32), Y.astype(np.uint8)) == expected
    monkeypatch.setattr("mu2mpi.data.source.SAMPLE_CHUNK_BYTES", 100)
    assert digest(tmp_path) == expected


def test_what_each_file_and_setting_says_matters(tmp_path):
    other = [
        digest(tmp_path),
        digest(tmp_path, X.astype(np.float64)),
        digest(tmp_path, labels=Y + 1),
        digest(tmp_path, owners=None),
        digest(tmp_path, data_seed=1),
        digest(tmp_path, test=0.3),
        digest(tmp_path, feature_bound=128.0),
        digest(tmp_path, normalize="unit", feature_bound=None),
    ]
    assert len(set(other)) == len(other)


def test_all_training_samples_are_checked_on_the_way(tmp_path):
    bad = X.copy()
    bad[33:36] = 65
    with pytest.raises(InputError, match=r"row 3[4567] .* has the value 65"):
        digest(tmp_path, bad, data_is_public=True)


@pytest.mark.parametrize("data", ["synthetic", "population"])
def test_what_settings_determine_is_not_read(data):
    """A trillion samples, which would take days."""
    assert len(open_source(Experiment(data=data, samples=2**32 - 1)).digest) == 32
