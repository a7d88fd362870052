"""Whole command lines of odd paths, options and values: a result or a message, and no file is touched."""

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout

import pytest
from helpers.slow import slow

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run

NAMES = "good.h5", "ä ☃.h5", os.fsdecode(b"\xff.h5"), "two\nlines.h5", "-o.h5", "results/a.h5", "results/b.h5"
"""Under which a result is there."""

DIRTY = {
    "utf-16.csv": "a,label\n1,0\n0,1\n".encode("utf-16"),
    "latin-1.csv": "größe,label\n1,0\n0,1\n".encode("latin-1"),
    "commas.csv": b"sep=;\na;label\n0,5;0\n0,25;1\n",
    "nameless.tsv": b"a\tlabel\t\n1\t0\t\n0\t1\t\n",
    "twice.csv": b"a,a,label\n1,0,1\n0,1,0\n",
    "label.csv": b"label\n1\n0\n",
    "fractions.csv": "\n".join(["a,label", *(f"0.5,{k / 7}" for k in range(40))]).encode(),
    "unsorted.svm": b"1 2:0.5 1:0.5\n0 1:1\n",
}
"""Tables that a spreadsheet or a script wrote in a way that needs a word."""

OTHERS = (
    "absent", "absent/a.h5", "empty", "results", "cut.h5", "random.h5", "secret.h5", "good.h5/a",
    "broken.toml", "deep.toml", "good.toml", "list.toml", "table.csv", *DIRTY, "loop", ".", "/dev/null",
    "x" * 300, "",
)  # fmt: skip
VALUES = (
    "", "0", "-1", "4", "1e-5", "nan", "-inf", "1e999", "9" * 30, "ä", "\n", "\udcff", "x" * 300,
    "rho=4", "rho", "=", "seed=1", "a,b", "server,rho", ",", "test_loss", "%s", "{}", "$(x)",
)  # fmt: skip
FLAGS = {
    "show": ("--diagnostics",), "table": ("--strict",), "privacy": (), "job": (),
    "data": (), "sweep": ("--dry-run",), "info": (), "run": ("--dry-run",), "predict": ("--data-is-public",),
}  # fmt: skip
OPTIONS = {
    "table": ("--where", "--rows", "--columns", "--values", "--format"),
    "privacy": ("--rho", "--epsilon", "--delta", "--samples"),
    "job": ("--ntasks", "--time", "--partition", "--scheduler", "--sbatch", "--mem-per-cpu", "--array-limit"),
    "data": ("--features", "--labels", "--data-dir"),
    "run": (
        "--rho",
        "--machines",
        "--seed",
        "--data",
        "--labels",
        "--config",
        "--output",
        "--delta",
    ),
    "sweep": ("--index", "--part", "--rho", "--machines", "--seed", "--data", "--labels"),
}
SUITED = {
    "job": ("good.toml",),
    "sweep": ("good.toml",),
    "data": ("table.csv", *DIRTY, "digits", "population"),
}
"""What a command is for; the others are for results."""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Return a folder of good files and of files that are wrong in one way or another."""
    folder = tmp_path_factory.mktemp("template")
    for name in ("empty", "results"):
        (folder / name).mkdir()
    run(Experiment(machines=2, rounds=4, seed=1, evaluations=2), output=folder / NAMES[0])
    content = (folder / NAMES[0]).read_bytes()
    for name in NAMES[1:]:
        (folder / name).write_bytes(content)
    (folder / "cut.h5").write_bytes(content[: len(content) // 2])
    (folder / "random.h5").write_bytes(bytes(range(256)) * 8)
    (folder / "secret.h5").write_bytes(content)
    (folder / "good.toml").write_text("rho = 4.0\nseed = 1\n")
    (folder / "list.toml").write_text('rho = [1.0, 4.0]\nlabels = ["a b", "a-b"]\ndata = "table.csv"\n')
    (folder / "broken.toml").write_bytes(b"rho = [\xff")
    (folder / "deep.toml").write_text(f"rho{'.a' * 20_000} = 1\n")
    for name, content in DIRTY.items():
        (folder / name).write_bytes(content)
    (folder / "table.csv").write_text("a,label\n" + "0.5,0\n0.25,1\n" * 20)
    (folder / "loop").symlink_to("loop")
    return folder


def command_line(chance):
    """Return the words of a command."""
    command = chance.choice(list(FLAGS))

    def path():
        good = SUITED.get(command, (*NAMES, "results"))
        return chance.choice(good if chance.random() < 0.7 else (*NAMES, *OTHERS))

    usual = 2 if command == "predict" else 1
    count = 0 if command in ("info", "privacy") else chance.choice((0, *[usual] * 9, 2))
    words = [path() for _ in range(count)]
    words += [flag for flag in FLAGS[command] if flag == "--dry-run" or chance.random() < 0.2]
    for option in OPTIONS.get(command, ()):
        if chance.random() < 0.2:
            words += [option, chance.choice(VALUES) if chance.random() < 0.8 else path()]
    if command != "sweep":
        chance.shuffle(words)
    if chance.random() < 0.05:
        words.append(chance.choice((*VALUES, "--help", "--nothing", "--output=--", "--where=--")))
    if command == "predict" and chance.random() < 0.5:
        words += ["--output", chance.choice(("loop", "loop/a", "good.h5/a", "empty", "secret.h5"))]
    return [command, *words]


def state_of(folder):
    """Return what tells of all files below a folder whether they have been written."""
    found = [(path, path.lstat()) for path in folder.rglob("*") if not path.is_dir()]
    return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in found}


def call(words):
    """Run a command line in this process; return its code and what it wrote to either stream."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code or 0
        for stream in streams:
            stream.flush()
    return code, *(stream.buffer.getvalue().decode() for stream in streams)


def check(words, folder):
    """Run a command line in a folder and judge what came of it."""
    before = state_of(folder)
    code, out, err = call(words)
    # A claim of a result that does not hold is an error with code 1; whatever else is wrong here is input.
    assert code in ((0, 1, 2) if words[0] == "privacy" else (0, 2)), (code, words, err)
    assert "Traceback" not in out + err, words
    assert out if code == 0 else len(err.partition("mu2mpi: ")[2]) > 10, (words, err)
    assert state_of(folder) == before, words


@pytest.mark.parametrize("count", [60, *slow(200)])
def test_any_command_ends_with_a_result_or_a_message(template, tmp_path, chance, monkeypatch, count):
    shutil.copytree(template, tmp_path / "here", symlinks=True)
    (tmp_path / "here" / "secret.h5").chmod(0)
    monkeypatch.chdir(tmp_path / "here")
    for _ in range(count):
        words = command_line(chance)
        try:
            check(words, tmp_path / "here")
        except Exception as error:
            raise AssertionError(f"mu2mpi {words!r}") from error
