"""A loss of a user's own that numba cannot compile is named in a line, and nothing is sent or written."""

import numba
import pytest

from mu2mpi.cli import main
from mu2mpi.core import registry
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.losses.loss import Loss, LossConstants


def adds_text(margins, label):
    margins[0] = str(margins[0]) + 1


def square(margins, label):
    return (margins[0] - label) ** 2 / 2, (margins[0] - label) ** 2


class Own(Loss):
    name, label_kind = "own", "numbers"
    residual_kernel, loss_kernel = staticmethod(numba.njit(adds_text)), staticmethod(numba.njit(square))

    def constants(self, square, radius, classes):
        return LossConstants(3 * square, square)


def test_a_residual_that_numba_cannot_compile_is_named_before_anything_is_written(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.setitem(registry._components["losses"], "own", Own())
    words = ["run", "--loss", "own", "--machines", "2", "--rounds", "5", "--output", str(tmp_path / "a.h5")]
    assert main(words) == 2
    assert "residual_kernel of Own" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", known_names("losses"))
def test_nothing_is_wrong_with_those_that_are_built_in(name):
    assert lookup("losses", name).compilation_error() is None
