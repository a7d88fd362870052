"""Features that need no training: each sample's depend on that sample alone."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.sources.digits import Digits
from mu2mpi.execution.plan import open_source

PROJECT = Path(__file__).parents[2]
specification = importlib.util.spec_from_file_location("features", PROJECT / "scripts" / "features.py")
features = importlib.util.module_from_spec(specification)
specification.loader.exec_module(features)

SINGLES = features.SCALES * features.ORIENTATIONS
CHANNELS = 1 + SINGLES + features.ORIENTATIONS**2
FEATURES_PER_PLACE = CHANNELS + features.SCALES + 1


def scattered(n, seed=0):
    """Return what could be the scattering of images: numbers that are no less than zero."""
    return np.random.default_rng(seed).exponential(size=(n, CHANNELS, 7, 7)).astype(np.float32)


def test_features_of_a_sample_depend_on_it_alone():
    """Without the others, or in another order, they have the same bits."""
    samples = scattered(20)
    found = features.contrasts(samples)
    order = np.random.default_rng(1).permutation(20)
    np.testing.assert_array_equal(features.contrasts(samples[order]), found[order])
    np.testing.assert_array_equal(features.contrasts(samples[7:8]), found[7:8])


@pytest.mark.parametrize("lean", [-0.4, 0.0, 0.5])
def test_a_leaning_stroke_is_set_upright_in_the_middle(lean):
    """Wherever it was: its columns have the same center in each row; a black image stays as it is."""
    rows, columns = np.mgrid[:28, :28]
    image = np.exp(-((columns - 12 - lean * (rows - 15)) ** 2) / 4) * (abs(rows - 15) < 8)
    found = features.upright(image.astype(np.float32)).astype(np.float64)
    inked = found[found.sum(axis=1) > 1]
    assert len(inked) >= 14
    np.testing.assert_allclose((inked @ np.arange(28) / inked.sum(axis=1))[1:-1], 13.5, atol=0.05)
    np.testing.assert_allclose(found.sum(axis=1) @ np.arange(28) / found.sum(), 13.5, atol=0.1)
    assert not features.upright(np.zeros((28, 28))).any()


def test_the_package_reads_what_the_script_writes(tmp_path, monkeypatch):
    """In two parts of unequal size, with samples repeated: those of a sample are the same every time."""
    pytest.importorskip("kymatio")
    monkeypatch.setattr(features, "AT_ONCE", 20)
    digits, rows, path = Digits(), np.resize(np.arange(15), 47), tmp_path / "digits.h5"
    features.write(path, digits, "training", rows)
    features.write(tmp_path / "test.h5", digits, "test", np.arange(30))
    source = open_source(Experiment(data=str(path), test=str(tmp_path / "test.h5"), normalize="unit"))
    assert (source.training_samples, source.test_samples, source.classes) == (len(rows), 30, 10)
    found, originals = source.read_training(np.arange(len(rows))), digits.read_training(rows)
    np.testing.assert_array_equal(found.labels, originals.labels)
    np.testing.assert_array_equal(found.features, found.features[rows])
    images = originals.features[:3].reshape(3, 1, 8, 8) / np.float32(16)
    np.testing.assert_array_equal(found.features[:3], features.features(features.enlarged(images)))


def test_colours_are_images_side_by_side():
    """A grey image in three colours has the same features three times, and not set upright."""
    pytest.importorskip("kymatio")
    grey = np.random.default_rng(4).random((2, 1, 32, 32), np.float32)
    found = features.features(np.repeat(grey, 3, axis=1))
    assert found.shape == (2, 3 * FEATURES_PER_PLACE * 8 * 8)
    np.testing.assert_array_equal(found, np.tile(found[:, : FEATURES_PER_PLACE * 64], 3))
