"""No two sizes of noise come from the same draws, and nobody waits for hours to be told who is there."""

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.execution.keys import Keys
from mu2mpi.federation.participation import Attendance, Uniform


def test_delta_changes_the_draws_where_budgets_are_epsilons(tmp_path):
    """Or the same normals, scaled to two deviations, would tell what they hide."""
    (tmp_path / "budgets.toml").write_text("[epsilon]\n0 = 1.0\n")
    path = str(tmp_path / "budgets.toml")
    both = [
        Experiment.make({"budgets": path, "rho": 1.0, "delta": delta, "machines": 3, "rounds": 40})
        for delta in (1e-5, 1e-6)
    ]
    assert len({Keys.noise_key(bytes(32), experiment) for experiment in both}) == 2
    plain = [Experiment.make({"rho": 1.0, "delta": delta}) for delta in (1e-5, 1e-6)]
    assert len({Keys.noise_key(bytes(32), experiment) for experiment in plain}) == 1


def test_more_rounds_than_can_be_looked_at_are_refused_at_once():
    with pytest.raises(InputError, match="too many to know who is there"):
        Attendance(Uniform(3, 1, 0), 10**9)
