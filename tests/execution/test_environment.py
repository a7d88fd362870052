"""Builds: what the last bits of a message depend on."""

import os
import subprocess
import sys

import numpy as np
import pytest
from helpers.launch import run_command

from mu2mpi.core.parallel import Communicator
from mu2mpi.execution import environment

PRINT_BUILDS = """
import hashlib, math
import numpy as np
from mu2mpi.execution.environment import numeric_platforms
from mu2mpi.core.parallel import Communicator
from mu2mpi.privacy.noise.correlation import Correlation
print(*numeric_platforms(Communicator()))
x = -np.random.default_rng(0).random(200_000) * 20
norms = Correlation(0.75, 4, 1000, True, False).column_norms
for column in (np.exp(x), np.expm1(x), np.array([*map(math.exp, x.tolist())]), norms):
    print(hashlib.sha256(column.tobytes()).hexdigest())
"""


def printed_builds(**variables):
    done = run_command([sys.executable, "-W", "ignore", "-c", PRINT_BUILDS], 120, variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n", 1)


@pytest.mark.slow
def test_settings_of_numba_and_other_implementations_of_functions_are_other_builds():
    """They decide the last bits of a message; the C library and NumPy choose theirs when a program starts."""
    plain = printed_builds()
    settings = [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "1"}]
    assert len({plain[0], *(printed_builds(**variables)[0] for variables in settings)}) == 4
    hidden = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4"}
    for variables in (hidden, {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX"}):
        build, values = printed_builds(**variables)
        assert (build == plain[0]) == (values == plain[1]), variables


@pytest.mark.parametrize(("module", "name"), [("numpy", "exp"), ("numpy", "expm1"), ("math", "exp")])
def test_a_function_that_is_off_in_one_of_a_thousand_last_bits_is_another_build(module, name, monkeypatch):
    real, before = getattr(sys.modules[module], name), environment._math_library_digest.__wrapped__()

    def other(x):
        found = np.asarray(real(x))
        found = np.where(np.asarray(x).view(np.int64) % 1009 == 0, np.nextafter(found, 2), found)
        return found if module == "numpy" else float(found)

    monkeypatch.setattr(sys.modules[module], name, other)
    assert environment._math_library_digest.__wrapped__() != before


def git(folder, *arguments):
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    command = ["git", "-C", folder, *arguments]
    return subprocess.check_output(command, text=True, env=os.environ | identity)


@pytest.fixture
def clone(tmp_path):
    """Return a clone with a tracked package, and a virtual environment that is ignored."""
    clone = tmp_path / "clone"
    for package in (clone / "package", clone / "venv" / "package"):
        package.mkdir(parents=True)
        (package / "_version.py").write_text("1")
    (clone / ".gitignore").write_text("venv\n*.pyc\n")
    git(tmp_path, "init", "--quiet", clone)
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "first")
    return clone


def commit_of(package):
    return environment._git_commit.__wrapped__(package).get("git_commit")


def test_the_commit_of_a_clone_says_whether_files_of_the_package_differ(clone):
    package, first = clone / "package", git(clone, "rev-parse", "HEAD").strip()
    index = (clone / ".git" / "index").read_bytes()
    assert commit_of(package) == first
    (clone / "page.md").write_text("no part of the package")
    (package / "a.pyc").write_text("")
    os.utime(package / "_version.py", (1, 1))
    assert commit_of(package) == first
    (package / "of_my_own.py").write_text("")
    assert commit_of(package) == f"{first}-dirty"
    (package / "of_my_own.py").unlink()
    (package / "_version.py").write_text("2")
    assert commit_of(package) == f"{first}-dirty"
    # Nothing is written to the clone.
    assert (clone / ".git" / "index").read_bytes() == index


def test_without_a_clone_that_tracks_the_package_there_is_no_commit(clone, tmp_path, monkeypatch):
    assert commit_of(clone / "venv" / "package") is None
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert commit_of(clone / "package") is None
    monkeypatch.undo()
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 60\n")
    (tmp_path / "git").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        patch.setattr(environment, "MAX_GIT_SECONDS", 0.1)
        assert commit_of(clone / "package") is None
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(clone))
        assert commit_of(clone / "package") is None
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: pytest.fail("git is started"))
    assert commit_of(tmp_path / "installed") is None


def test_a_clone_runs_no_program_and_variables_name_no_other_clone(clone, tmp_path, monkeypatch):
    """The clone around a virtual environment may be anybody's; hooks of git set variables."""
    hook, first = tmp_path / "hook", git(clone, "rev-parse", "HEAD").strip()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    hook.chmod(0o755)
    git(clone, "config", "core.fsmonitor", hook)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert commit_of(clone / "package") == first
    assert commit_of(clone / "venv" / "package") is None
    assert not (tmp_path / "started").exists()


def test_software_is_described_as_the_environment_names_it(monkeypatch):
    names = {variable for variables in environment.SOFTWARE_VARIABLES.values() for variable in variables}
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert not {"container", "modules"} & environment.describe_environment(Communicator()).keys()
    monkeypatch.setenv("SINGULARITY_NAME", "b.sif")
    monkeypatch.setenv("LOADEDMODULES", "gcc/12:openmpi/4.1")
    found = environment.describe_environment(Communicator())
    assert (found["container"], found["modules"]) == ("b.sif", "gcc/12:openmpi/4.1")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/images/a.sif")
    assert environment.describe_environment(Communicator())["container"] == "/images/a.sif"
