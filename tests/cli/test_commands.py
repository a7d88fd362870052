"""Commands are found by their modules, and only the one that is given adds its arguments."""

import re
import subprocess
import sys

import pytest

from mu2mpi import cli
from mu2mpi.cli import commands
from mu2mpi.cli.commands import command_names, load

HELLO = """
SUMMARY = "greet somebody"

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


@pytest.fixture
def hello(tmp_path, monkeypatch):
    """Add a command, a file in another folder."""
    (tmp_path / "hello.py").write_text(HELLO)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield
    sys.modules.pop("mu2mpi.cli.commands.hello", None)
    if hasattr(commands, "hello"):
        del commands.hello


def test_order_names_the_commands_there_are():
    assert command_names() == commands.ORDER.split()


def test_a_new_module_is_a_new_command(capsys, hello):
    assert command_names() == [*commands.ORDER.split(), "hello"]
    assert cli.main(["hello", "--name", "you"]) == 3
    assert capsys.readouterr().out == "hello you\n"
    assert re.search(r"info .*\n    hello +greet somebody\n", helped(capsys))
    assert "Greet somebody.\n" in helped(capsys, "hello")


def test_the_list_of_commands_says_what_each_does(capsys):
    found = re.findall(r"^    (\w+) +(.+)", helped(capsys), re.MULTILINE)
    assert [name for name, _ in found] == command_names()
    for name, text in found:
        assert load(name).SUMMARY.startswith(text)


@pytest.mark.parametrize("name", command_names())
def test_help_of_a_command(capsys, name):
    out = helped(capsys, name)
    assert out.startswith(f"usage: mu2mpi {name} ")
    assert load(name).SUMMARY.lower() in " ".join(out.split()).lower()


@pytest.mark.parametrize("words", [[], ["fly"], ["fly", "run"], ["--rho", "1"]])
def test_without_a_command_all_are_named(capsys, words):
    assert cli.main(words) == 2
    assert capsys.readouterr().err.endswith("See: mu2mpi --help\n")


def test_an_unknown_option_before_a_command_is_answered_by_it(capsys):
    assert cli.main(["--nothing", "show", "a.h5"]) == 2
    assert "the options are --help, --diagnostics, --coefficients\n" in capsys.readouterr().err


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
    command = [sys.executable, "-c", script, *words]
    *_, found, loaded = subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert found == str(heavy)
    assert loaded == str([f"mu2mpi.cli.commands.{name}" for name in words or command_names()])
