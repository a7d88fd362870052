import datetime
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray
from helpers.requirements import missing

import mu2mpi
from mu2mpi import _version
from mu2mpi.core.errors import InputError
from mu2mpi.core.hdf5 import read_attributes
from mu2mpi.results import writer
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import RESULT_SCHEMA, History
from mu2mpi.results.writer import check_output, write_result


def test_attributes_with_plain_h5py(result, tmp_path):
    del result.environment["mu2mpi_version"]
    write_result(result, tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        found, privacy = read_attributes(file), read_attributes(file["privacy"])
        assert {
            "schema": RESULT_SCHEMA,
            "status": "complete",
            "hosts": "nöde (2)",
            "ranks": 2,
        }.items() <= found.items()
        assert found["experiment"] == result.experiment.to_toml()
        assert found["mu2mpi_version"] == _version.__version__
        assert datetime.datetime.fromisoformat(found["created"]).tzinfo is not None
        assert {
            "sigma": 1000.0,
            "neighbours": "replace",
            "noise_recomputable": 1,
        }.items() <= privacy.items()
        assert "guarantee" in read_attributes(file["diagnostics"])["note"]


def test_settings_are_typed_and_files_describe_themselves(build_result, tmp_path, monkeypatch):
    monkeypatch.setenv("MU2MPI_CREATOR", os.fsdecode("Zoë \udcff"))
    monkeypatch.setenv("MU2MPI_LICENSE", "")
    result = build_result(rho=math.inf)
    settings = {
        "data": "/home/me/a.csv",
        "data_is_public": True,
        "labels": "ä",
        "epsilon": 2.0,
        "seed": 2**62,
    }
    write_result(replace(result, experiment=result.experiment.replace(**settings)), tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        typed, found = {**file["experiment"].attrs}, read_attributes(file)
    expected = {**tomllib.loads(found["experiment"]), "rho": read_result(tmp_path / "a.h5").experiment.rho}
    assert {name: v.decode() if isinstance(v, bytes) else v for name, v in typed.items()} == expected
    kinds = {name: typed[name].dtype for name in ("seed", "machines", "rho", "delta", "data_is_public")}
    assert [*map(str, kinds.values())] == ["int64", "int64", "float64", "float64", "uint8"]
    assert (typed["seed"], found["creator_name"]) == (2**62, "Zoë \N{REPLACEMENT CHARACTER}")
    assert "license" not in found
    assert found["Conventions"] == "ACDD-1.3"
    assert found["title"] == "mu2-sgd on a.csv, M = 2, untrusted server"
    assert found["history"] == f"{found['created']}: run with mu2mpi {_version.__version__}"
    assert found["source"] == "mu2mpi 0.1, method mu2-sgd"
    citation = (Path(mu2mpi.__file__).parent / "citation.bib").read_text()
    assert f"{{{found['references']}}}" in citation
    # What describes the file describes no place where it ran, nor does a copy repeat it.
    expected = {**result.environment, "creator_name": found["creator_name"]}
    assert read_result(tmp_path / "a.h5").environment == expected


def test_options_of_extensions_may_be_of_any_type():
    arrays = {(1, 2): "int64", (0.5, math.inf): "float64", (True, False): "uint8"}
    for value, kind in arrays.items():
        stored = np.asarray(writer._typed(list(value)))
        assert (stored.tolist(), str(stored.dtype)) == ([*value], kind)
    for value in (["a", "ü"], {"a": 1}, 2**80, datetime.date(2026, 1, 1), [[1], [2, 3]]):
        assert writer._typed(value) == str(value)


def test_every_array_has_named_dimensions_and_units(result, tmp_path):
    write_result(result, tmp_path / "a.h5")
    expected = {"model": ["row", "feature"], "history": ["round"], "timing": ["rank"]}
    with h5py.File(tmp_path / "a.h5") as file:
        assert file["model/x"].shape == (3, 5)
        assert file["model/x"].dtype == np.float64
        np.testing.assert_array_equal(file["model/feature"][()], range(5))
        assert [name for name in file["history"]] == [n for n in History.column_names() if n != "test_r2"]
        for group, scales in expected.items():
            for name, dataset in file[group].items():
                assert read_attributes(dataset).get("units") in (None, "nat", "s"), name
                assert dataset.attrs["long_name"], name
                if name in (*scales, "class"):
                    assert dataset.is_scale
                elif name == "label":
                    assert dataset.dims[0][0].name == "/model/class"
                else:
                    assert [dimension[0].name for dimension in dataset.dims] == [
                        f"/{group}/{s}" for s in scales[: dataset.ndim]
                    ]
        assert read_attributes(file["timing/noise"])["units"] == "s"


def test_h5dump_finds_names_and_units(result, tmp_path):
    if shutil.which("h5dump") is None:
        missing("h5dump is not installed (on Debian: apt install hdf5-tools)")
    write_result(result, tmp_path / "a.h5")
    dump = subprocess.run(["h5dump", tmp_path / "a.h5"], capture_output=True, text=True, check=True).stdout
    for word in ('GROUP "history"', 'GROUP "theory"', "DIMENSION_LIST", '"nat"', '"excess_loss_bound"'):
        assert word in dump


def test_xarray_finds_names_coordinates_and_units(result, tmp_path):
    write_result(result, tmp_path / "a.h5")
    opened = {
        group: xarray.open_dataset(tmp_path / "a.h5", engine="h5netcdf", group=group)
        for group in ("model", "history", "timing")
    }
    history = opened["history"]
    assert list(history.coords) == ["round"]
    assert set(history.data_vars) == set(History.column_names()) - {"round", "test_r2"}
    assert history.test_loss.attrs["units"] == "nat"
    assert history.test_loss.sel(round=4) == result.history.test_loss[3]
    assert opened["model"].x.dims == ("row", "feature")
    assert opened["model"].label.values.tolist() == list(result.class_names)
    assert opened["timing"].noise.dims == ("rank",)
    for dataset in opened.values():
        for variable in dataset.variables.values():
            assert variable.attrs["long_name"]
            # A unit of 1 would be printed on the axes of every plot.
            assert variable.attrs.get("units") in (None, "nat", "s")
        dataset.close()


def test_mnist_result_is_small(build_result, tmp_path):
    write_result(build_result(classes=10, features=785, rows=20, ranks=10), tmp_path / "a.h5")
    assert (tmp_path / "a.h5").stat().st_size < 150_000
    write_result(build_result(), tmp_path / "small.h5")
    assert (tmp_path / "small.h5").stat().st_size < 24_000


def test_infinite_rho_and_zero_byte_in_a_text(build_result, tmp_path):
    result = build_result(rho=math.inf)
    result.environment["mpi_library"] = "Intel MPI\0"
    write_result(result, tmp_path / "a.h5")
    back = read_result(tmp_path / "a.h5")
    assert back.privacy.rho == math.inf
    assert back.experiment.rho == math.inf
    assert back.environment["mpi_library"] == "Intel MPI"


def test_check_leaves_everything_as_it_is_and_refuses_what_exists(tmp_path):
    for name in ("a.h5", "no suffix", "deep/er/a.h5", "ä" * 80):
        check_output(tmp_path / name, overwrite=False)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "a.h5"
    path.write_text("old")
    with pytest.raises(InputError, match="--overwrite"):
        check_output(path, overwrite=False)
    check_output(path, overwrite=True)
    assert path.read_text() == "old"


def unwritable(tmp_path, kind):
    (tmp_path / "file").write_text("")
    return {
        "folder": tmp_path,
        "below a file": tmp_path / "file" / "a.h5",
        "far below a file": tmp_path / "file" / "b" / "a.h5",
        "name too long": tmp_path / ("a" * 300),
        "device": Path("/dev/null"),
        "read-only file system": Path("/proc/a.h5"),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["folder", "below a file", "far below a file", "name too long", "device", "read-only file system"]
)
def test_check_refuses_what_cannot_be_written(result, tmp_path, kind):
    path = unwritable(tmp_path, kind)
    with pytest.raises(InputError, match="output"):
        check_output(path, overwrite=True)
    with pytest.raises((InputError, OSError), match=re.escape(str(path))):
        write_result(result, path, overwrite=True)
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_overwrite_replaces_and_follows_a_link(build_result, tmp_path, same):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "link.h5").symlink_to(tmp_path / "scratch" / "a.h5")
    write_result(build_result(), tmp_path / "link.h5")
    new = build_result(classes=4)
    with pytest.raises(InputError, match="--overwrite"):
        write_result(new, tmp_path / "link.h5")
    write_result(new, tmp_path / "link.h5", overwrite=True)
    assert (tmp_path / "link.h5").is_symlink()
    assert same(new, read_result(tmp_path / "scratch" / "a.h5"))


@pytest.mark.parametrize("links_work", [True, False])
def test_file_that_appears_meanwhile_is_kept(result, tmp_path, monkeypatch, links_work):
    path = tmp_path / "a.h5"

    def link_late(source, target):
        path.write_text("someone else's")
        if not links_work:
            raise PermissionError("no hard links here")
        return link(source, target)

    link = os.link
    monkeypatch.setattr(os, "link", link_late)
    with pytest.raises(InputError, match="exists"):
        write_result(result, path)
    assert path.read_text() == "someone else's"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("step", ["results.writer.hdf5_file_bytes", "core.files._rename"])
def test_failure_leaves_all_as_it_was(result, tmp_path, monkeypatch, step, old):
    path = tmp_path / "a.h5"
    if old:
        path.write_text(old)

    def fail(*_):
        raise RuntimeError("injected")

    monkeypatch.setattr(f"mu2mpi.{step}", fail)
    with pytest.raises(RuntimeError, match="injected"):
        write_result(result, path, overwrite=True)
    assert [found.read_text() for found in tmp_path.iterdir()] == ([old] if old else [])


CHILD = """
import os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import make_result
from mu2mpi.results.writer import write_result
result = make_result(classes=10, features=785)
{before}
write_result(result, Path(sys.argv[2]), overwrite=True)
"""


def run_child(before, path):
    script = CHILD.format(before=before)
    here = str(Path(__file__).parent)
    return subprocess.run([sys.executable, "-c", script, here, str(path)], capture_output=True, text=True)


def test_full_disk_leaves_all_as_it_was(tmp_path):
    path = tmp_path / "a.h5"
    path.write_text("old")
    child = run_child("resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))", path)
    assert child.returncode == 1
    assert f"File too large: '{path}'" in child.stderr
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


def test_killed_before_the_rename_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.h5"
    path.write_text("old")
    child = run_child("os.fsync = lambda _: os._exit(9)", path)
    assert child.returncode == 9
    assert path.read_text() == "old"
    left = [found.name for found in tmp_path.iterdir() if found != path]
    assert len(left) == 1
    assert left[0].startswith(".a.h5.")
