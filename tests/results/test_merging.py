"""Study files: one HDF5 file that is read like a folder of results."""

import os
import resource
import shutil

import h5py
import numpy as np
import pytest

from mu2mpi import cli, load
from mu2mpi.core.errors import InputError
from mu2mpi.results import opening
from mu2mpi.results.merging import merge_results
from mu2mpi.results.opening import study_results
from mu2mpi.results.reader import read_result
from mu2mpi.results.result_files import find_result_files, load_summaries
from mu2mpi.results.writer import write_result

NAMES = ("a.h5", "b.h5", "sub/c.h5")


@pytest.fixture
def folder(build_result, tmp_path):
    for k, name in enumerate(NAMES):
        write_result(build_result(seed=k + 1), tmp_path / "runs" / name)
    return tmp_path / "runs"


@pytest.fixture
def study(folder, tmp_path):
    assert merge_results([folder], tmp_path / "study.h5") == list(NAMES)
    return tmp_path / "study.h5"


def plain_content(group):
    """All members of an HDF5 group in order, with types, stored bytes, filters and attributes."""

    def value(held):
        if isinstance(held, h5py.Reference):
            return group.file[held].name.removeprefix(group.name.rstrip("/")).lstrip("/")
        if isinstance(held, np.ndarray | np.void) and held.dtype.hasobject:
            return [value(item) for item in held.tolist()]
        return (
            [value(item) for item in held] if isinstance(held, tuple | list) else np.asarray(held).tobytes()
        )

    def attributes(item):
        pairs = [(name, item.attrs.get_id(name), item.attrs[name]) for name in item.attrs]
        return [(name, str(a.dtype), a.shape, a.get_type().encode(), value(v)) for name, a, v in pairs]

    content = [("", attributes(group))]

    def add(name, item):
        stored = ()
        if isinstance(item, h5py.Dataset):
            plan = item.id.get_create_plist()
            filters = [plan.get_filter(k) for k in range(plan.get_nfilters())]
            scales = [[scale.name.removeprefix(group.name) for scale in d.values()] for d in item.dims]
            raw = item.id.read_direct_chunk((0,) * item.ndim) if item.chunks else item[()].tobytes()
            stored = item.dtype.str, item.shape, item.chunks, plan.get_layout(), filters, raw, str(scales)
        content.append((name, stored, attributes(item)))

    group.visititems(add)
    return content


def test_a_study_has_every_attribute_type_and_byte_of_the_results(folder, study, tmp_path):
    with h5py.File(study) as merged:
        for name in NAMES:
            with h5py.File(folder / name) as own:
                # Names of scales are relative to the group.
                expected = str(plain_content(own)).replace("'/", "'")
                assert str(plain_content(merged[name])).replace("'/", "'") == expected
            assert merged[f"{name}/history/test_loss"].dims[0][0].name == f"/{name}/history/round"
    assert study.stat().st_size < sum((folder / name).stat().st_size for name in NAMES)
    # Merged again, with a result that it has and a new one.
    shutil.move(folder / "b.h5", folder / "d.h5")
    assert merge_results([study, folder], tmp_path / "more.h5") == ["a.h5", "b.h5", "sub/c.h5", "d.h5"]
    with h5py.File(study) as one, h5py.File(tmp_path / "more.h5") as other:
        assert all(str(plain_content(one[name])) == str(plain_content(other[name])) for name in NAMES)


def test_a_study_is_read_like_its_folder(folder, study, tmp_path, same, monkeypatch, capsys):
    opened, open_file = [], opening.open_for_reading
    monkeypatch.setattr(
        opening, "open_for_reading", lambda *of, **how: opened.append(of) or open_file(*of, **how)
    )
    runs, own = load(study), load(folder)
    assert len(opened) == 1 + 2 * len(NAMES)  # Once to list the results of the study.
    assert [run.path for run in runs.summaries] == [study / name for name in NAMES] == study_results(study)
    assert all(same(a, b) for a, b in zip(runs, own, strict=True))
    assert runs.table() == own.table()
    for history in (False, True):
        frames = [of.to_dataframe(history).drop(columns="file") for of in (runs, own)]
        assert frames[0].equals(frames[1])
    shutil.copy(study, folder / "old.h5")
    assert [str(path.relative_to(folder)) for path in find_result_files([folder])[0]] == [
        "a.h5", "b.h5", *(f"old.h5/{name}" for name in NAMES), "sub/c.h5",
    ]  # fmt: skip
    # The name of one of its results is that of a file.
    for command in ("show {}", "privacy {}", "plot {} -o a.png", "compare {} {}", "publish {} -o public"):
        outputs = []
        for path in (folder / "sub" / "c.h5", study / "sub" / "c.h5"):
            (tmp_path / "a.png").unlink(missing_ok=True)
            words = command.format(path, path).replace("-o ", f"-o {tmp_path}/").split()
            code, output = cli.main(words), "".join(capsys.readouterr())
            outputs.append((code, " ".join(output.replace(str(path), "").replace("-", "").split())))
        assert outputs[0] == outputs[1]
    # A study file that is replaced is opened again.
    merge_results([folder / "a.h5"], study, overwrite=True)
    assert len(load(study)) == 1


def test_what_cannot_be_merged_is_named_and_nothing_is_written(folder, study, build_result, tmp_path):
    output = tmp_path / "new.h5"
    (tmp_path / "void").mkdir()
    (folder / "bad.h5").write_bytes(b"hello")
    (folder / "empty.h5").touch()
    with pytest.raises(InputError, match=r"(?s)bad\.h5.*empty\.h5"):
        merge_results([folder], output)
    write_result(build_result(seed=9), tmp_path / "other" / "a.h5")
    paths = [folder / "a.h5", tmp_path / "other" / "a.h5"]
    with pytest.raises(InputError, match=r"runs/a\.h5 and .*other/a\.h5 are different.* become a\.h5"):
        merge_results([folder / "b.h5", *paths], output)
    with pytest.raises(InputError, match="no results"):
        merge_results([tmp_path / "void"], output)
    assert not output.exists()
    before = study.read_bytes()
    with pytest.raises(InputError, match="--overwrite"):
        merge_results([folder / "a.h5"], study)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"study\.h5"):
            merge_results([folder / "a.h5"], study, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert study.read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_damage_of_a_study_is_named(study, tmp_path):
    content = bytearray(study.read_bytes())
    with h5py.File(study) as file:
        header = h5py.h5o.get_info(file["b.h5/model"].id).addr
        offset = file.userblock_size
    content[offset + header + 20] ^= 1
    study.write_bytes(content)
    with pytest.raises(InputError, match=r"b\.h5 is damaged"):
        read_result(study / "b.h5")
    runs, warnings = load_summaries([study], prefetch=("contents",))
    assert [run.path.name for run in runs] == ["a.h5", "c.h5"]
    assert len(warnings) == 1
    assert f"{study}/b.h5 is damaged" in warnings[0]
    for path, words in ((study, "3 results"), (study / "x.h5", "no result of this name")):
        with pytest.raises(InputError, match=words):
            read_result(path)
    with pytest.raises(InputError, match="there is no file or folder"):
        find_result_files([study / "x.h5"])
    study.unlink()
    study.write_bytes(content[:3000])
    _, (warning,) = load_summaries([study])
    assert f"{study} is damaged" in warning


def test_names_and_links_of_a_study_hide_no_results_and_lead_to_no_other_file(folder, study, tmp_path):
    names = ["summaries/c.h5", "a\nb.h5", os.fsdecode(b"\xff.h5")]
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(folder / "b.h5", folder / name)
    assert merge_results([folder], tmp_path / "odd.h5") == sorted([*NAMES, *names])
    assert [run.path for run in load(tmp_path / "odd.h5").summaries] == study_results(tmp_path / "odd.h5")
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(study, "r+") as file:
        file["numbers"] = np.arange(3)
        file["cycle"] = h5py.SoftLink("/")
        file["other"] = file["other.h5"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/")
    runs, (warning,) = load_summaries([study])
    assert [str(run.path.relative_to(study)) for run in runs] == list(NAMES)
    assert "other.h5: the study" in warning
    for name in ("other/a.h5", "cycle/a.h5", "sub/../a.h5"):
        with pytest.raises(InputError, match="no result of this name"):
            read_result(study / name)
