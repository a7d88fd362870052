"""Sources: what the built-in ones declare, and one of the user's own in a single file."""

import numpy as np
import pytest

from mu2mpi import Experiment, read_result
from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.data.source import find_source
from mu2mpi.execution.plan import open_source, resolve

SETTINGS = ["--machines", "4", "--rounds", "30", "--seed", "1", "--turns", "0.25"]


@pytest.mark.parametrize("name", ["digits", "population", "synthetic"])
def test_what_is_declared_is_what_is_opened(name):
    declared = find_source(name)
    assert declared is find("sources", name)
    assert declared.draws_fresh == open_source(Experiment(data=name)).draws_fresh
    assert not declared.is_user_data


@pytest.mark.parametrize("data", ["a.csv", "folder/b.H5", "c.libsvm.gz"])
def test_a_file_is_the_users_own(data):
    experiment = Experiment(data=data)
    assert experiment.on_file
    assert experiment.source.name == "user-file"


@pytest.mark.parametrize("data", ["user-file", "a.txt", "a.csv.bz2", "", "Digits"])
def test_other_names_are_answered_with_what_there_is(data):
    with pytest.raises(InputError, match=r"digits, mnist, population, synthetic, a file .*\.csv.*\.parquet"):
        Experiment(data=data)


def test_a_misspelt_name_is_guessed():
    with pytest.raises(InputError, match="did you mean synthetic"):
        Experiment(data="synthethic")


@pytest.mark.parametrize("data", ["digits", "population"])
def test_a_bound_of_features_is_for_files(data):
    with pytest.raises(InputError, match="feature_bound"):
        Experiment(data=data, normalize="box")


def test_a_source_of_one_file_is_declared_like_any_other(extension):
    extension("spirals")
    assert names("sources")[-1] == "spirals"
    experiment = Experiment(data="spirals", turns=0.25)
    assert experiment.settings()["turns"] == 0.25
    assert Experiment.make({"data": "spirals"}).turns == 0.5
    with pytest.raises(InputError, match="turns applies to data = spirals only"):
        Experiment(turns=1.0)
    with pytest.raises(InputError, match="turns = 11"):
        Experiment(data="spirals", turns=11)
    with pytest.raises(InputError, match="did you mean spirals"):
        Experiment(data="spiral")
    plan = resolve(experiment, open_source(experiment), 3)
    assert list(plan.input_files) == ["the module spirals"]


def test_a_source_of_one_file_is_run_swept_and_read(extension, tmp_path, capsys):
    extension("spirals")
    path = tmp_path / "a.h5"
    assert main(["run", "--data", "spirals", *SETTINGS, "-o", str(path)]) == 0
    result = read_result(path)
    assert (result.experiment.data, result.experiment.turns) == ("spirals", 0.25)
    assert result.metrics["accuracy"] > 0.7
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('data = "spirals"\nturns = [0.25, 0.5]\nmachines = 4\nrounds = 30\nseed = 1\n')
    assert main(["sweep", str(sweep), "-o", str(tmp_path / "runs")]) == 0
    turns = {read_result(file).experiment.turns: file for file in (tmp_path / "runs").glob("*.h5")}
    assert turns.keys() == {0.25, 0.5}
    np.testing.assert_array_equal(read_result(turns[0.25]).x, result.x)
    assert main(["data", "spirals"]) == 0
    assert "spirals: 4000 training and 500 test samples, 2 features" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "spirals, two spirals in the plane" in shown
    assert "--turns REAL spirals: number of turns" in shown
