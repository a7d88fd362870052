"""What every source checks, and opening one by an experiment."""

import subprocess
import sys

import numpy as np
import pytest
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.data.source import DataSource, Samples


class Fixed(DataSource):
    """Given arrays."""

    name = "fixed"
    classes = 3

    def __init__(self, features, labels, scale=1.0):
        self.features, self.labels, self.feature_scale = features, labels, scale
        self.training_samples = self.test_samples = len(labels)
        self.dimension = features.shape[1]

    def read(self, which, rows):
        return Samples(self.features[rows], self.labels[rows])


def fixed(dtype=np.float64, samples=10_000, scale=1.0) -> Fixed:
    random = np.random.default_rng(0)
    features = (random.uniform(-1, 1, (samples, 4)) / scale).astype(dtype)
    return Fixed(features, random.integers(0, 3, samples).astype(np.int32), scale)


@pytest.fixture(params=["training", "test"])
def which(request) -> str:
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_good_data_pass_unchanged(which, dtype, scale):
    source = fixed(dtype, scale=scale)
    source.features[0] = [1 / scale, -1 / scale, 0, 1 / scale]
    samples = getattr(source, f"read_{which}")(np.arange(10_000))
    np.testing.assert_array_equal(samples.features, source.features)
    assert samples.features.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("value", "row"), [(np.nan, 0), (np.inf, 4095), (-1.001, 4096), (1.001, 9999)])
def test_a_bad_feature_is_named(which, dtype, value, row):
    source = fixed(dtype)
    source.features[row, 2] = value
    order = np.arange(10_000)[::-1].copy()
    with pytest.raises(InputError, match=rf"{which} sample {row} .* feature 2"):
        getattr(source, f"read_{which}")(order)
    getattr(source, f"read_{which}")(order[order != row])


@pytest.mark.parametrize("label", [-1, 3, 2**31 - 1])
def test_a_bad_label_is_named(which, label):
    source = fixed()
    source.labels[123] = label
    with pytest.raises(InputError, match=f"{which} sample 123 has the label {label}"):
        getattr(source, f"read_{which}")(np.arange(10_000)[::-1].copy())


@pytest.mark.parametrize("rows", [[-1], [0, 10_000]])
def test_rows_that_do_not_exist(which, rows):
    with pytest.raises(IndexError, match="not among the 10000"):
        getattr(fixed(), f"read_{which}")(np.array(rows))


def test_only_the_source_in_use_is_imported():
    code = (
        "import sys; from mu2mpi import Experiment; from mu2mpi.execution.plan import open_source\n"
        "open_source(Experiment(data='digits'))\n"
        "sys.exit(any(m in sys.modules for m in ('requests', 'h5py', 'pyarrow', 'sklearn')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.floats(-46, -36) | st.floats(-46, 38), max_examples=300)
def test_no_feature_passes_its_bound_by_more_than_a_millionth(dtype, exponent):
    """Bounds near the smallest numbers of the stored type, too, where rounding one moves it far."""
    bound = 10.0**exponent
    near = dtype(bound)
    for value in (near, np.nextafter(near, dtype(0)), np.nextafter(near, dtype(np.inf))):
        source = Fixed(np.full((1, 1), value, dtype), np.zeros(1, np.int32), 1 / bound)
        if float(value) * source.feature_scale <= 1 + 1e-7:
            source.read_training(np.zeros(1, np.int64))
        elif float(value) * source.feature_scale > 1 + 1.01e-6:
            with pytest.raises(InputError, match="feature 0"):
                source.read_training(np.zeros(1, np.int64))
