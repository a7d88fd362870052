"""The file in a report with which its runs are repeated: short, and the same runs again."""

import tomllib
from pathlib import Path

import pytest

import mu2mpi
from mu2mpi.analysis.report.repetition import repeat_config
from mu2mpi.config.sweep import Sweep
from mu2mpi.results.reader import RunSummary


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"method": "mu2-sgd", "machines": [2, 4], "epsilon": [1.0, 2.0]}, 2),
        ({"methods": ["mu2-sgd", "dp-gd"], "server": ["untrusted", "trusted"], "epsilon": [2.0, 3.0]}, 2),
        ({"part": [{"rho": [1.0, 2.0], "machines": [1, 2]}, {"rho": 3.0, "diameter": 1.0}]}, 2),
    ],
)
def test_a_sweep_that_is_no_grid_is_repeated_in_few_parts(settings, parts, tmp_path):
    shared = {"data": "synthetic", "samples": 80, "features": 3, "seed": [1, 2], "preset": "practical"}
    found = mu2mpi.sweep({**shared, **settings}, output=tmp_path / "first", progress=False).summaries
    for part, some in enumerate((found, found[1:])):
        repeated = tomllib.loads(repeat_config(some))
        again = mu2mpi.sweep(repeated, output=tmp_path / f"again-{part}", progress=False).summaries
        assert {run.experiment for run in again} == {run.experiment for run in some}
        assert "eta_scale" not in str(repeated)
        if some is found:
            assert len(repeated["part"]) == parts
            assert repeated["seed"] == [1, 2]


def test_parts_are_split_where_most_other_settings_combine():
    diameters, machines = [1.0, 2.0, 4.0], [2, 10]
    parts = [
        {"method": "dp-gd", "diameter": diameters, "machines": machines},
        {"method": "dp-sgd", "diameter": diameters[1:], "machines": machines},
        {"method": "mu2-sgd", "diameter": diameters, "machines": 2, "rounds": 718},
        {"method": "mu2-sgd", "diameter": diameters, "machines": 10, "rounds": 143},
    ]
    sweep = Sweep(
        {"data": "digits", "server": "trusted", "epsilon": [0.5, 2.0], "seed": [1, 2], "part": parts}
    )
    runs = [RunSummary(Path(), experiment, "", 2.0, 0.5, {}) for experiment in sweep.experiments]
    repeated = tomllib.loads(repeat_config(runs))
    assert {*Sweep(repeated).experiments} == {*sweep.experiments}
    assert len(repeated["part"]) == len(parts)
