"""The digits that come with scikit-learn."""

import hashlib
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.data.sources import digits
from mu2mpi.data.sources.digits import Digits, stratified_split


def everything(source: Digits) -> tuple[np.ndarray, np.ndarray]:
    training = source.read_training(np.arange(source.training_samples))
    test = source.read_test(np.arange(source.test_samples))
    return np.vstack([training.features, test.features]), np.append(training.labels, test.labels)


def test_the_content_is_that_of_scikit_learn():
    from sklearn.datasets import load_digits

    expected, classes = load_digits(return_X_y=True)
    source = Digits()
    assert (source.training_samples, source.test_samples, source.dimension) == (1437, 360, 64)
    features, labels = everything(source)
    assert features.dtype == np.uint8
    assert labels.dtype == np.int32
    assert features.max() * source.feature_scale == 1
    # The same images with the same labels, in another order, and each exactly once.
    ours = np.column_stack([features, labels])
    theirs = np.column_stack([expected, classes]).astype(int)
    np.testing.assert_array_equal(ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)])


def test_the_split_is_the_same_for_ever():
    labels = everything(Digits())[1]
    assert hashlib.sha256(labels.astype(np.uint8)).hexdigest()[:16] == "cbc14dd53671a573"


def test_the_split_is_random_within_a_class():
    training, test = stratified_split(np.zeros(1000, np.int32), 200)
    assert (len(training), len(test)) == (800, 200)
    np.testing.assert_array_equal(np.sort(np.append(training, test)), np.arange(1000))
    # A fair choice of 200 out of 1000 has about 40 with the next one chosen too, give or take 5.
    assert 15 < np.sum(np.diff(test) == 1) < 65


def test_scikit_learn_is_not_imported():
    code = "import sys, mu2mpi.data.sources.digits as d\nd.Digits(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError):
        Digits()


@pytest.mark.parametrize("change", ["shape", "bound", "sign"])
def test_other_images_are_refused(monkeypatch, change):
    table = digits._read_digits()
    if change == "shape":
        table = table[1:]
    else:
        table[5, 5] = 17 if change == "bound" else -1
    monkeypatch.setattr(digits, "_read_digits", lambda: table)
    with pytest.raises(InputError):
        Digits()
