"""Which runs are averaged as repeats of one another, and which never are."""

from pathlib import Path

import pytest

from mu2mpi.analysis.cells import Layout
from mu2mpi.analysis.settings import varying
from mu2mpi.analysis.tables import build_table
from mu2mpi.config.experiment import Experiment
from mu2mpi.results.reader import Summary


def made(loss=1.0, **settings):
    experiment = Experiment(
        **{"data": "digits", "server": "trusted", "machines": 5, "rounds": 100, **settings}
    )
    return Summary(Path(f"{loss}-{len(experiment.to_toml())}.h5"), experiment, "", loss, 0.5)


def seeds_of(runs, *layout):
    sections = build_table(runs, Layout(*layout)).sections
    return sorted(cell.seeds for section in sections for cell in section.cells.values() if cell.seeds)


@pytest.mark.parametrize("setting", [{"participation": "uniform:3"}, {"partition": "labels:2"}, {}])
def test_runs_of_other_rounds_are_no_repeats(setting):
    runs = [made(seed=k, rounds=100 * 2**k, **setting) for k in range(3)]
    assert varying(runs) == ["rounds"]
    assert seeds_of(runs) == [1, 1, 1]
    # Nor if the file of another run is there.
    assert seeds_of([*runs, made(seed=1, participation="bernoulli:0.5")]) == [1, 1, 1, 1]


@pytest.mark.parametrize("setting", [{"participation": "bernoulli:0.5"}, {"partition": "labels:2"}])
def test_rounds_that_seeds_draw_belong_together(setting):
    runs = [made(seed=k, rounds=100 + 3 * k, **setting) for k in range(3)]
    assert varying(runs) == []
    assert seeds_of(runs) == [3]
    # Of one seed they are no draws, but wishes.
    asked = [made(seed=1, rounds=100 + 3 * k, evaluations=12 + k, **setting) for k in range(2)]
    assert varying(asked) == ["rounds"]


def test_privacy_that_differs_is_told_of_each_row():
    """Of two rows at other deltas none is the better at the same epsilon."""
    dp = {"method": "dp-sgd", "epsilon": 2.0, "seed": 1}
    runs = [made(1.0, mechanism="poisson", **dp), made(2.0, mechanism="gaussian", delta=1e-2, **dp)]
    table = build_table(runs)
    assert all("delta" in section.layout.rows or "delta" in section.settings for section in table.sections)
    text = table.render()
    assert "0.01" in text
    assert "1e-05" in text
