"""Imports of optional dependencies."""

import math

import pytest

from mu2mpi.core.errors import InputError, import_extra


def test_missing_package_is_an_input_error_that_names_the_extra(tmp_path, monkeypatch):
    assert import_extra("math") is math
    with pytest.raises(InputError, match="mu2mpi\\[analysis\\]"):
        import_extra("nowhere_found.deep")
    # An installed package that lacks a dependency of its own is not a missing extra.
    (tmp_path / "half_installed.py").write_text("import nowhere_found")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="nowhere_found"):
        import_extra("half_installed")
