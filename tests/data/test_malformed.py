"""Whatever a file holds that is no data, a run on it ends with a clear message and code 2, and soon."""

import json
import subprocess
import sys

import malformed

# All in one process, since a start takes longer than a file; a crash or a hang would show all the same.
EVERY = """
import contextlib, io, json, sys, time, traceback
from mu2mpi.cli import main
for path in json.load(open(sys.argv[1])):
    said = io.StringIO()
    started = time.perf_counter()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(["run", "--data", path, "--machines", "1", "--output", sys.argv[2], "--overwrite"])
        except BaseException:
            code = traceback.format_exc()
    print(json.dumps([path, code, said.getvalue(), time.perf_counter() - started]), flush=True)
"""


def test_every_malformed_file_is_explained(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    paths = []
    for name, write in malformed.cases():
        write(folder / name)
        paths.append(str(folder / name))
    assert len(paths) == len(set(paths)) >= 200
    (tmp_path / "paths").write_text(json.dumps(paths))
    command = [sys.executable, "-c", EVERY, str(tmp_path / "paths"), str(tmp_path / "a.result")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [path for path, *_ in found] == paths, done.stderr
    wrong = [
        (path.rpartition("/")[2], code, said, seconds)
        for path, code, said, seconds in found
        if code != 2 or not said.startswith("mu2mpi: error: ") or len(said) > 1000 or seconds > 5
    ]
    assert wrong == []
    unnamed = [said for path, _, said, _ in found if path not in said]
    assert unnamed == []
    assert not (tmp_path / "a.result").exists()


def test_the_files_from_which_these_are_made_are_good(tmp_path):
    from mu2mpi import Experiment, run

    for suffix in malformed.SUFFIXES:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(malformed.content(suffix))
        assert run(Experiment(data=str(path), machines=2, seed=1)).experiment.rounds == 16
