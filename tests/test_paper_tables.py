"""The paper's tables on MNIST: the nine cells that take seconds, with twenty seeds each.

``mu2mpi sweep jobs/tables.toml`` runs all 18; scripts/check_tables.py judges them by the same rule.
"""

import csv
from importlib import resources

import numpy as np
import pytest
from launch import mpirun

from mu2mpi.results.reader import read_result

PAPER = {
    (row["server"], int(row["machines"]), float(row["rho"])): (float(row["loss"]), float(row["accuracy"]))
    for row in csv.DictReader(
        resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text().splitlines()
    )
}
QUICK = [cell for cell in PAPER if cell[1] == 100 or (cell[0] == "trusted" and cell[1] == 10)]
SEEDS = 20
SWEEP = f"""
data = "mnist"
rho = [4.0, 8.0, 16.0]
seed = {list(range(1, SEEDS + 1))}
evaluations = 1

[[part]]
server = "untrusted"
machines = 100

[[part]]
server = "trusted"
machines = [10, 100]
"""


def test_the_quick_cells_are_nine_of_eighteen():
    assert len(PAPER) == 18
    assert len(QUICK) == 9


@pytest.fixture(scope="module")
def results(mnist_dir, tmp_path_factory):
    """Return the results of the sweep, on two ranks, by cell."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "quick.toml").write_text(SWEEP)
    command = ["-m", "mu2mpi", "sweep", folder / "quick.toml", "--output", folder, "--data-dir", mnist_dir]
    done = mpirun(2, *command, timeout=1200)
    assert done.returncode == 0, done.stderr
    cells = {cell: [] for cell in QUICK}
    for result in map(read_result, folder.glob("*.h5")):
        experiment = result.experiment
        cells[experiment.server, experiment.machines, experiment.rho].append(result)
    return cells


@pytest.mark.parametrize("cell", QUICK, ids=lambda cell: "-".join(map(str, cell)))
def test_cell(results, cell):
    found, (loss, accuracy) = results[cell], PAPER[cell]
    assert len({result.experiment.seed for result in found}) == len(found) == SEEDS
    losses = np.array([result.history.test_loss[-1] for result in found])
    accuracies = np.array([result.history.test_accuracy[-1] for result in found])
    assert abs(losses.mean() - loss) <= 0.001
    assert abs(accuracies.mean() - accuracy) <= max(2.5 * accuracies.std(ddof=1), 0.015)
    assert all(result.diagnostics.clipped_share == 0 for result in found)
    assert all(result.experiment.rounds == 60_000 // result.experiment.machines for result in found)
