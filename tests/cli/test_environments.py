"""An ordinary user who may write neither where the package is nor, perhaps, in a home."""

import json
import os
import subprocess
import sys

import pytest
from helpers.launch import run_command
from helpers.requirements import missing
from helpers.slow import slow

NOBODY = 65534
# May read what root alone may, such as its Python, but writes what anybody may.
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
AS_NOBODY += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]

COMMANDS = (
    "import json, sys; from mu2mpi.cli import main; [main(words) and exit(9) for words in json.loads({!r})]"
)
SWEEP = "machines = 2\nrounds = 5\nseed = [1, 2]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of nobody's, with a home, and one for compiled kernels."""
    if os.getuid() != 0:
        missing("only root can become another user")
    tried = subprocess.run([*AS_NOBODY, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        missing(f"no other user can be had here: {tried.stderr}")
    folder = tmp_path_factory.mktemp("nobody")
    for name in ("", "home", "kernels"):
        (folder / name).mkdir(exist_ok=True)
        os.chown(folder / name, NOBODY, NOBODY)
    (folder / "read-only").mkdir()
    (folder / "sweep.toml").write_text(SWEEP)
    return folder


def as_nobody(folder, *arguments, **variables):
    """Run Python as nobody, in a folder, with these variables, of which None is not set at all."""
    unset = [f"--unset={name}" for name, value in variables.items() if value is None]
    given = [f"{name}={str(value).format(folder)}" for name, value in variables.items() if value is not None]
    command = [*AS_NOBODY, "env", *unset, *given, sys.executable, *arguments]
    return run_command(command, 120, {}, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variables"),
    [
        (
            "a home to read only",
            {"HOME": "{}/read-only", "NUMBA_CACHE_DIR": "{}/kernels", "TMPDIR": "{}/home"},
        ),
        ("no home", {"HOME": None, "NUMBA_CACHE_DIR": "{}/kernels", "TMPDIR": "{}/read-only"}),
        ("nothing", {"HOME": "/nonexistent", "NUMBA_CACHE_DIR": "{}/read-only", "TMPDIR": "/nonexistent"}),
    ],
)
def test_wherever_a_user_can_write_an_output_everything_works(name, variables, folder):
    output = f"results with {name}"
    commands = [
        ["sweep", "sweep.toml", "-o", output],
        ["run", "--machines", "2", "--rounds", "5", "-o", f"{output}/a.h5"],
        ["table", output],
        ["plot", output, "-o", f"{output}/a.png"],
        ["info"],
    ]
    done = as_nobody(folder, "-c", COMMANDS.format(json.dumps(commands)), **variables)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / output / "a.png").stat().st_uid == NOBODY
    # Once for each command that needs kernels; and only if there is no folder at all.
    assert done.stderr.count("NUMBA_CACHE_DIR") == (2 if name == "nothing" else 0)


@pytest.mark.slow
@pytest.mark.mpi
def test_ranks_of_a_user_without_a_home(folder):
    command = ["-m", "mu2mpi", "launch", "--ranks", "2", "run", "--rounds", "5", "-o", "2.h5"]
    done = as_nobody(folder, *command, HOME=None, NUMBA_CACHE_DIR="{}/kernels")
    assert done.returncode == 0, done.stderr
    assert (folder / "2.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize("output", ["read-only/a.h5", *slow("read-only/new/a.h5")])
def test_an_output_that_cannot_be_written_is_found_before_the_run(output, folder):
    done = as_nobody(
        folder, "-m", "mu2mpi", "run", "--machines", "2", "-o", output, NUMBA_CACHE_DIR="{}/kernels"
    )
    assert done.returncode == 2
    assert output in done.stderr
    assert "round" not in done.stderr
