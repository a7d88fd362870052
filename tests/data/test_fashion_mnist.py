"""Fashion-MNIST: its own files and mirrors, the real images where they are at hand, and a run."""

import os
from pathlib import Path

import numpy as np
import pytest
from helpers.small_mnist import SHAPES, put

import mu2mpi
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import cache_folder
from mu2mpi.data.sources.fashion_mnist import FashionMnist
from mu2mpi.data.sources.mnist import Mnist

FOLDERS = [Path(os.environ.get("MU2MPI_DATA_DIR") or "."), Path("/usr/share/datasets")]
"""Debian's package dataset-fashion-mnist installs the second."""


@pytest.fixture
def fashion_dir() -> Path:
    """Folder of ``fashion-mnist/`` with the real files."""
    for folder in FOLDERS:
        if (folder / "fashion-mnist").is_dir():
            return folder
    pytest.skip("Fashion-MNIST is not at hand (Debian: dataset-fashion-mnist)")


def test_own_checksums_folder_and_mirrors(small, tmp_path, monkeypatch):
    monkeypatch.setattr(FashionMnist, "mirrors", ("http://127.0.0.1:9/fashion/",))
    with pytest.raises(InputError) as caught:
        FashionMnist.fetch()
    expected = (
        str(cache_folder() / "fashion-mnist"),
        "`mu2mpi data fashion-mnist`",
        "127.0.0.1:9/fashion",
        *SHAPES,
    )
    assert all(text in str(caught.value) for text in expected)
    # MNIST's own files do not pass as those of Fashion-MNIST.
    folder = put(tmp_path, small, packed=True)
    (folder / "mnist").rename(folder / "fashion-mnist")
    with pytest.raises(InputError, match="another file than expected"):
        FashionMnist(folder)
    monkeypatch.setattr(FashionMnist, "array_files", Mnist.array_files)
    assert FashionMnist(folder).training_samples == 60


def test_real_rows(fashion_dir):
    source = FashionMnist(fashion_dir)
    training, test = source.read_training(np.arange(60_000)), source.read_test(np.arange(10_000))
    # Facts from the data set's page: all classes have the same size, and these mean and deviation.
    assert np.bincount(training.labels).tolist() == [6000] * 10
    assert np.bincount(test.labels).tolist() == [1000] * 10
    assert training.features.mean() / 255 == pytest.approx(0.2860, abs=5e-5)
    assert training.features.std() / 255 == pytest.approx(0.3530, abs=5e-5)
    assert test.labels[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]


@pytest.mark.slow
def test_a_run_learns(fashion_dir):
    settings = {"data": "fashion-mnist", "preset": "practical", "method": "mu2-sgd", "server": "trusted"}
    result = mu2mpi.run({**settings, "machines": 10, "epsilon": 4, "seed": 1}, data_dir=fashion_dir)
    assert 0.77 < result.metrics["accuracy"] < 0.87
