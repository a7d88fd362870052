"""Result files found in folders."""

import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.results.result_files import find_result_files, load_summaries
from mu2mpi.results.writer import write_result


@pytest.fixture
def path(result, tmp_path):
    write_result(result, tmp_path / "a.h5")
    return tmp_path / "a.h5"


def test_find_skips_and_names_what_cannot_be_used(build_result, tmp_path):
    for name in ("b.h5", "a.h5", "sub/c.h5"):
        write_result(build_result(), tmp_path / name)
    write_result(build_result(), tmp_path / "odd.suffix")
    (tmp_path / "bad.h5").write_bytes(b"hello")
    (tmp_path / "notes.txt").write_text("")
    for hidden in (".x.h5", ".a.h5.12-ab.tmp", ".cache/d.h5"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"")
    found, warnings = load_summaries([tmp_path])
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == ["a.h5", "b.h5", "sub/c.h5"]
    assert [warning for warning in warnings if "bad.h5" in warning] == warnings
    with pytest.raises(InputError, match=r"bad\.h5"):
        load_summaries([tmp_path], strict=True)
    found, warnings = load_summaries([tmp_path / "odd.suffix", tmp_path / "sub"])
    assert [run.path.name for run in found] == ["odd.suffix", "c.h5"]
    assert warnings == []


def test_find_lists_a_file_once_and_names_a_folder_that_cannot_be_listed(path, monkeypatch):
    (path.parent / "link.h5").symlink_to(path)
    files, _ = find_result_files([path, path.parent, path.parent / "." / path.name])
    assert files == [path]
    with pytest.raises(InputError):
        find_result_files([path.parent / "nowhere"])

    def walk(folder, onerror):
        onerror(PermissionError(13, "Permission denied", f"{folder}/locked"))
        return iter([])

    monkeypatch.setattr("mu2mpi.results.result_files.os.walk", walk)
    files, (warning,) = find_result_files([path.parent])
    assert files == []
    assert f"{path.parent}/locked" in warning
