"""`mu2mpi run --dry-run`: the plan of a run and all that refuses it, without a run and without a file."""

import os
import re
import signal

import pytest
from helpers.launch import mpirun

from mu2mpi import Callback, Interrupted, cli, run
from mu2mpi.config.experiment import Experiment
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

RUN = ["run", "--machines", "6", "--rounds", "30", "--server", "trusted", "--epsilon", "2", "--seed", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state_of(folder):
    """Return what tells of each file below a folder whether it has been written."""
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in folder.rglob("*")}


def invoke(capsys, *words):
    code = cli.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_the_plan_has_the_numbers_of_the_run_and_writes_nothing(capsys, folder):
    words = [*RUN, "--dry-run", "-o", "new/a.h5"]
    code, out, err = invoke(capsys, *words)
    assert (code, err, state_of(folder)) == (0, "", {})
    lines = dict(re.findall(r"^(\w+) +(.*)$", out, re.MULTILINE))
    assert 10 <= len(lines) <= 12
    assert invoke(capsys, *(word for word in words if word != "--dry-run"))[0] == 0
    result = read_result("new/a.h5")
    privacy = result.privacy
    assert f"sigma = {privacy.sigma:.6g} on a grid of {privacy.grid_spacing:.3g}," in lines["noise"]
    assert f"epsilon = {privacy.epsilon_exact:.4g} at delta = 1e-05, rho = " in lines["privacy"]
    assert (lines["machines"], lines["output"]) == ("M = 6 on 1 MPI rank", "new/a.h5")
    assert lines["method"] == "mu2-sgd, T = 30 rounds"
    assert f"d = {result.x.size} " in lines["model"]
    # Tests share a process, in which other runs may have needed more.
    assert 50 < float(re.search(r"about (\d+) MiB per rank", lines["memory"])[1]) < 4000
    assert lines["time"] == "less than a second"


@pytest.mark.parametrize(
    "words",
    [
        ["--rounds", "1000"],
        ["--machines", "5000"],
        ["-o", "here.h5"],
        ["-o", "here.h5/a.h5"],
        ["--data", "here.csv"],
        ["--data", "nan.csv"],
        ["--checkpoint-every", "-1"],
        ["--rho", "4"],
        ["-o", "begun.h5", "--rounds", "29"],
    ],
)
def test_what_refuses_the_run_refuses_its_plan(capsys, folder, words):
    (folder / "here.h5").write_text("precious")
    (folder / "nan.csv").write_text("a,label\n" + "nan,1\n0.5,0\n" * 50)
    (folder / "begun.h5.checkpoint").write_bytes(b"nothing")
    before = state_of(folder)
    code, out, err = invoke(capsys, *RUN, "--dry-run", *words)
    assert (code, out) == (2, "")
    assert state_of(folder) == before
    same = r"\d+-[0-9a-f]{8}\.tmp"  # the name of a temporary file
    code, out, message = invoke(capsys, *RUN, *words)
    assert (code, out, re.sub(same, "", message)) == (2, "", re.sub(same, "", err))


class Stop(Callback):
    """Stops a run at its second evaluation."""

    def on_evaluation(self, evaluation):
        if evaluation.round > 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_plan_of_a_run_that_stopped_resumes_it(capsys, folder):
    settings = {"machines": 6, "rounds": 30, "server": "trusted", "epsilon": 2}
    with pytest.raises(Interrupted) as stopped:
        run(Experiment(**settings), output="a.h5", callbacks=[Stop()])
    before = state_of(folder)
    assert checkpoint_path(folder / "a.h5") in before
    words = [*RUN[:-2], "--dry-run", "-o", "a.h5"]
    code, out, err = invoke(capsys, *words)
    assert (code, err) == (0, "")
    assert f"output    a.h5, resumed after round {stopped.value.rounds_done}\n" in out
    assert state_of(folder) == before
    assert invoke(capsys, *words, "--rounds", "29")[0] == 2


@pytest.mark.mpi
def test_ranks_make_one_plan_and_refuse_together(folder):
    job = mpirun(2, "-m", "mu2mpi", *RUN, "--dry-run")
    assert (job.returncode, job.stderr) == (0, "")
    assert job.stdout.count("M = 6 on 2 MPI ranks") == job.stdout.count("Nothing was run") == 1
    job = mpirun(2, "-m", "mu2mpi", *RUN, "--dry-run", "--rounds", "1000")
    assert (job.returncode, job.stdout, job.stderr.count("at most --rounds")) == (2, "", 1)
    assert state_of(folder) == {}
