import os
import random
import re

import h5py
import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.results.collection import find_files, find_summaries
from mu2mpi.results.reader import read_experiment, read_result, read_summary
from mu2mpi.results.seal import LENGTH, seal_is_broken
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
    assert summary.path == path
    assert summary.experiment == result.experiment
    assert summary.test_loss == result.history.test_loss[-1]
    assert summary.test_accuracy == result.history.test_accuracy[-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", summary.created)


def test_file_that_was_annotated_by_hand_is_still_read(result, path, same):
    change(path, lambda file: file["history"].attrs.create("remark", "my favourite" * 1000))
    assert same(result, read_result(path))


def without_experiment_key(name, value):
    def action(file):
        settings = Experiment(data="mnist", machines=2, rounds=4).model_copy(update={name: value})
        file.attrs["experiment"] = settings.to_toml()

    return action


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda file: file.attrs.pop("schema"), "not a result"),
        (lambda file: file.attrs.create("schema", "mu2mpi-9"), r"'mu2mpi-9'.*reads 'mu2mpi-1'"),
        (lambda file: file.attrs.create("status", "running"), "status is 'running'"),
        (lambda file: file.attrs.create("schema", 5), "damaged"),
        (lambda file: file.attrs.create("experiment", "rho = -1"), "rho"),
        (lambda file: file.attrs.create("experiment", "rho = = 1"), "damaged"),
        (without_experiment_key("machines", None), "machines"),
        (without_experiment_key("rounds", None), "rounds"),
        (lambda file: file.pop("model"), "no group /model"),
        (lambda file: file.pop("history"), "no group /history"),
        (lambda file: file.pop("privacy"), "no group /privacy"),
        (lambda file: file.pop("model/x"), "damaged"),
        (lambda file: file.pop("history/samples"), "damaged"),
        (lambda file: file["privacy"].attrs.pop("sigma"), "lacks 'sigma'"),
        (lambda file: file["privacy"].attrs.pop("mechanism"), "lacks 'mechanism'"),
        (lambda file: file["privacy"].attrs.create("mechanism", "magic"), "no 'magic' among the mechanisms"),
        (lambda file: file["privacy"].attrs.create("mechanism", 3), "mechanism = .* is no text"),
        (lambda file: file["privacy"].attrs.create("protects", "nothing"), "does not protect 'nothing'"),
        (lambda file: file["privacy"].attrs.create("sigma", "large"), "sigma = 'large' .* is no number"),
        (lambda file: file["privacy"].attrs.create("sigma", [1.0, 2.0]), "sigma = .* is no number"),
        (lambda file: file["privacy"].attrs.create("rounds", 4.0), "rounds = .* is no integer"),
        (lambda file: file.pop("history/message_norm"), "message_norm"),
        (lambda file: file.move("history/test_loss", "history/test_accuracy2"), "test_loss"),
        (lambda file: file.move("model/feature", "model/class2"), "feature"),
    ],
)
def test_incomplete_or_foreign_files_are_refused(path, action, message):
    change(path, action)
    with pytest.raises(InputError, match=f"(?s)a.h5.*{message}"):
        read_result(path)


def test_file_that_was_published_without_theory_is_read(path):
    change(path, lambda file: file.pop("theory"))
    assert read_result(path).theory is None
    assert "excess_loss" not in read_summary(path).figures


def test_summary_is_a_row(result, path):
    row = read_summary(path).row
    assert row["data"] == "mnist"
    assert row["epsilon_exact"] == result.privacy.epsilon_exact
    assert row["excess_loss"] == result.theory.excess_loss
    assert row["noise_seconds"] == pytest.approx(result.timing["noise"].mean())
    assert row["ranks"] == 2
    settings = ("clip_norm", "normalize", "norm_bound")
    assert not any(("norm" in name and name not in settings) or "clipped" in name for name in row)


def test_columns_of_different_length_are_refused(path):
    def shorten(file):
        del file["history/samples"]
        file["history/samples"] = np.arange(2)

    change(path, shorten)
    with pytest.raises(InputError, match="differ in shape"):
        read_result(path)


def test_what_is_no_hdf5_file_is_refused(tmp_path):
    for content in (b"", b"hello", bytes(1000)):
        (tmp_path / "b.h5").write_bytes(content)
        with pytest.raises(InputError, match=r"b\.h5 is not an HDF5 file"):
            read_result(tmp_path / "b.h5")
    with pytest.raises(InputError, match=r"c\.h5: No such file"):
        read_result(tmp_path / "c.h5")
    with pytest.raises(InputError, match="Is a directory"):
        read_result(tmp_path)
    os.mkfifo(tmp_path / "d.h5")
    (tmp_path / "e.h5").symlink_to("/dev/zero")
    for name in ("d.h5", "e.h5"):
        with pytest.raises(InputError, match=rf"{name}: it is no ordinary file"):
            read_result(tmp_path / name)


def test_truncated_files_are_refused(path, result, same):
    content = path.read_bytes()
    for length in [*range(0, len(content) - LENGTH, len(content) // 300), len(content) - LENGTH - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(InputError, match=r"a\.h5"):
            read_result(path)
    # Only the seal is cut off: all of the result is there.
    path.write_bytes(content[:-1])
    assert same(result, read_result(path))


def test_any_changed_byte_is_found(path):
    """Not even the text of attributes, which HDF5 itself does not guard, may change unnoticed."""
    content, draw = path.read_bytes(), random.Random(0)
    for _ in range(400):
        damaged = bytearray(content)
        # The mark of the seal is left alone: without it there is no seal to compare with.
        for _ in range(draw.choice([1, 1, 2, 8])):
            position = draw.randrange(len(content) - LENGTH)
            damaged[position] = (damaged[position] + draw.randrange(1, 256)) % 256
        if damaged == content:
            continue
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.h5"):
            read_result(path)


def test_file_with_a_hole_is_refused_or_complete(path, result, same):
    """As a copy leaves it that reserves the whole length first and then breaks off."""
    content, refused = path.read_bytes(), 0
    for length in range(8, len(content), len(content) // 200):
        path.write_bytes(content[:length].ljust(len(content), b"\0"))
        try:
            found = read_result(path)
        except InputError:
            refused += 1
        else:
            assert same(result, found)
    assert refused > 180


def test_seal(path):
    assert not seal_is_broken(path)
    content = path.read_bytes()
    assert content.splitlines()[-1].startswith(b"mu2mpi sha256 ")
    path.write_bytes(content[:-2] + b"X\n")
    assert seal_is_broken(path)
    path.write_bytes(content[:5])
    assert not seal_is_broken(path)


def test_find_skips_and_names_what_cannot_be_used(build_result, tmp_path):
    for name in ("b.h5", "a.h5", "sub/c.h5"):
        write_result(build_result(), tmp_path / name)
    write_result(build_result(), tmp_path / "odd.suffix")
    (tmp_path / "bad.h5").write_bytes(b"hello")
    (tmp_path / "half.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:3000])
    (tmp_path / "notes.txt").write_text("")
    for hidden in (".x.h5", ".a.h5.12-ab.tmp", ".cache/d.h5"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    found, warnings = find_summaries([tmp_path])
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == ["a.h5", "b.h5", "sub/c.h5"]
    assert len(warnings) == 2
    assert "bad.h5" in warnings[0]
    assert "half.h5" in warnings[1]
    with pytest.raises(InputError, match=r"(?s)bad\.h5.*half\.h5"):
        find_summaries([tmp_path], strict=True)
    found, warnings = find_summaries([tmp_path / "odd.suffix", tmp_path / "sub"])
    assert [run.path.name for run in found] == ["odd.suffix", "c.h5"]
    assert warnings == []


def test_find_lists_a_file_once(path):
    (path.parent / "link.h5").symlink_to(path)
    files, _ = find_files([path, path.parent, path.parent / "." / path.name])
    assert files == [path]


def test_find_refuses_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        find_files([tmp_path / "nowhere"])


def test_find_names_a_folder_that_cannot_be_listed(tmp_path, monkeypatch):
    def walk(folder, onerror):
        onerror(PermissionError(13, "Permission denied", f"{folder}/locked"))
        return iter([])

    monkeypatch.setattr("mu2mpi.results.collection.os.walk", walk)
    assert find_files([tmp_path]) == ([], [f"{tmp_path}/locked cannot be listed: Permission denied"])
