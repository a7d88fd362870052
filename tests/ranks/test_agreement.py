"""Ranks with copies of their own of a file that decides what is sent: equal ones run, others are refused."""

import re

import numpy as np
import pytest
from helpers.launch import mpirun
from helpers.slow import slow

from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.results.reader import read_result

pytestmark = pytest.mark.slow

ROWS, MACHINES = 120, 3
FILES = ("samples.csv", "schema.toml", "budgets.toml", "trace.csv", "experiment.toml", "loss.py")

IN_OWN_FOLDERS = """
import os, sys
from mu2mpi.cli import main
from mu2mpi.core.parallel import world
os.chdir(f"rank{world().rank}")
sys.path.insert(0, os.getcwd())
if os.path.exists("loss.py"):
    import loss
sys.exit(main(sys.argv[1:]))
"""
LOSS = """
import mu2mpi
from mu2mpi.losses.softmax import SoftmaxLoss

@mu2mpi.register
class Ours(SoftmaxLoss):
    name = "ours"
"""
# A text in each file, and what stands there on one rank.
CHANGES = {
    "samples.csv": ("0.500000", "0.250000"),
    "schema.toml": ("high = 1.0", "high = 1.5"),
    "budgets.toml": ('"2" = 0.5', '"2" = 0.6'),
    "trace.csv": ("\n7,2\n", "\n8,2\n"),
    "experiment.toml": ("rho = 1.0", "rho = 1.5"),
    "loss.py": ('"ours"', '"ours"  # or others'),
}
NAMED_BY = {
    "data": "samples.csv",
    "test": "samples.csv",
    "schema": "schema.toml",
    "budgets": "budgets.toml",
    "participation": "trace.csv",
}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Return the folders of three ranks with the same files, and work where they are."""
    random = np.random.default_rng(0)
    rows = [
        [f"{v:.6f}" for v in random.uniform(-1, 1, 2)] + [str(k % 2), str(k % MACHINES)] for k in range(ROWS)
    ]
    rows[5][0] = "0.500000"
    columns = "".join(f'[columns.{c}]\ntype = "numeric"\nlow = -1.0\nhigh = 1.0\n' for c in "ab")
    texts = {
        "samples.csv": "\n".join(["a,b,label,machine", *map(",".join, rows)]) + "\n",
        "schema.toml": columns + '[columns.label]\ntype = "label"\nclasses = [0, 1]\n'
        '[columns.machine]\ntype = "owner"\n',
        "budgets.toml": '[rho]\n"2" = 0.5\n',
        "trace.csv": "round,machine\n"
        + "".join(f"{t},{t % MACHINES}\n{t},{(t + 1) % MACHINES}\n" for t in range(1, 13)),
        "experiment.toml": 'data = "samples.csv"\nschema = "schema.toml"\nbudgets = "budgets.toml"\n'
        'participation = "trace:trace.csv"\nrho = 1.0\nrounds = 10\nclip_norm = 1.0\nseed = 1\n',
        "loss.py": LOSS,
    }
    (tmp_path / "in_own_folders.py").write_text(IN_OWN_FOLDERS)
    found = [tmp_path / f"rank{rank}" for rank in range(MACHINES)]
    for folder in found:
        folder.mkdir()
        for name, text in texts.items():
            (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return found


def launch(*arguments):
    return mpirun(MACHINES, "in_own_folders.py", *arguments)


RUN = "run", "--config", "experiment.toml", "-o", "../a.h5"


def change(folder, name):
    path, (old, new) = folder / name, CHANGES[name]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.mpi
def test_equal_copies_are_the_same_input(folders, tmp_path):
    job = launch(*RUN)
    assert job.returncode == 0, job.stderr
    assert read_result(tmp_path / "a.h5").accounts.rho[2] == pytest.approx(0.5)


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["budgets.toml", *slow(*(name for name in FILES if name != "budgets.toml"))])
def test_a_file_that_differs_on_one_rank_is_refused(folders, tmp_path, name):
    change(folders[2], name)
    job = launch(*RUN, *(["--loss", "ours"] if name == "loss.py" else []))
    assert job.returncode == 2, job.stderr
    assert job.stderr.count("is not the same on all ranks: rank 2") == 1
    assert not list(tmp_path.glob("a.h5*"))


@pytest.mark.mpi
def test_sweeps_that_differ_in_their_number_of_runs_are_refused(folders, tmp_path):
    path = folders[1] / "experiment.toml"
    path.write_text(path.read_text().replace("rho = 1.0", "rho = [1.0, 2.0]"))
    job = launch("sweep", "experiment.toml", "-o", "../runs")
    assert job.returncode == 2, job.stderr
    assert "the number of runs is not the same on all ranks: rank 1" in job.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_every_option_that_names_a_file_is_tried():
    speaking = re.compile("file of your own|file that|file with|another file|file declaring|:FILE")
    named = set()
    for name, field in option_fields().items():
        kind = (field.json_schema_extra or {}).get("forms")
        forms = [lookup(kind, known).option_syntax for known in known_names(kind)] if kind else []
        if speaking.search(" ".join([str(field.description), *forms])):
            named.add(name)
    assert named == NAMED_BY.keys()
    assert {*NAMED_BY.values(), "experiment.toml", "loss.py"} == {*FILES} == CHANGES.keys()
