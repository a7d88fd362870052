"""Commands are found by their modules, and only the one that is given adds its arguments."""

import re
import subprocess
import sys

import pytest

from mu2mpi import cli
from mu2mpi.cli import commands
from mu2mpi.cli.commands import command_names, load
from mu2mpi.config.experiment import Experiment

HELLO = """
"Greet somebody."

def add_arguments(parser):
    parser.add_argument("--name")

def execute(arguments):
    print(f"hello {arguments.name}")
    return 3
"""

HEAVY = ("numba", "mpi4py", "h5py", "numpy", "matplotlib", "pydantic")


def helped(capsys, *words):
    """Return the help that some words ask for."""
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, "--help"])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_a_new_module_is_a_new_command(capsys, tmp_path, monkeypatch):
    assert command_names() == commands.ORDER.split()
    (tmp_path / "hello.py").write_text(HELLO)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    try:
        assert command_names() == [*commands.ORDER.split(), "hello"]
        assert cli.main(["hello", "--name", "you"]) == 3
        assert capsys.readouterr().out == "hello you\n"
        assert re.search(r"\n    hello +greet somebody\n", helped(capsys))
    finally:
        del sys.modules["mu2mpi.cli.commands.hello"], commands.hello


def test_the_list_of_commands_says_what_each_does(capsys):
    found = re.findall(r"^    (\w+) +(.+)", helped(capsys), re.MULTILINE)
    assert [name for name, _ in found] == command_names()
    assert all(load(name).__doc__.lower().startswith(text.lower()) for name, text in found)


@pytest.mark.parametrize("name", command_names())
def test_help_of_a_command(capsys, name):
    out = helped(capsys, name)
    assert out.startswith(f"usage: mu2mpi {name} ")
    assert load(name).__doc__.partition("\n")[0].lower() in " ".join(out.split()).lower()
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
    assert loaded == str([f"mu2mpi.cli.commands.{name}" for name in words or command_names()])
