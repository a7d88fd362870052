"""Selection of runs by conditions, lists of values, and custom labels."""

from pathlib import Path

import pytest
from helpers.summaries import cells_of, methods

from mu2mpi import cli
from mu2mpi.analysis.setting_labels import Labels, join_values, select_runs, sort_key
from mu2mpi.analysis.tables import TableStyle, build_table
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import RunSummary

RUNS = {
    "plain": {},
    "box": {"data": "a.npz", "normalize": "box", "feature_bound": 3.0, "test": 0.25},
    "aggregate": {"noise": "aggregate", "epsilon": 2.0},
    "storm": {"query": "iterate", "clip_norm": 1.0},
    "dp": {"method": "dp-sgd", "server": "trusted", "batch": 7, "mechanism": "poisson"},
    "population": {"data": "population", "margin": 0.25, "features": 3},
}


def named(*conditions):
    runs = [
        RunSummary(Path(name), Experiment(machines=2, rounds=9, **settings), "", 1.0, 0.5)
        for name, settings in RUNS.items()
    ]
    return [run.path.name for run in select_runs(runs, conditions)]


@pytest.mark.parametrize(
    ("conditions", "names"),
    [
        (["feature_bound=3"], ["box"]),
        (["estimator=unset"], ["dp"]),
        (["method=dp-sgd"], ["dp"]),
        (["feature_bound=unset"], ["plain", "aggregate", "storm", "dp", "population"]),
        (["method=dp-sgd,mu2-sgd"], list(RUNS)),
        (["epsilon=2, unset"], list(RUNS)),
        (["method=mu2-sgd", "query=average", "noise=unset"], ["plain", "box", "population"]),
        (["rho=4.0", "rho=4", "normalize=none"], ["plain", "storm", "dp", "population"]),
        (["method=mu2-sgd,query=average, noise=unset"], ["plain", "box", "population"]),
    ],
)
def test_runs_are_chosen_by_any_settings(conditions, names):
    assert named(*conditions) == names


def test_a_value_may_have_the_form_of_two_conditions():
    runs = [
        RunSummary(Path(data), Experiment(data=data, machines=2, rounds=9), "", 1.0, 0.5)
        for data in ("a,rho=9.csv", "digits")
    ]
    assert select_runs(runs, ["data=a,rho=9.csv"]) == runs[:1]
    assert select_runs(runs, ["data=digits,rho=4"]) == runs[1:]
    with pytest.raises(InputError, match="did you mean machines"):
        select_runs(runs, ["data=digits,machnes=2"])


@pytest.mark.parametrize("condition", ["normalize=unit", "batch=7,8", "rho=four", "normalize", "ranks=2"])
def test_what_chooses_nothing_is_refused(condition):
    with pytest.raises(InputError):
        named(condition)


def test_values_are_listed_as_numbers():
    assert join_values([30, 1, 100.0, None, 3, "iid", 10, 3]) == "1, 3, 10, 30, 100, iid, unset"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--where", "roh=4"], "rho"),
        (["--where", "clients=4"], "machines"),
        (["--rows", "methd"], "method"),
        (["--values", "val_loss"], "test_loss"),
    ],
)
def test_names_of_settings_and_measurements_that_are_misspelt_are_answered(capsys, folder, words, meant):
    assert cli.main(["table", str(folder), *words]) == 2
    assert f"did you mean {meant}?" in capsys.readouterr().err


def test_custom_labels():
    labels = Labels({"method": "algorithm", "epsilon=1": "strict", "epsilon=4": "loose"})
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    text = build_table(runs).render("text", TableStyle(labels=labels))
    assert cells_of(text, "algorithm") == [["algorithm", "strict", "loose"]]
    with pytest.raises(InputError):
        Labels({"epsilom=4": "loose"})


def test_numbers_in_texts_are_sorted_by_size():
    values = ["uniform:20", "all", None, "uniform:100", "uniform:9", 3]
    ordered = sorted(values, key=lambda value: sort_key((value,)))
    assert ordered == [None, 3, "all", "uniform:9", "uniform:20", "uniform:100"]
