"""Messages about TOML files that cannot be read."""

import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.core.toml import read_toml


def test_unreadable_configurations(tmp_path):
    texts = {
        "bad": "rho = = 3",
        "long": f"rho = {5000 * '9'}",
        "deep": f"rho = {5000 * '['}",
        "binary": "\udcff",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text, errors="surrogateescape")
    for name in ("absent", *texts):
        with pytest.raises(InputError, match=rf"{name}\.toml"):
            read_toml(tmp_path / f"{name}.toml")
