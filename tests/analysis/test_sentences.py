"""What is said of a run's privacy where a user reads it: who is trusted, what is gone, and what is bare."""

import contextlib

import pytest

from mu2mpi.analysis.ledgers import Person, check_ledgers
from mu2mpi.analysis.show import KEY_GONE, TEST_SHARE, describe
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

SMALL = {"data": "digits", "machines": 5, "rounds": 10, "rho": 0.5}
SETTINGS = {
    "aggregated": {"server": "aggregated", "colluders": 3},
    "shuffled": {"server": "shuffled", "colluders": 2, "seed": 1},
    "trusted": {"server": "trusted"},
    "unequal": {"budgets": "budgets.toml", "seed": 1},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return result files by name."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "budgets.toml").write_text("[rho]\n1 = 0.75\n3 = 0.75\n")
    with contextlib.chdir(folder):
        for name, settings in SETTINGS.items():
            run(Experiment(**SMALL, **settings), output=folder / f"{name}.h5")
    return {name: folder / f"{name}.h5" for name in SETTINGS}


def plain(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["aggregated", "shuffled", "trusted"])
def test_of_a_run_without_a_seed_it_is_said_once_that_its_key_is_gone(made, name):
    count = int("seed" not in SETTINGS[name])
    shown = plain(describe(read_result(made[name]), made[name]))
    assert shown.count(KEY_GONE) == plain(check_ledgers([made[name]])[0]).count(KEY_GONE) == count
    everything = plain(check_ledgers(made.values())[0])
    assert everything.count(KEY_GONE) == 1
    assert f"{made['aggregated']}, {made['trusted']}: {KEY_GONE}" in everything


def test_privacy_says_how_many_machines_are_told_less_about(made):
    text = plain(check_ledgers([made["unequal"]], Person(2))[0])
    assert "most is told about samples of 2 of the 5 machines, and less about those of the other 3." in text
    assert "Where machines differ, it is of a person at those that tell most." in text
    assert "Where machines differ" not in plain(check_ledgers([made["trusted"]], Person(2))[0])


@pytest.mark.parametrize("seed", [[], ["--seed", "1"]])
def test_a_run_on_a_file_says_that_its_test_results_are_not_protected(seed, tmp_path, capsys):
    rows = [f"{k % 7 / 7},{k % 3 / 3},{'ab'[k % 2]}" for k in range(60)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y,label", *rows]))
    words = ["run", "--data", tmp_path / "a.csv", "--machines", "3", "--rounds", "5", "--rho", "1", *seed]
    output = tmp_path / "a.h5"
    assert main([*map(str, words), "--output", str(output)]) == 0
    said = plain(capsys.readouterr().out)
    # With a seed in the file there is nothing that protects anybody.
    assert said.count(KEY_GONE) == said.count(TEST_SHARE[1:]) == (not seed)
    assert TEST_SHARE in plain(describe(read_result(output), output))
    assert TEST_SHARE in plain(check_ledgers([output])[0])
