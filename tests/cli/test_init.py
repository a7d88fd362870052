"""`mu2mpi init`: commented files of experiments and sweeps, and schemas without values of the data."""

import re

import numpy as np
import pytest

from mu2mpi import cli
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.toml import read_toml

ROWS = "age,sex,outcome\n" + "31.25,female,cured\n77.5,male,ill\n" * 40


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to a working folder with a table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patients.csv").write_text(ROWS)
    return tmp_path


def init(capsys, *words):
    code = cli.main(["init", *words])
    return code, *capsys.readouterr()


def test_a_file_of_an_experiment_says_what_each_setting_is_and_runs(capsys, folder):
    assert init(capsys) == (0, "experiment.toml\n", "")
    text = (folder / "experiment.toml").read_text()
    experiment = Experiment.from_settings(read_toml(folder / "experiment.toml"))
    assert (experiment.data, experiment.machines, experiment.epsilon, experiment.seed) == ("digits", 10, 2, 1)
    settings = re.findall(r"^# (\w.*)\n((?:# )?)(\w+) = .*$", text, re.MULTILINE)
    assert {"data", "loss", "preset", "server", "machines", "epsilon", "seed"} <= {
        name for _, mark, name in settings if not mark
    }
    # What is commented out is right as well.
    every = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    (folder / "every.toml").write_text(every)
    assert Experiment.from_settings(read_toml(folder / "every.toml")).rounds is not None
    command = re.search(r"^#   mu2mpi (run .* --dry-run)$", text, re.MULTILINE)[1]
    assert cli.main(command.split()) == 0


@pytest.mark.parametrize("data", ["digits", "patients.csv"])
def test_a_file_of_a_sweep_has_lists(capsys, folder, data):
    assert init(capsys, data, "--sweep", "-o", "new")[0] == 0
    sweep = Sweep(read_toml(folder / "new" / "sweep.toml"))
    assert len(sweep.experiments) == (36 if data == "digits" else 12)
    # The noise of a seeded run is no secret.
    assert {e.seed is None for e in sweep.experiments} == {data != "digits"}
    assert {e.schema for e in sweep.experiments} == {None if data == "digits" else "new/patients.toml"}


def test_a_schema_has_columns_and_no_values_and_is_to_be_filled_in(capsys, folder):
    assert init(capsys, "patients.csv") == (0, "experiment.toml\npatients.toml\n", "")
    written = (folder / "experiment.toml").read_text() + (folder / "patients.toml").read_text()
    assert [value for value in ("31.25", "77.5", "female", "cured", "ill\n") if value in written] == []
    run = ["run", "--config", "experiment.toml", "--dry-run"]
    assert cli.main(run) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "patients.toml: age, sex, outcome have no type yet" in message
    blank = 'type = ""'
    text = (folder / "patients.toml").read_text().replace(blank, 'type = "numeric"\nlow = 0\nhigh = 120', 1)
    text = text.replace(blank, 'type = "categorical"\ncategories = ["female", "male"]', 1)
    (folder / "patients.toml").write_text(text.replace(blank, 'type = "label"\nclasses = ["ill", "cured"]'))
    assert cli.main(run) == 0
    assert "d = 8 parameters" in capsys.readouterr().out
    # A schema that was filled in is kept, and so is a file that was changed.
    assert init(capsys, "patients.csv", "--sweep") == (0, "sweep.toml\n", "")
    (folder / "experiment.toml").write_text("rho = 1\n")
    code, out, err = init(capsys, "patients.csv")
    assert (code, out) == (2, "")
    assert "experiment.toml" in err
    assert "cured" in (folder / "patients.toml").read_text()


def test_data_without_names_need_no_schema(capsys, folder):
    rng = np.random.default_rng(1)
    np.savez(folder / "a.npz", X=rng.normal(size=(90, 4)), y=rng.integers(0, 2, 90))
    assert init(capsys, "a.npz") == (0, "experiment.toml\n", "")
    assert cli.main(["run", "--config", "experiment.toml", "--dry-run"]) == 0


def test_a_first_line_that_may_be_somebodys_row_is_not_copied(capsys, folder):
    (folder / "a.csv").write_text("alice,54,12000,yes\nbob,33,45555,no\n")
    code, out, err = init(capsys, "a.csv")
    assert (code, out) == (2, "")
    assert "line 1 of a.csv has numbers" in err
    assert not {"alice", "54", "12000"} & {*err.replace(",", " ").split()}
    assert not (folder / "a.toml").exists()


def test_a_table_named_like_a_file_that_is_written_has_another_schema(capsys, folder):
    (folder / "sweep.csv").write_text(ROWS)
    assert init(capsys, "sweep.csv", "--sweep") == (0, "sweep.toml\nschema.toml\n", "")


@pytest.mark.parametrize("words", [["nothing"], ["absent.csv"], ["patients.csv", "-o", "patients.csv"]])
def test_what_cannot_be_used_is_named_and_nothing_is_written(capsys, folder, words):
    code, out, err = init(capsys, *words)
    assert (code, out) == (2, "")
    assert words[-1] in err
    assert [path.name for path in folder.iterdir()] == ["patients.csv"]
