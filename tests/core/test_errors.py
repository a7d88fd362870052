"""Packages of the extra for analysis: imported, or named with what installs them."""

import math

import pytest

from mu2mpi.core.errors import InputError, needed


def test_a_package_is_imported_or_named_with_the_extra_that_installs_it(tmp_path, monkeypatch):
    assert needed("math") is math
    with pytest.raises(InputError, match="mu2mpi\\[analysis\\]"):
        needed("nowhere_found.deep")
    # One that is installed and lacks a package of its own is not what the extra would cure.
    (tmp_path / "half_installed.py").write_text("import nowhere_found")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="nowhere_found"):
        needed("half_installed")
