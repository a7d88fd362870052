"""Machines that differ: what they cannot do is refused once they are known."""

import pytest
from helpers.unequal_machines import owned_source, write_budgets

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import resolve


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"participation": "uniform:4"}, "3 machines"),
        ({"participation": "uniform:3", "rounds": 5}, "--rounds 4"),
        ({"participation": "by-size", "rounds": 10}, None),
        ({"participation": "by-size", "rounds": 2**32 - 1}, "machine-rounds"),
        ({"participation": "bernoulli:0.0001", "rounds": 1, "seed": 1}, "no machine"),
        ({"budgets": "{}/nobody.toml"}, "budget of z"),
        ({"participation": "trace:{}/trace.csv", "rounds": 3}, "--rounds 2"),
    ],
)
def test_what_the_machines_cannot_do_is_refused_once_they_are_known(settings, words, tmp_path):
    write_budgets(tmp_path / "nobody.toml", rho={"z": 1.0})
    (tmp_path / "trace.csv").write_text("round,machine\n1,a\n2,b\n")
    source = owned_source(1, [10, 6, 4], 3, 2)
    filled = {k: v.format(tmp_path) if isinstance(v, str) else v for k, v in settings.items()}
    if words is None:
        assert resolve(Experiment(**filled), source, 1).constants.rounds == 10
        return
    with pytest.raises(InputError, match=words):
        resolve(Experiment(**filled), source, 1)
