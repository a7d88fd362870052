"""HDF5 files: checksums, and what is read from them."""

import random

import h5py
import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.core.hdf5 import (
    array_in,
    attributes_of,
    file_image,
    floats_in,
    number_in,
    open_group,
    open_to_read,
    shape_in,
    text_in,
    write_array,
    write_attributes,
)


@pytest.mark.parametrize("stride", [29, *slow(1)])
def test_every_flipped_byte_of_a_small_file_is_an_error_or_changes_nothing(tmp_path, stride):
    """Whether it lies in a number or a text, an attribute or an array, or in the structure of the file."""
    path, names = tmp_path / "a.h5", np.array([b"no", "jå".encode()], h5py.string_dtype("utf-8", 3))

    def fill(file):
        group = file.create_group("group", track_order=True)
        write_attributes(file, {f"number {k}": 1.5 * k for k in range(9)} | {"text": "rho = 4.0\n" * 500})
        write_attributes(group, {f"integer {k}": k for k in range(9)} | {"text": "größer"})
        write_array(group, "plain", np.arange(4.0))
        write_attributes(write_array(file, "packed", names, compression="gzip", shuffle=True), {"units": "1"})

    def content():
        with open_to_read(path) as file:
            found = {name: attributes_of(file[name]) for name in ("/", "group", "packed")}
            return repr((found, file["group/plain"][()].tobytes(), file["packed"].asstr()[()].tolist()))

    good = file_image(fill)
    path.write_bytes(good)
    expected, errors = content(), 0
    for k in range(random.randrange(stride), len(good), stride):
        damaged = bytearray(good)
        damaged[k] ^= 1 << k % 8
        path.write_bytes(damaged)
        try:
            assert content() == expected, k
        except Exception:
            # Where HDF5 meets damage decides which of half a dozen exceptions it raises.
            errors += 1
    assert errors > len(good) / stride / 2


def test_numbers_texts_and_arrays_are_read_as_h5py_reads_them(tmp_path):
    matrix, empty = np.arange(6, dtype=np.int16).reshape(2, 3), np.empty((0, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        group = file.create_group("group")
        write_attributes(group, {"rho": 0.1, "rounds": 7, "is_public": True, "text": "grö\0ßer", "none": ""})
        group.attrs["variable"] = "of any length"
        write_array(group, "matrix", matrix)
        write_array(group, "empty", empty)
        group["vector"] = np.arange(3.0)
    with open_to_read(tmp_path / "a.h5") as file:
        assert attributes_of(file["group"]) == {
            "rho": 0.1, "rounds": 7, "is_public": 1, "text": "größer", "none": "", "variable": "of any length"
        }  # fmt: skip
        assert (file["group/matrix"].fletcher32, file["group/empty"].fletcher32) == (True, False)
        group = open_group(file, "group")
        assert (b"matrix" in group, b"model" in group) == (True, False)
        assert [number_in(group, name) for name in ("rho", "rounds")] == [0.1, 7.0]
        assert [text_in(group, name) for name in ("text", "none", "variable")] == [
            "größer",
            "",
            "of any length",
        ]
        with pytest.raises(TypeError):
            text_in(group, "rho")
        assert shape_in(group, "empty") == (0, 4)
        for name, values in (("matrix", matrix), ("empty", empty)):
            for found, dtype in ((array_in(group, name), values.dtype), (floats_in(group, name), np.float64)):
                assert found.dtype == dtype
                np.testing.assert_array_equal(found, values)


def test_a_file_can_be_opened_twice_with_and_without_locks(tmp_path):
    (tmp_path / "a.h5").write_bytes(file_image(lambda file: file.create_group("group")))
    with open_to_read(tmp_path / "a.h5", locking=False) as one, open_to_read(tmp_path / "a.h5") as other:
        assert list(one) == list(other) == ["group"]
    (tmp_path / "b.h5").write_bytes(b"no HDF5")
    for name in ("b.h5", "absent.h5"):
        with pytest.raises(OSError, match="open"):
            open_to_read(tmp_path / name)
