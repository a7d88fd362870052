"""What result files are read, what is refused, and that no damage goes unnoticed."""

import os
import random

import h5py
import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.hdf5 import read_attributes
from mu2mpi.results.reader import read_experiment, read_result, read_summary
from mu2mpi.results.records import HEADER_ATTRIBUTES
from mu2mpi.results.writer import write_result


@pytest.fixture
def path(result, tmp_path):
    write_result(result, tmp_path / "a.h5")
    return tmp_path / "a.h5"


def change(path, action):
    """Change a file as another program would."""
    with h5py.File(path, "r+") as file:
        action(file)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("shape", [(2, 1), (10, 785)])
def test_round_trip(build_result, tmp_path, same, shape, seed):
    result = build_result(*shape, seed=seed)
    write_result(result, tmp_path / "a.h5")
    assert same(result, read_result(tmp_path / "a.h5"))


def test_experiment_and_summary(result, path):
    assert read_experiment(path) == result.experiment
    summary = read_summary(path)
    assert (summary.path, summary.experiment) == (path, result.experiment)
    assert summary.test_loss == result.history.test_loss[-1]
    assert summary.test_accuracy == result.history.test_accuracy[-1]
    row = summary.table_row
    assert row["data"] == "mnist"
    assert row["epsilon_exact"] == result.privacy.epsilon_exact
    assert row["excess_loss"] == result.theory.excess_loss
    assert row["noise_seconds"] == pytest.approx(result.timing["noise"].mean())
    assert row["ranks"] == 2
    public = ("clip_norm", "normalize", "norm_bound", "initial_gradient_norm", "final_gradient_norm")
    assert not any(("norm" in name and name not in public) or "clipped" in name for name in row)


def test_texts_of_variable_length_are_read_as_earlier_versions_wrote_them(result, path, same):
    def rewrite(file):
        for group in (file, file["privacy"], file["history/test_loss"]):
            group.attrs.update({k: v for k, v in read_attributes(group).items() if isinstance(v, str)})
        names = file["model/label"].asstr()[()]
        del file["model/label"]
        file["model"].create_dataset("label", data=names.astype(object))
        file.attrs["ranks_at_work"] = 1

    change(path, rewrite)
    result.environment["ranks_at_work"] = 1
    assert same(result, read_result(path))
    assert read_summary(path).experiment == result.experiment


def test_file_that_was_annotated_by_hand_is_still_read(result, path, same):
    change(path, lambda file: file["history"].attrs.create("remark", "my favourite" * 1000))
    assert same(result, read_result(path))
    change(path, lambda file: file.pop("theory"))
    assert read_result(path).theory is None
    assert "excess_loss" not in read_summary(path).measurements


def without_experiment_key(name):
    def action(file):
        settings = Experiment(data="mnist", machines=2, rounds=4).replace(**{name: None})
        file.attrs["experiment"] = settings.to_toml()

    return action


def shorten(file):
    del file["history/samples"]
    file["history/samples"] = np.arange(2)


def replace_array(file, name, values):
    del file[name]
    file[name] = values


@pytest.mark.parametrize(
    "action",
    [
        lambda file: file.attrs.pop("schema"),
        lambda file: file.attrs.create("schema", "mu2mpi-9"),
        lambda file: file.attrs.create("schema", 5),
        lambda file: file.attrs.create("status", "running"),
        lambda file: file.attrs.create("experiment", "rho = -1"),
        without_experiment_key("machines"),
        lambda file: file.pop("model"),
        lambda file: file.pop("model/x"),
        lambda file: file.pop("history/samples"),
        shorten,
        lambda file: file["privacy"].attrs.pop("sigma"),
        lambda file: file["privacy"].attrs.create("mechanism", "magic"),
        lambda file: file["privacy"].attrs.create("protects", "nothing"),
        lambda file: file["privacy"].attrs.create("sigma", [1.0, 2.0]),
        lambda file: file["privacy"].attrs.create("rounds", 4.0),
        lambda file: file.move("model/feature", "model/class2"),
        lambda file: file["privacy"].attrs.modify("grid_spacing", 0.0),
        lambda file: file["model"].attrs.modify("scale", 0.0),
        lambda file: replace_array(file, "history/message_norm", np.full(3, b"abc")),
        lambda file: replace_array(file, "timing/noise", np.zeros(1)),
        lambda file: replace_array(file, "timing/noise", np.full(2, np.inf)),
        lambda file: file.create_dataset("metrics/confusion", data=np.full((2, 2), b"a")),
        lambda file: file["model/x"].write_direct(np.full(file["model/x"].shape, np.nan)),
    ],
)
def test_incomplete_or_foreign_files_are_refused(path, action):
    change(path, action)
    with pytest.raises(InputError, match=r"a\.h5"):
        read_result(path)


def test_what_is_no_hdf5_file_is_refused(tmp_path):
    for content in (b"", b"hello", bytes(1000)):
        (tmp_path / "b.h5").write_bytes(content)
        with pytest.raises(InputError):
            read_result(tmp_path / "b.h5")
    os.mkfifo(tmp_path / "d.h5")
    (tmp_path / "e.h5").symlink_to("/dev/zero")
    for name in ("absent.h5", "", "d.h5", "e.h5"):
        with pytest.raises(InputError):
            read_result(tmp_path / name)


@pytest.mark.parametrize("stride", [997, *slow(7)])
def test_flipped_bytes_of_a_result_are_errors_or_change_nothing(build_result, tmp_path, same, stride):
    path, result = tmp_path / "a.h5", build_result(2, 2, rows=2, ranks=1)
    write_result(result, path)
    good, errors, summary = path.read_bytes(), 0, str(read_summary(path).table_row)
    for k in range(random.randrange(stride), len(good), stride):
        damaged = bytearray(good)
        damaged[k] ^= 1 << k % 8
        path.write_bytes(damaged)
        try:
            assert same(result, read_result(path)), k
        except InputError:
            errors += 1
        try:
            assert str(read_summary(path).table_row) == summary, k
        except InputError:
            errors += 1
    assert errors > 9


def test_files_that_end_early_or_have_a_hole_are_refused_or_complete(path, result, same):
    """As a copy leaves them that breaks off, perhaps after it reserved the whole length."""
    content, refused = path.read_bytes(), 0
    lengths = range(8, len(content), len(content) // 20)
    for length in lengths:
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            read_result(path)
        path.write_bytes(content[:length].ljust(len(content), b"\0"))
        try:
            assert same(result, read_result(path))
        except InputError:
            refused += 1
    assert refused > 15


def test_descriptions_may_be_missing_and_typed_settings_are_not_read(result, same, tmp_path):
    """Files of earlier versions have neither, and their schema is that of now."""
    path = tmp_path / "a.h5"
    write_result(result, path)
    with h5py.File(path, "r+") as file:
        file["experiment"].attrs["machines"] = 77
    assert same(read_result(path), result)
    with h5py.File(path, "r+") as file:
        del file["experiment"]
        for name in HEADER_ATTRIBUTES[4:]:
            del file.attrs[name]
        assert {*file.attrs} == {*HEADER_ATTRIBUTES[:4], *result.environment}
    assert same(read_result(path), result)
    assert read_summary(path).experiment == result.experiment
