"""A selection in a sweep on several ranks: one result, equal draws on all of them, and no hang on errors."""

import pytest
from helpers.launch import mpirun

from mu2mpi.results.reader import read_result

pytestmark = pytest.mark.mpi
GRID = 'data = "digits"\nmachines = 3\nrounds = [2, 3]\ndiameter = [0.5, 2.0]\nevaluations = 1\n'


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_ranks_run_each_candidate(ranks, tmp_path):
    grid, runs = tmp_path / "grid.toml", tmp_path / "runs"
    grid.write_text(GRID)
    command = ["-m", "mu2mpi", "sweep", grid, "--select", "test_loss", "--epsilon", "4", "--output", runs]
    job = mpirun(ranks, *command)
    assert (job.returncode, job.stdout) == (0, ""), job.stderr
    assert job.stderr == f"the selected result is {runs / 'selected.h5'}\n"
    result = read_result(runs / "selected.h5")
    assert result.environment["ranks"] == ranks
    assert 3.9 < result.privacy.epsilon_exact <= 4
    assert [path.name for path in runs.iterdir()] == ["selected.h5"]
    # Refused on all ranks: the file exists, and a seed is no secret.
    for extra in ((), ("--seed", "1")):
        job = mpirun(ranks, *command, *extra)
        assert job.returncode == 2
        assert job.stderr.count("error") == 1
