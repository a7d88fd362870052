"""The examples that come with the package, and how they get to where a user works."""

import re
from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.examples import example_names, example_text, purpose
from mu2mpi.toml import read_toml

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_they_are_the_files_of_the_project():
    assert {name: example_text(name) for name in example_names()} == {
        path.name: path.read_text() for path in JOBS.iterdir()
    }


def test_the_list_says_what_each_is_for(capsys, folder):
    assert cli.main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(path.name for path in JOBS.iterdir())
    assert "quickstart.toml       A small version of the paper's tables on scikit-learn's digits" in lines[6]
    assert all(re.fullmatch(r"\S+ +[A-Z].{20,120}[^.]", line) for line in lines)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("# One. Two.", "One"),
        ("#!/bin/bash\n#SBATCH --x\n##SBATCH --y\n\n# On 1, ... 8\n# ranks. B.\n\n# C.", "On 1, ... 8 ranks"),
        ("x = 1", ""),
    ],
)  # fmt: skip
def test_a_purpose_is_the_first_sentence_of_the_first_comment(line, said, monkeypatch):
    monkeypatch.setattr("mu2mpi.examples.example_text", lambda name: line)
    assert purpose("any") == said


def test_all_are_written_into_jobs(capsys):
    assert cli.main(["examples", "--all"]) == 0
    written = capsys.readouterr().out.split()
    assert written == [f"jobs/{name}" for name in example_names()]
    for path in map(Path, written):
        assert path.read_text() == example_text(path.name)
        assert path.suffix != ".toml" or "data" in str(read_toml(path))


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["tables.toml"], ["jobs/tables.toml"]),
        (["jobs/tables.toml"], ["jobs/tables.toml"]),
        (["tables", "quickstart"], ["jobs/quickstart.toml", "jobs/tables.sbatch", "jobs/tables.toml"]),
        (["run.sbatch", "-o", "mine/here"], ["mine/here/run.sbatch"]),
    ],
)
def test_those_that_are_named_are_written(words, files, folder):
    assert cli.main(["examples", *words]) == 0
    there = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(there) == files


def test_a_file_of_the_user_is_kept(capsys):
    Path("jobs").mkdir()
    mine = Path("jobs/tables.toml")
    mine.write_text("rho = 1\n")
    assert cli.main(["examples", "quickstart", "tables"]) == 2
    assert "nothing is written: only --overwrite would replace jobs/tables.toml\n" in capsys.readouterr().err
    assert (mine.read_text(), list(Path("jobs").iterdir())) == ("rho = 1\n", [mine])
    assert cli.main(["examples", "tables", "--overwrite"]) == 0
    assert mine.read_text() == example_text("tables.toml")
    # What is the same already is no conflict.
    assert cli.main(["examples", "tables"]) == 0


def test_a_name_that_is_misspelt(capsys):
    assert cli.main(["examples", "tablse"]) == 2
    assert "there is no example 'tablse'; did you mean tables?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["sweep", "jobs/quickstart.toml"], "mu2mpi examples quickstart.toml"),
        (["sweep", "my jobs/trust.toml"], "mu2mpi examples trust.toml --output 'my jobs'"),
        (["run", "--config", "experiment.toml"], "mu2mpi examples experiment.toml --output ."),
        (["job", "jobs/tables.toml"], "mu2mpi examples tables.toml"),
    ],
)
def test_where_one_is_not_there_the_message_says_what_writes_it(words, way, capsys):
    assert cli.main(words) == 2
    there_is_no = re.escape(f"there is no {words[-1]}, but mu2mpi comes with it: `{way}` writes it\n")
    assert re.search(there_is_no, capsys.readouterr().err)


def test_of_any_other_file_it_says_nothing(capsys):
    assert cli.main(["sweep", "jobs/mine.toml"]) == 2
    assert capsys.readouterr().err == "mu2mpi: error: cannot read jobs/mine.toml: No such file or directory\n"
