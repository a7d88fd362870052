"""A loss of a user's own that numba cannot compile is named in a line, and nothing is sent or written."""

import math

import numba
import pytest

from mu2mpi import registry
from mu2mpi.cli import main
from mu2mpi.problem.base import Constants, Problem
from mu2mpi.registry import find, names


def adds_text(margins, label):
    margins[0] = str(margins[0]) + 1


def no_such_name(margins, label):
    margins[0] = nowhere * label  # noqa: F821


def no_such_function(margins, label):
    margins[0] = math.nowhere(label)


def opens_a_file(margins, label):
    with open("a") as file:
        margins[0] = file.read()


def square(margins, label):
    return (margins[0] - label) ** 2 / 2, (margins[0] - label) ** 2


CASES = {
    adds_text: "No implementation of function Function(<built-in function add>) found for signature:",
    no_such_name: "NameError: name 'nowhere' is not defined",
    no_such_function: "module 'math' has no attribute 'nowhere'",
    opens_a_file: "The 'with (context manager) as (variable):' construct is not supported",
}


def problem_of(residual_of, loss_of, compile_it=numba.njit):
    """Return a problem of these two functions."""

    class Own(Problem):
        name, labels = "own", "numbers"
        residual, loss = staticmethod(compile_it(residual_of)), staticmethod(compile_it(loss_of))

        def constants(self, square, radius, classes):
            return Constants(3 * square, square)

    return Own()


@pytest.mark.parametrize("function", CASES)
def test_a_residual_that_numba_cannot_compile_is_named_before_anything_is_written(
    function, monkeypatch, capsys, tmp_path
):
    monkeypatch.setitem(registry._registered["problems"], "own", problem_of(function, square))
    output = tmp_path / "a.h5"
    words = ["run", "--loss", "own", "--machines", "2", "--rounds", "5", "--output", str(output)]
    assert main(words) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    begin = "mu2mpi: error: numba cannot compile residual of Own (loss = own): "
    assert last.startswith(f"{begin}{CASES[function]}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", names("problems"))
def test_nothing_is_wrong_with_those_that_are_built_in(name):
    assert find("problems", name).fault() is None
