"""Whatever a file holds that is no data, a run on it ends with a clear message and code 2, and soon."""

import json
import subprocess
import sys

import malformed
import numpy as np
import pytest
from slowly import slow

# All in one process, since a start takes longer than a file; a crash or a hang would show all the same.
EVERY = """
import contextlib, io, json, sys, time, traceback
from mu2mpi.cli import main
for path in json.load(open(sys.argv[1])):
    said = io.StringIO()
    began = time.process_time()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = main(["run", "--data", path, "--machines", "1", "--output", sys.argv[2], "--overwrite"])
        except BaseException:
            code = traceback.format_exc()
    print(json.dumps([path, code, said.getvalue(), time.process_time() - began]), flush=True)
"""


@pytest.mark.parametrize("every", [12, *slow(1)])
def test_malformed_files_are_explained(every, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    paths = []
    for name, write in list(malformed.cases())[::every]:
        write(folder / name)
        paths.append(str(folder / name))
    assert len(paths) == len(set(paths)) >= 200 / every
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


READ = """
import json, sys
import numpy as np
from mu2mpi import Experiment, InputError
from mu2mpi.data.opening import open_source
refused = 0
for path in json.load(open(sys.argv[1])):
    try:
        source = open_source(Experiment(data=path))
        source.training(np.arange(source.training_samples))
        source.test(np.arange(source.test_samples))
    except InputError:
        refused += 1
print(refused)
"""


def test_a_damaged_bit_of_hdf5_ends_in_a_message_or_in_numbers(tmp_path):
    """HDF5 keeps no checksum of plain data, so that not every damage can be seen."""
    good, random = malformed.content("h5"), np.random.default_rng(3)
    paths = []
    for k, place in enumerate(random.integers(0, len(good), 300)):
        paths.append(str(tmp_path / f"{k}.h5"))
        damaged = bytes([good[place] ^ 1 << int(random.integers(8))])
        (tmp_path / f"{k}.h5").write_bytes(good[:place] + damaged + good[place + 1 :])
    (tmp_path / "paths").write_text(json.dumps(paths))
    command = [sys.executable, "-c", READ, str(tmp_path / "paths")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_the_files_from_which_these_are_made_are_good(tmp_path):
    from mu2mpi import Experiment, run

    for suffix in malformed.SUFFIXES:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(malformed.content(suffix))
        assert run(Experiment(data=str(path), machines=2, seed=1)).experiment.rounds == 16
