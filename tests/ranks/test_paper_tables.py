"""The paper's tables on MNIST: the nine cells that take seconds, with eight seeds each, or one with four.

``mu2mpi sweep jobs/tables.toml`` runs all 18; scripts/check_tables.py judges them by the same rule.
"""

import csv
from importlib import resources

import numpy as np
import pytest
from helpers.launch import mpirun
from helpers.slow import slow

from mu2mpi.results.reader import read_result

PAPER = {
    (row["server"], int(row["machines"]), float(row["rho"])): (float(row["loss"]), float(row["accuracy"]))
    for row in csv.DictReader(
        resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text().splitlines()
    )
}
QUICK = [cell for cell in PAPER if cell[1] == 100 or (cell[0] == "trusted" and cell[1] == 10)]
FASTEST = ("trusted", 100, 16.0)
SWEEP = """
data = "mnist"
server = "{}"
machines = {}
rho = {}
seed = {}
evaluations = 1
"""


def test_the_quick_cells_are_nine_of_eighteen():
    assert len(PAPER) == 18
    assert len(QUICK) == 9


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("cell", "seeds", "ranks"), [(FASTEST, 4, 1), *slow(*((cell, 6, 2) for cell in QUICK))], ids=str
)
def test_cell(cell, seeds, ranks, mnist_dir, tmp_path):
    # A hundred machines draw their own noise in one cell; in others one draw has the distribution of theirs.
    more = 'noise = "aggregate"' if cell[0] == "untrusted" and cell[2] < 16 else ""
    (tmp_path / "cell.toml").write_text(SWEEP.format(*cell, list(range(1, seeds + 1))) + more)
    command = ["-m", "mu2mpi", "sweep", tmp_path / "cell.toml", "--output", tmp_path, "--data-dir", mnist_dir]
    done = mpirun(ranks, *command, timeout=600)
    assert done.returncode == 0, done.stderr
    found, (loss, accuracy) = [read_result(path) for path in tmp_path.glob("*.h5")], PAPER[cell]
    assert all((r.experiment.server, r.experiment.machines, r.experiment.rho) == cell for r in found)
    assert len({result.experiment.seed for result in found}) == len(found) == seeds
    losses = np.array([result.history.test_loss[-1] for result in found])
    accuracies = np.array([result.history.test_accuracy[-1] for result in found])
    assert abs(losses.mean() - loss) <= 0.001
    assert abs(accuracies.mean() - accuracy) <= max(2.5 * accuracies.std(ddof=1), 0.015)
    assert all(result.diagnostics.clipped_share == 0 for result in found)
    assert all(result.experiment.rounds == 60_000 // result.experiment.machines for result in found)
