"""Real result files for tables, figures and the report: a small sweep on digits, made once."""

from pathlib import Path

import pytest

from mu2mpi.config.sweep import Sweep
from mu2mpi.execution.job import run

SWEEP = {
    "data": "digits",
    "server": ["untrusted", "trusted"],
    "rho": [4.0, 16.0],
    "machines": [2, 10],
    "seed": [1, 2, 3],
    "rounds": 60,
    "evaluations": 8,
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 24 results."""
    folder: Path = tmp_path_factory.mktemp("runs")
    sweep = Sweep(SWEEP)
    for experiment in sweep.experiments:
        run(experiment, output=folder / sweep.file_name(experiment))
    return folder
