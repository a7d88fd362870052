"""Counts of `scripts/architecture.py`, on made-up packages."""

import runpy
from pathlib import Path

import pytest

main = runpy.run_path(str(Path(__file__).parents[2] / "scripts/architecture.py"))["main"]

FILES = {
    "__init__": "from mu2mpi._version import VERSION",
    "_version": "VERSION = 1",
    "core/errors": "",
    "data/source": "import mu2mpi.core.errors",
    "methods/base": "from mu2mpi.data.source import DataSource\nfrom mu2mpi.core import errors",
    "cli/run": "from mu2mpi.methods import base",
}


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (
            {},
            0,
            ["floors               4 of  8", "arrows               4 of 90", "rooms                5 of 18"],
        ),
        (
            {"core/errors": "def f():\n    import mu2mpi.cli.run"},
            1,
            ["mu2mpi.core.errors imports mu2mpi.cli.run"],
        ),
        (
            {
                "core/files": "from mu2mpi.core import hdf5",
                "core/hdf5": "if T:\n  from mu2mpi.core.files import x",
            },
            1,
            ["cycle: mu2mpi.core.files, mu2mpi.core.hdf5"],
        ),
        (
            {"methods/base": "import mu2mpi.config.task", "config/task": ""},
            1,
            ["mu2mpi.methods.base imports mu2mpi.config.task"],
        ),
        ({f"m{k}": "" for k in range(5)}, 1, ["top-level modules    7 of  6  too many"]),
    ],
)
def test_counts_and_limits(tmp_path, capsys, change, code, told):
    for name, text in {**FILES, **change}.items():
        file = tmp_path / "mu2mpi" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert main(tmp_path / "mu2mpi") == code
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in told if line not in lines] == []
