"""CIFAR-10: rows over several files, checksums, and where the files are looked for."""

import gzip
import hashlib
from itertools import starmap

import numpy as np
import pytest

import mu2mpi
from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.data.sources._image_files import ArrayFile
from mu2mpi.data.sources.cifar10 import Cifar10

NAMES = [file.name for file in Cifar10.array_files]


@pytest.fixture
def batches(monkeypatch, tmp_path) -> list[np.ndarray]:
    """Small files in the folder of data; the arrays of labels and pixels in them, batch by batch."""
    random, folder = np.random.default_rng(3), tmp_path / "data" / Cifar10.folder_name
    folder.mkdir(parents=True)
    arrays = [random.integers(0, 256, (rows, 13), np.uint8) for rows in (7, 7, 7, 7, 7, 5)]
    for name, array in zip(NAMES, arrays, strict=True):
        array[:, 0] %= 10
        (folder / name).write_bytes(array.tobytes())
    files = [
        (name, array.shape, hashlib.md5(array).hexdigest(), "MD5")
        for name, array in zip(NAMES, arrays, strict=True)
    ]
    monkeypatch.setattr(Cifar10, "array_files", tuple(starmap(ArrayFile, files)))
    monkeypatch.setenv("MU2MPI_DATA_DIR", str(tmp_path / "data"))
    return arrays


def test_expected_files():
    assert [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"] == NAMES
    assert {file.nbytes for file in Cifar10.array_files} == {30_730_000}
    assert all(len(file.checksum) == 32 for file in Cifar10.array_files)


def test_rows_in_the_order_asked_for(batches):
    source, training = Cifar10(), np.concatenate(batches[:5])
    assert (source.training_samples, source.test_samples, source.dimension) == (35, 5, 12)
    rows = np.array([34, 0, 6, 7, 7, 20])
    samples = source.read_training(rows)
    np.testing.assert_array_equal(samples.features, training[rows, 1:])
    np.testing.assert_array_equal(samples.labels, training[rows, 0])
    assert samples.features.flags.c_contiguous
    assert samples.labels.dtype == np.int32
    np.testing.assert_array_equal(source.read_test(np.arange(5)).features, batches[5][:, 1:])
    assert len(source.read_training(np.empty(0, np.int64)).labels) == 0


def test_damaged_missing_and_compressed_files(batches, tmp_path):
    folder = tmp_path / "data" / Cifar10.folder_name
    path = folder / NAMES[2]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="MD5"):
        Cifar10()
    path.unlink()
    with pytest.raises(InputError) as caught:
        Cifar10.fetch()
    assert "cifar-10-binary.tar.gz" in str(caught.value)
    assert "downloads" not in str(caught.value)
    (folder / f"{NAMES[2]}.gz").write_bytes(gzip.compress(content))
    assert Cifar10().training_samples == 35


def test_described_and_run(batches, capsys):
    assert main(["data", "cifar10"]) == 0
    assert "35 training and 5 test samples, 12 features" in capsys.readouterr().out
    result = mu2mpi.run({"data": "cifar10", "machines": 5, "rho": 4, "seed": 1, "server": "trusted"})
    assert result.x.shape == (10, 13)
