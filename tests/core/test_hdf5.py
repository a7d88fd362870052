"""HDF5 files: checksums, attributes and arrays."""

import random

import h5py
import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.core.hdf5 import (
    hdf5_file_bytes,
    open_for_reading,
    open_group,
    read_array,
    read_attributes,
    read_number,
    read_text,
    write_array,
    write_attributes,
)


@pytest.mark.parametrize("stride", [29, *slow(1)])
def test_every_flipped_byte_of_a_small_file_is_an_error_or_changes_nothing(tmp_path, stride):
    """In numbers and texts, attributes and arrays, and the metadata of the file."""
    path, names = tmp_path / "a.h5", np.array([b"no", "jå".encode()], h5py.string_dtype("utf-8", 3))

    def fill(file):
        group = file.create_group("group", track_order=True)
        write_attributes(file, {f"number {k}": 1.5 * k for k in range(9)} | {"text": "rho = 4.0\n" * 500})
        write_attributes(group, {f"integer {k}": k for k in range(9)} | {"text": "größer"})
        write_array(group, "small", np.arange(4.0))
        write_array(group, "plain", np.arange(129.0))
        write_attributes(write_array(file, "packed", names, compression="gzip", shuffle=True), {"units": "1"})

    def content():
        with open_for_reading(path) as file:
            found = {name: read_attributes(file[name]) for name in ("/", "group", "packed")}
            arrays = [array[()].tobytes() for array in file["group"].values()]
            return repr((found, arrays, file["packed"].asstr()[()].tolist()))

    good = hdf5_file_bytes(fill)
    path.write_bytes(good)
    expected, errors = content(), 0
    for k in range(random.randrange(stride), len(good), stride):
        damaged = bytearray(good)
        damaged[k] ^= 1 << k % 8
        path.write_bytes(damaged)
        try:
            assert content() == expected, k
        except Exception:
            # HDF5 raises one of several exceptions, depending on where the damage is.
            errors += 1
    assert errors > len(good) / stride / 2


def test_attributes_and_arrays_are_read_as_written(tmp_path):
    matrix = np.arange(600, dtype=np.int16).reshape(2, 300)
    arrays = {"matrix": matrix, "small": matrix[:, :256], "empty": np.empty((0, 4))}
    attributes = {"rho": 0.1, "rounds": 7, "is_public": True, "text": "größer", "none": ""}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write_attributes(group := file.create_group("group"), {**attributes, "zero": "a\0b"})
        for name, values in arrays.items():
            write_array(group, name, values)
    with open_for_reading(tmp_path / "a.h5", locking=False) as file, open_for_reading(tmp_path / "a.h5"):
        assert read_attributes(file["group"]) == {**attributes, "zero": "ab"}
        assert [file["group"][name].fletcher32 for name in arrays] == [True, False, False]
        # Compact: in the object header, with its checksum.
        assert [file["group"][name].id.get_create_plist().get_layout() for name in arrays] == [2, 0, 1]
        group = open_group(file, "group")
        assert (
            read_number(group, "rounds"),
            read_text(group, "text"),
            read_text(group, "none"),
        ) == (
            7.0,
            "größer",
            "",
        )
        with pytest.raises(TypeError):
            read_text(group, "rho")
        for name, values in arrays.items():
            for dtype in (None, np.float64):
                found = read_array(group, name, dtype)
                assert found.dtype == (dtype or values.dtype)
                np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("padding", [h5py.h5t.STR_NULLTERM, h5py.h5t.STR_NULLPAD, h5py.h5t.STR_SPACEPAD])
def test_text_of_variable_length_is_read_with_any_padding(tmp_path, padding):
    """Other programs write such texts, whose padding has no meaning."""
    stored_type = h5py.h5t.C_S1.copy()
    stored_type.set_size(h5py.h5t.VARIABLE)
    stored_type.set_strpad(padding)
    stored_type.set_cset(h5py.h5t.CSET_UTF8)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        attribute = h5py.h5a.create(file.id, b"text", stored_type, h5py.h5s.create(h5py.h5s.SCALAR))
        attribute.write(np.array("jå, longer than a pointer", h5py.string_dtype()))
        assert read_text(file.id, "text") == "jå, longer than a pointer"
