"""Result files found in folders."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.results import result_files
from mu2mpi.results.result_files import find_result_files, load_summaries, map_files
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


@pytest.mark.slow
def test_processes_read_what_one_process_reads(build_result, tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        write_result(build_result(), tmp_path / f"{name}.h5")
    (tmp_path / "bad.h5").write_bytes(b"hello")
    alone, warnings = load_summaries([tmp_path], prefetch=("contents", "history"))
    monkeypatch.setattr(result_files, "PARALLEL_MIN_FILES", 1)
    monkeypatch.setattr(result_files.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    found, same_warnings = load_summaries([tmp_path], prefetch=("contents", "history"), in_parallel=True)
    assert same_warnings == warnings
    assert str([run.table_row for run in found]) == str([run.table_row for run in alone])
    assert str([run.contents for run in found]) == str([run.contents for run in alone])
    for run, other in zip(found, alone, strict=True):
        np.testing.assert_equal(run.history.rows(), other.history.rows())
    assert list(map_files(module_of_process, 2 * [tmp_path], "reading")) == ["__main__", "__mp_main__"]
    assert set(map_files(module_of_process, [tmp_path], "reading", in_parallel=False)) == {"__main__"}


def module_of_process(_):
    return "__mp_main__" if multiprocessing.parent_process() else "__main__"


def fail(path):
    if path.name == "bad":
        raise InputError("a bad file")
    if multiprocessing.parent_process() and path.name == "fatal":
        os._exit(1)
    return path.name


@pytest.mark.slow
def test_errors_are_raised_and_files_of_killed_processes_read(monkeypatch):
    monkeypatch.setattr(result_files, "PARALLEL_MIN_FILES", 1)
    monkeypatch.setattr(result_files.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    names = ["a", "b", "fatal", "c", "d"]
    assert list(map_files(fail, [Path(name) for name in names], "reading")) == names
    with pytest.raises(InputError, match="a bad file"):
        list(map_files(fail, [Path("a"), Path("b"), Path("bad")], "reading"))


COMMAND = """
import os, sys
from mu2mpi.cli import main
from mu2mpi.results import result_files

def announce(results, *_):
    yield next(results)
    print("started", flush=True)
    yield from results

result_files.PARALLEL_MIN_FILES = 1
result_files.show_progress = announce
os.sched_getaffinity = lambda _: {0, 1}
if __name__ == "__main__":
    main(["table", sys.argv[1]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_command_leaves_no_processes(build_result, tmp_path, number):
    write_result(build_result(), tmp_path / "0.h5")
    for k in range(1, 20_000):
        os.link(tmp_path / "0.h5", tmp_path / f"{k}.h5")
    (tmp_path / "script.py").write_text(COMMAND)
    command = [sys.executable, tmp_path / "script.py", tmp_path]
    with subprocess.Popen(command, start_new_session=True, stdout=-1, stderr=-1) as process:
        assert process.stdout.readline() == b"started\n"
        os.killpg(process.pid, number) if number != signal.SIGKILL else process.kill()
        # The pipes end when the last process has ended.
        _, errors = process.communicate(timeout=20)
    assert b"Traceback" not in errors
    assert b"leaked" not in errors
