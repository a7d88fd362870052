"""The examples that come with the package, and how they get to where a user works."""

from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.core.toml import example_texts, read_toml

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_they_are_the_files_of_the_project_and_the_list_says_what_each_is_for(capsys, folder):
    assert example_texts() == {path.name: path.read_text() for path in sorted(JOBS.iterdir())}
    assert cli.main(["examples"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines.keys() == example_texts().keys()
    assert lines["quickstart.toml"].startswith(
        "A small version of the paper's tables on scikit-learn's digits"
    )
    assert all(20 < len(text) < 130 and text[-1] != "." for text in lines.values())
    assert list(folder.iterdir()) == []


def test_all_are_written_into_jobs(capsys):
    assert cli.main(["examples", "--all"]) == 0
    written = capsys.readouterr().out.split()
    assert written == [f"jobs/{name}" for name in example_texts()]
    for path in map(Path, written):
        assert path.read_text() == example_texts()[path.name]
        assert path.suffix != ".toml" or "data" in str(read_toml(path))


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["jobs/tables.toml"], ["jobs/tables.toml"]),
        (["tables", "quickstart"], ["jobs/quickstart.toml", "jobs/tables.sbatch", "jobs/tables.toml"]),
        (["run.sbatch", "-o", "mine/here"], ["mine/here/run.sbatch"]),
        (["tablse"], []),
    ],
)
def test_those_that_are_named_are_written(words, files, folder):
    assert cli.main(["examples", *words]) == (0 if files else 2)
    there = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(there) == files


def test_a_file_of_the_user_is_kept():
    Path("jobs").mkdir()
    mine = Path("jobs/tables.toml")
    mine.write_text("rho = 1\n")
    assert cli.main(["examples", "quickstart", "tables"]) == 2
    assert (mine.read_text(), list(Path("jobs").iterdir())) == ("rho = 1\n", [mine])
    assert cli.main(["examples", "tables", "--overwrite"]) == 0
    assert mine.read_text() == example_texts()["tables.toml"]
    # What is the same already is no conflict.
    assert cli.main(["examples", "tables"]) == 0


@pytest.mark.parametrize(
    ("words", "way"),
    [
        (["sweep", "my jobs/trust.toml"], "mu2mpi examples trust.toml --output 'my jobs'"),
        (["run", "--config", "experiment.toml"], "mu2mpi examples experiment.toml --output ."),
        (["job", "jobs/tables.toml"], "mu2mpi examples tables.toml"),
        (["sweep", "jobs/mine.toml"], None),
    ],
)
def test_where_one_is_not_there_the_message_says_what_writes_it(words, way, capsys):
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert f"`{way}`" in err if way else "mu2mpi examples" not in err
