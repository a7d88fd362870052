"""Commands are found by their modules, and only the one that is given adds its arguments."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.extensions import forget_imported_files
from helpers.launch import mpirun

from mu2mpi import Callback, Interrupted, cli, run
from mu2mpi.cli import commands
from mu2mpi.cli.commands import command_names
from mu2mpi.config.experiment import Experiment
from mu2mpi.core import registry
from mu2mpi.core.registry import lookup
from mu2mpi.results.reader import read_result

OWN = """
import mu2mpi
from mu2mpi.losses.softmax import SoftmaxLoss

@mu2mpi.register
class Mine(SoftmaxLoss):
    name = "mine"

@mu2mpi.register
class Hello:
    \"Greet somebody.\"
    component_kind, name = "commands", "hello"

    def add_arguments(self, parser):
        parser.add_argument("--name")

    def run_command(self, arguments):
        print(f"hello {arguments.name}")
        return 3
"""

HEAVY = ("numba", "mpi4py", "h5py", "numpy", "matplotlib", "pydantic")


def helped(capsys, *words, topic=None):
    """Return the help of a command line, or of a topic of it."""
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--help", *([] if topic is None else [topic])])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.fixture
def own(restored_registry, tmp_path, monkeypatch):
    """Return a file of a user's, which is forgotten after the test."""
    (tmp_path / "own_things.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "own_things.py"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    "words",
    [
        "--import own_things.py hello --name you",
        "hello --import=own_things.py --name you",
        "hello --name you --import own_things.py --import ./own_things.py",
    ],
)
def test_an_imported_file_adds_a_command(capsys, words):
    assert command_names() == commands.COMMAND_ORDER.split()
    assert cli.main(words.split()) == 3
    assert capsys.readouterr().out == "hello you\n"
    assert command_names() == [*commands.COMMAND_ORDER.split(), "hello"]
    assert re.search(r"\n    hello +greet somebody\n", helped(capsys, "--import", "own_things.py"))


FIGURE = """
import mu2mpi
from mu2mpi.analysis.figures.figure import Figure

@mu2mpi.register
class Unused(Figure):
    name = "unused"
"""
RUN = ["run", "--loss", "mine", "--rounds", "30", "--machines", "2", "--seed", "1", "-o", "a.h5"]


def test_results_name_imported_files_that_analysis_does_not_import_by_itself(own, capsys):
    assert cli.main([*RUN, "--import", str(own)]) == 0
    assert str(own) in read_result("a.h5").environment["imported_files"]
    del registry._components["losses"]["mine"]
    forget_imported_files()
    capsys.readouterr()
    assert cli.main(["show", "a.h5"]) == 2
    assert f"a.h5 was made with {own}; give --import FILE" in capsys.readouterr().err
    assert "own_things" not in sys.modules
    for name in ("b.h5", "c.h5", "d.h5", "e.h5"):
        Path(name).write_bytes(Path("a.h5").read_bytes())
    run(Experiment(machines=2, rounds=4, seed=1), output="other.h5")
    assert cli.main(["table", "."]) == 0
    warning = capsys.readouterr().err
    assert warning.count("warning") == warning.count("own_things.py") == 1
    assert "a.h5 was made with" in warning
    assert "(likewise b.h5 and 3 more)" in warning
    assert cli.main(["show", "a.h5", "--import", str(own)]) == 0
    assert "mine" in capsys.readouterr().out


class Stop(Callback):
    """Stops a run at its first evaluation."""

    def on_evaluation(self, evaluation):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_resumes_with_the_same_content_of_imported_files_only(own, capsys):
    registry.import_files([own])
    with pytest.raises(Interrupted):
        run(Experiment(loss="mine", rounds=30, machines=2, seed=1), output="a.h5", callbacks=[Stop()])
    assert cli.main(["show", "a.h5.checkpoint"]) == 0
    own.write_text(OWN.replace("Greet", "Welcome"))
    forget_imported_files()
    capsys.readouterr()
    assert cli.main([*RUN, "--import", str(own)]) == 2
    assert "an extension have changed since the run of a.h5 began" in capsys.readouterr().err
    own.write_text(OWN)
    forget_imported_files()
    assert cli.main([*RUN, "--import", str(own)]) == 0


def test_bits_depend_on_used_imported_files_alone(own, tmp_path):
    other = tmp_path / "own_figure.py"
    other.write_text(FIGURE)
    outputs, models = [], []

    def model(*imports):
        forget_imported_files()
        outputs.append(tmp_path / f"{len(outputs)}.h5")
        words = [word for file in imports for word in ("--import", str(file))]
        assert cli.main([*RUN[:-1], str(outputs[-1]), *words]) == 0
        models.append(read_result(outputs[-1]).x.tobytes())

    model(own)
    model(own, other)
    model(other, own)
    own.write_text(OWN.replace("Greet", "Welcome"))
    model(own)
    assert models[0] == models[1] == models[2] != models[3]


@pytest.mark.mpi
def test_ranks_import_files(own):
    job = mpirun(2, "-m", "mu2mpi", "--import", own, *RUN)
    assert job.returncode == 0, job.stderr
    registry.import_files([own])
    assert read_result("a.h5").experiment.loss == "mine"
    job = mpirun(2, "-m", "mu2mpi", *RUN, "--import", "nosuch.py", "--overwrite")
    assert (job.returncode, job.stderr.count("cannot import nosuch.py")) == (2, 1)


def test_the_figure_and_the_command_of_the_page(extension, tmp_path, monkeypatch, capsys):
    extension("depth")
    monkeypatch.chdir(tmp_path)
    for rounds in (2, 4):
        run(Experiment(rounds=rounds, machines=2, seed=1), output=f"{rounds}.h5")
    for figure in ("depth.svg", "depth.pdf"):
        assert cli.main(["plot", "depth", ".", "-o", figure]) == 0
    assert "depth (Test loss against the number of rounds)" in " ".join(helped(capsys, "plot").split())
    assert cli.main(["report", "."]) == 0
    assert "Test loss against the number of rounds." in Path("report.html").read_text()
    capsys.readouterr()
    assert cli.main(["longest", "."]) == 0
    assert capsys.readouterr().out == "4.h5\n"


def test_job_scripts_import_the_same_files(own, capsys):
    (own.parent / "sweep.toml").write_text('loss = "mine"\nrounds = 3\nseed = [1, 2]\n')
    assert cli.main(["job", "sweep.toml", "--import", "own_things.py"]) == 0
    assert f"mu2mpi launch sweep sweep.toml --output runs/sweep --import={own}\n" in capsys.readouterr().out


def test_the_list_of_commands_says_what_each_does(capsys):
    found = re.findall(r"^    (\w+) +(.+)", helped(capsys), re.MULTILINE)
    assert [name for name, _ in found] == command_names()
    assert all(lookup("commands", name).__doc__.lower().startswith(text.lower()) for name, text in found)


@pytest.mark.parametrize("name", command_names())
def test_help_of_a_command(capsys, name):
    out = helped(capsys, name)
    assert out.startswith(f"usage: mu2mpi {name} ")
    assert lookup("commands", name).__doc__.partition("\n")[0].lower() in " ".join(out.split()).lower()
    # A command with topics lists the rest of its options under one of them.
    out += helped(capsys, name, topic="all") if hasattr(lookup("commands", name), "COMMON_OPTIONS") else ""
    fields = Experiment.model_fields if name in ("run", "sweep") else ()
    assert all(f"--{field.replace('_', '-')} " in out for field in fields)


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["fly", "run"], ["--rho", "1"], ["--nothing", "show", "a.h5"]]
)
def test_what_is_no_command_or_option_of_one_is_bad_input(words):
    assert cli.main(words) == 2


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ([], []),
        *([[name], ["pydantic"] * (name in ("run", "sweep", "audit", "job"))] for name in command_names()),
    ],
)
def test_help_imports_no_more_than_it_needs(words, heavy):
    script = (
        "import sys\nfrom mu2mpi.cli import main\n"
        "try: main([*sys.argv[1:], '--help'])\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
        "print([name for name in sys.modules if name.startswith('mu2mpi.cli.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    *_, found, loaded = done.stdout.splitlines()
    assert found == str(heavy)
    assert loaded == str([f"mu2mpi.cli.commands.{name}_command" for name in words])
