"""What the suite asks of its own tests: those that take long say so, and no two processes fill a cache."""

import importlib
import pkgutil
import sys
from pathlib import Path
from types import FunctionType

import pytest
from launch import run_command
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher
from slowly import slow

import mu2mpi
from mu2mpi.federation.increments import add_gradients, add_increments
from mu2mpi.federation.iterates import take_step
from mu2mpi.problem.linear import loss, residual, sum_losses

SUITE = """
import time, pytest

def test_quick():
    pass

@pytest.mark.slow
def test_slow():
    time.sleep(0.1)

def test_that_takes_long():
    time.sleep({seconds})
"""
CONFTEST = 'import limits\npytest_plugins = ["limits"]\nlimits.SECONDS, limits.CHANCES = 0.01, 1\n'
HELPERS = {"PYTHONPATH": str(Path(__file__).parent)}


@pytest.mark.parametrize(
    ("seconds", "options", "code"), [(2.0, [], 1), *slow((0.0, [], 0), (2.0, ["--numprocesses=2"], 1))]
)
def test_a_test_that_takes_long_and_is_not_marked_slow_fails_the_suite(seconds, options, code, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: takes long\n")
    (tmp_path / "test_suite.py").write_text(SUITE.format(seconds=seconds))
    done = run_command([sys.executable, "-m", "pytest", *options], 60, HELPERS, tmp_path)
    assert done.returncode == code, done.stdout
    assert "3 passed" in done.stdout
    assert ("test_that_takes_long took 2.0 s" in done.stdout) == (code == 1)
    assert "test_slow took" not in done.stdout


@pytest.mark.slow
def test_every_kernel_is_compiled_before_the_first_test(compiled):
    """Otherwise tests that run side by side may write the same entry of numba's cache."""
    names = {module.name for module in pkgutil.walk_packages(mu2mpi.__path__, "mu2mpi.")}
    for name in names - {"mu2mpi.__main__"}:
        for thing in vars(importlib.import_module(name)).values():
            if isinstance(thing, CPUDispatcher) and isinstance(thing._cache, FunctionCache):
                assert f"{thing.__module__.split('.')[-1]}.{thing.__name__}" in compiled
            elif is_template(thing):
                assert f"{thing.__module__.split('.')[-1]}.{thing.__name__}[softmax" in compiled


def is_template(thing):
    """Return whether this is a function that names what a problem has in its place."""
    return isinstance(thing, FunctionType) and any(
        name in thing.__code__.co_names and thing.__globals__.get(name) is stand_in
        for name, stand_in in (("residual", residual), ("loss", loss))
    )


def test_templates_are_known_by_what_they_name():
    assert all(map(is_template, (add_increments, add_gradients, sum_losses)))
    assert not is_template(take_step)
    assert not is_template(residual)
