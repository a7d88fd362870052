"""Shells complete commands, options and values: by the protocol, and in an interactive bash and zsh."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest
from helpers.requirements import missing

from mu2mpi.cli.commands import command_names
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.registry import known_names

WORDBREAKS = " \t\n\"'><=;|&(:"  # as of bash
HEAVY = ("numba", "mpi4py", "h5py", "numpy", "matplotlib", "scipy", "pandas")
PROGRAM = f"""
import os, sys
leave = os._exit
def report(code):
    print(*[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
    leave(code)
os._exit = report
from mu2mpi.cli import main
sys.exit(main())
"""


def ask(line, tmp_path, script=PROGRAM):
    """Return the finished process of a completion at the end of a line, whose output are the completions."""
    variables = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_COMP_WORDBREAKS": WORDBREAKS}
    variables |= {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    command = ["bash", "-c", '"$@" 8>&1 9>/dev/null 1>/dev/null', "bash", sys.executable, "-c", script]
    environment = os.environ | variables
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def complete(tmp_path):
    """Return a function from a line to its completions, in a folder with files."""
    for name in ("sweep.toml", "schema.toml", "a.h5"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    (tmp_path / "own_method.py").write_text(
        "import mu2mpi\n"
        "@mu2mpi.register\nclass Command:\n    'Greet.'\n    component_kind, name = 'commands', 'hello'\n"
        "    def add_arguments(self, parser): parser.add_argument('--loud')\n"
        "    def run_command(self, arguments): pass\n"
    )

    def complete(line):
        done = ask(line, tmp_path)
        assert (done.returncode, done.stderr) == (0, "\n"), line
        return [word.rstrip() for word in done.stdout.split("\n") if word]

    return complete


def test_commands_and_options(complete):
    assert complete("mu2mpi ") == command_names()
    assert complete("mu2mpi pr") == ["predict", "privacy"]
    options = {f"--{name.replace('_', '-')}" for name in option_fields()}
    assert options <= {*complete("mu2mpi run --")}
    assert complete("mu2mpi run --rho 2 --clip") == ["--clip-norm"]
    assert "--partition" in complete("mu2mpi job sweep.toml --")
    assert complete("mu2mpi table --for") == ["--format"]


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("run --method", "methods"),
        ("sweep sweep.toml --server", "servers"),
        ("run --mechanism", "mechanisms"),
        ("run --loss", "losses"),
        ("run --preset", "presets"),
        ("run --partition", "partitions"),
        ("run --participation", "participation"),
    ],
)
def test_values_are_the_registered_names(complete, option, kind):
    assert complete(f"mu2mpi {option} ") == known_names(kind)


def test_names_and_paths(complete):
    sources, paths = known_names("sources"), {"sweep.toml", "schema.toml", "a.h5", "runs/", "own_method.py"}
    assert {*complete("mu2mpi run --data ")} == {*sources, *paths}
    assert complete("mu2mpi run --data=mn") == ["mnist"]
    assert {*complete("mu2mpi plot ")} == {*known_names("figures"), *paths}
    assert complete("mu2mpi plot tradeoff ru") == ["runs/"]
    assert {*complete("mu2mpi table ")} == paths
    assert complete("mu2mpi sweep sw") == ["sweep.toml"]
    assert complete("mu2mpi run --config sc") == ["schema.toml"]
    assert complete("mu2mpi table --format m") == ["markdown"]
    assert complete("mu2mpi run --normalize ") == ["none", "unit", "box"]
    assert complete("mu2mpi sweep --methods dp-sgd,mu2") == ["dp-sgd,mu2-sgd"]


def test_topics_of_help(complete):
    topics = complete("mu2mpi run --help ")
    assert {"all", "clip-norm", "mu2-sgd", "shuffled", "softmax", "mnist", "practical"} <= {*topics}
    assert complete("mu2mpi sweep --help shuf") == ["shuffled"]


def test_an_imported_file_adds_completions(complete):
    assert complete("mu2mpi --import own_method.py hel") == ["hello"]
    assert complete("mu2mpi hello --import own_method.py --lo") == ["--loud"]


def test_a_line_that_nothing_completes(complete):
    assert complete("mu2mpi fly") == []
    assert complete("mu2mpi fly --") == ["--help", "--version", "--import"]
    assert complete("mu2mpi run --method nothing-like-this") == []


def test_argcomplete_is_imported_only_to_complete(tmp_path):
    script = "import sys\nfrom mu2mpi.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    script += "assert 'argcomplete' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
    # Without the package, nothing is completed, and no command runs.
    blocked = "import sys\nsys.modules['argcomplete'] = None\n"
    done = ask("mu2mpi info ", tmp_path, blocked + PROGRAM)
    assert (done.returncode, done.stdout) == (1, "")


class Terminal:
    """Interactive shell on a pseudo-terminal, whose program `mu2mpi` is that of these tests."""

    def __init__(self, command, tmp_path):
        binaries = tmp_path / "bin"
        binaries.mkdir()
        program = "import sys; from mu2mpi.cli import main; sys.exit(main())"
        (binaries / "mu2mpi").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}" "$@"\n')
        (binaries / "mu2mpi").chmod(0o755)
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.chdir(tmp_path)
            scripts = os.path.dirname(sys.executable)
            path = f"{binaries}{os.pathsep}{scripts}{os.pathsep}{os.environ['PATH']}"
            os.environ.update(PATH=path, TERM="dumb", PS1="", HOME=str(tmp_path), ZDOTDIR=str(tmp_path))
            os.execvp(command[0], command)

    def read_until(self, pattern, seconds=60):
        text, end = "", time.monotonic() + seconds
        while not re.search(pattern, text):
            ready, _, _ = select.select([self.descriptor], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {pattern} in {text!r}"
            text += os.read(self.descriptor, 65536).decode(errors="replace")
        return text

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def close(self):
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(register-python-argcomplete mu2mpi)"'),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit; compinit -D -u; eval "$(register-python-argcomplete mu2mpi)"',
    ),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_in_an_interactive_shell(shell, tmp_path):
    command, registration = SHELLS[shell]
    if shutil.which(shell) is None:
        missing(f"there is no {shell}")
    terminal = Terminal(command, tmp_path)
    terminal.type(f"{registration}; echo rea''dy\n")
    terminal.read_until("ready")
    terminal.type("mu2mpi ru\t--meth\tmu2-\t--server tru\t--hel\t\n")
    typed = terminal.read_until(r"usage: mu2mpi run")
    line = re.sub(r"[^ -~]|\x1b\[[^a-z]*[a-z]", "", typed)
    assert re.search(r"mu2mpi run +--method +mu2-sgd +--server +trusted +--help", line)
    terminal.type("exit\n")
    terminal.close()
