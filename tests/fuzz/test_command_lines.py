"""Whole command lines of odd paths, options and values: a result or a message, and only files asked for."""

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout

import pytest
from slowly import slow

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run

NAMES = "good.h5", "ä ☃.h5", os.fsdecode(b"\xff.h5"), "two\nlines.h5", "-o.h5", "results/a.h5", "results/b.h5"
"""Under which a result is there."""

OTHERS = (
    "absent", "absent/a.h5", "empty", "results", "cut.h5", "random.h5", "secret.h5", "good.h5/a",
    "broken.toml", "good.toml", "list.toml", "table.csv", "loop", ".", "/dev/null", "x" * 300, "",
)  # fmt: skip
VALUES = (
    "", "0", "-1", "4", "1e-5", "nan", "-inf", "1e999", "9" * 30, "ä", "\n", "\udcff", "x" * 300,
    "rho=4", "rho", "=", "seed=1", "a,b", "server,rho", ",", "test_loss", "%s", "{}", "$(x)",
)  # fmt: skip
FLAGS = {
    "show": ("--diagnostics",),
    "table": ("--strict",),
    "privacy": (),
    "job": ("--status", "--after-table"),
    "data": (),
    "sweep": (),
    "info": (),
    "publish": ("--overwrite", "--even-if-unprotected", "--with-test-results"),
    "plot": ("--overwrite", "--strict", "tradeoff", "history", "weights", "nothing"),
    "report": ("--overwrite", "--strict"),
}
OPTIONS = {
    "table": ("--where", "--rows", "--columns", "--values", "--format"),
    "privacy": ("--rho", "--epsilon", "--delta", "--samples"),
    "job": ("--ntasks", "--time", "--partition", "--scheduler", "--sbatch", "--mem-per-cpu", "--array-limit"),
    "data": ("--features", "--labels", "--data-dir"),
    "sweep": ("--index", "--part", "--rho", "--machines", "--seed", "--data", "--labels"),
    "plot": ("--where", "--against"),
    "report": ("--where",),
}
SUITED = {"job": ("good.toml",), "sweep": ("good.toml",), "data": ("table.csv", "digits", "population")}
"""What a command is for; the others are for results."""

WRITERS = {"publish": (), "plot": ("tradeoff.png", "history.png", "weights.png"), "report": ("report.html",)}
"""Commands that write, and the names of what they write if none is given."""


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
    (folder / "table.csv").write_text("a,label\n" + "0.5,0\n0.25,1\n" * 20)
    (folder / "loop").symlink_to("loop")
    return folder


def command_line(chance, commands):
    """Return the words of a command, and what it was told to write."""
    command = chance.choice(commands)

    def path():
        good = SUITED.get(command, (*NAMES, "results"))
        return chance.choice(good if chance.random() < 0.7 else (*NAMES, *OTHERS))

    words = (
        [path() for _ in range(chance.choice((0, *[1] * 9, 2)))] if command not in ("info", "privacy") else []
    )
    words += [flag for flag in FLAGS[command] if chance.random() < 0.2]
    for option in OPTIONS.get(command, ()):
        if chance.random() < 0.2:
            words += [option, chance.choice(VALUES) if chance.random() < 0.8 else path()]
    chance.shuffle(words)
    output = None
    if command in WRITERS and chance.random() < 0.8:
        output = chance.choice((path(), "new.h5", "new.png", "new.svg", "new/deep/new.pdf", "new"))
        words += ["--output", output]
    if command == "sweep":
        words.append("--list")
    if chance.random() < 0.05:
        words.append(chance.choice((*VALUES, "--help", "--nothing")))
    return [command, *words], output


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


def check(words, output, folder):
    """Run a command line in a folder and judge what came of it."""
    before = state_of(folder)
    code, out, err = call(words)
    # A claim of a result that does not hold is an error with code 1; whatever else is wrong here is input.
    assert code in ((0, 1, 2) if words[0] == "privacy" else (0, 2)), (code, words, err)
    assert "Traceback" not in out + err, words
    if code == 0:
        assert out, words
    else:
        _, said, message = err.partition("mu2mpi: ")
        assert said, (words, err)
        assert len(message.removeprefix("error:").strip()) > 10, (words, err)
    after = state_of(folder)
    changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    # Of several files to publish, some may be written before one is refused.
    if words[0] in WRITERS and (code == 0 or words[0] == "publish"):
        asked = [folder / name for name in (WRITERS[words[0]] if output is None else [output])]
        changed = [path for path in changed if not any(path.is_relative_to(place) for place in asked)]
    assert not changed, (words, changed)


@pytest.mark.parametrize("count", [60, *slow(200)])
def test_any_command_ends_with_a_result_or_a_message(template, tmp_path, chance, monkeypatch, count):
    commands = [name for name in FLAGS if count > 60 or name not in ("plot", "report")]
    for number in range(count):
        folder = tmp_path / str(number)
        shutil.copytree(template, folder, symlinks=True)
        (folder / "secret.h5").chmod(0)
        monkeypatch.chdir(folder)
        words, output = command_line(chance, commands)
        try:
            check(words, output, folder)
        except Exception as error:
            raise AssertionError(f"mu2mpi {words!r}") from error
        finally:
            monkeypatch.chdir(tmp_path)
            shutil.rmtree(folder)
