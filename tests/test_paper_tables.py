"""The paper's tables on MNIST: the nine cells that take seconds, with twenty seeds each.

``mu2mpi sweep jobs/tables.toml`` runs all 18; scripts/check_tables.py judges them by the same rule.
"""

import csv
from importlib import resources

import numpy as np
import pytest

from mu2mpi import Experiment, run

PAPER = {
    (row["server"], int(row["machines"]), float(row["rho"])): (float(row["loss"]), float(row["accuracy"]))
    for row in csv.DictReader(
        resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text().splitlines()
    )
}
QUICK = [cell for cell in PAPER if cell[1] == 100 or (cell[0] == "trusted" and cell[1] == 10)]
SEEDS = range(1, 21)


def test_the_quick_cells_are_nine_of_eighteen():
    assert len(PAPER) == 18
    assert len(QUICK) == 9


@pytest.mark.parametrize(("server", "machines", "rho"), QUICK)
def test_cell(server, machines, rho, mnist_dir):
    results = [
        run(
            Experiment(data="mnist", server=server, machines=machines, rho=rho, seed=seed, evaluations=1),
            data_dir=mnist_dir,
        )
        for seed in SEEDS
    ]
    losses = np.array([result.history.test_loss[-1] for result in results])
    accuracies = np.array([result.history.test_accuracy[-1] for result in results])
    loss, accuracy = PAPER[server, machines, rho]
    assert abs(losses.mean() - loss) <= 0.001
    assert abs(accuracies.mean() - accuracy) <= max(2.5 * accuracies.std(ddof=1), 0.015)
    assert all(result.diagnostics.clipped_share == 0 for result in results)
    assert all(result.experiment.rounds == 60_000 // machines for result in results)
