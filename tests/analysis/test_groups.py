"""Runs chosen by conditions, also by settings that an experiment has only together with others."""

from pathlib import Path

import pytest

from mu2mpi.analysis.groups import chosen, listed
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.results.reader import Summary

RUNS = {
    "plain": {},
    "box": {"data": "a.npz", "normalize": "box", "feature_bound": 3.0, "test": 0.25},
    "aggregate": {"noise": "aggregate", "epsilon": 2.0},
    "storm": {"query": "iterate", "clip_norm": 1.0},
    "dp": {"method": "dp-sgd", "server": "trusted", "batch": 7, "mechanism": "poisson"},
    "population": {"data": "population", "margin": 0.25, "features": 3},
}


def summaries():
    return [
        Summary(Path(name), Experiment(machines=2, rounds=9, **settings), "", 1.0, 0.5)
        for name, settings in RUNS.items()
    ]


def named(*conditions):
    return [run.path.name for run in chosen(summaries(), conditions)]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("normalize=box", ["box"]),
        ("feature_bound=3", ["box"]),
        ("test=0.25", ["box"]),
        ("noise=aggregate", ["aggregate"]),
        ("epsilon=2", ["aggregate"]),
        ("query=iterate", ["storm"]),
        ("clip_norm=1.0", ["storm"]),
        ("estimator=unset", ["dp"]),
        ("method=dp-sgd", ["dp"]),
        ("mechanism=poisson", ["dp"]),
        ("batch=7", ["dp"]),
        ("data=a.npz", ["box"]),
        ("data=population", ["population"]),
        ("features=3", ["population"]),
        ("margin=0.25", ["population"]),
        ("server=trusted", ["dp"]),
        ("feature_bound=unset", ["plain", "aggregate", "storm", "dp", "population"]),
        ("method=dp-sgd,mu2-sgd", list(RUNS)),
        ("epsilon=2, unset", list(RUNS)),
        ("batch=7,7.0", ["dp"]),
        ("mechanism=unset", ["plain", "box", "aggregate", "storm", "population"]),
    ],
)
def test_runs_are_chosen_by_any_setting(condition, names):
    assert named(condition) == names


def test_conditions_hold_together():
    assert named("method=mu2-sgd", "query=average", "noise=unset") == ["plain", "box", "population"]
    assert named("rho=4.0", "rho=4", "normalize=none") == ["plain", "storm", "dp", "population"]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("normalize=unit", "no run has normalize=unit; normalize is box, none"),
        ("batch=8", "no run has batch=8; batch is 7, unset"),
        ("batch=7,8", "no run has batch=8; batch is 7, unset"),
        ("rho=four", "no run has rho=four"),
        ("normalize", "'normalize' is no condition such as rho=4"),
        ("ranks=2", "'ranks=2' is no condition"),
    ],
)
def test_what_chooses_nothing_is_refused(condition, words):
    with pytest.raises(InputError, match=words):
        named(condition)


def test_values_are_listed_as_numbers():
    assert listed([30, 1, 100.0, None, 3, "iid", 10, 3]) == "1, 3, 10, 30, 100, iid, unset"


def test_a_table_of_runs_in_a_box(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("x,label\n" + "".join(f"{k % 2},{k % 2}\n" for k in range(40)))
    small = {"data": str(tmp_path / "a.csv"), "machines": 2, "rounds": 3, "rho": 4.0}
    run(Experiment(**small), output=tmp_path / "runs" / "none.h5")
    box = {"normalize": "box", "feature_bound": 2.0}
    run(Experiment(**small, **box), output=tmp_path / "runs" / "box.h5")
    for condition in ("normalize=box", "feature_bound=2"):
        assert main(["table", str(tmp_path / "runs"), "--where", condition]) == 0
        text = capsys.readouterr().out
        assert "normalize = box" in text
        assert "normalize = none" not in text
