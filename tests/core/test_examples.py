"""Example files of the package, and the command that writes them."""

import json
import re
from pathlib import Path

import pytest
from blocks import Block, Session

from mu2mpi import cli
from mu2mpi.core.toml import example_texts, read_toml

JOBS = Path(__file__).parents[2] / "jobs"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_examples_are_the_files_in_jobs_and_are_listed_with_their_purpose(capsys, folder):
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


@pytest.mark.slow
def test_the_notebook_runs_cell_by_cell_and_is_stored_without_outputs(folder):
    assert cli.main(["examples", "notebook.ipynb"]) == 0
    cells = json.loads(Path("jobs/notebook.ipynb").read_text())["cells"]
    assert {len(cell["outputs"]) for cell in cells if cell["cell_type"] == "code"} == {0}
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    with Session(folder) as session:
        printed = [session.run(Block("python", text, 1)) for text in codes]
    assert printed[0] == "<16 runs>\n"
    assert "trusted" in printed[2]
    assert 0.8 < float(re.search(r"0\.\d+", printed[4])[0]) <= 1
    assert len(list((folder / "runs" / "notebook").glob("*.h5"))) == 16


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["jobs/tables.toml"], ["jobs/tables.toml"]),
        (["tables", "quickstart"], ["jobs/quickstart.toml", "jobs/tables.sbatch", "jobs/tables.toml"]),
        (["run.sbatch", "-o", "mine/here"], ["mine/here/run.sbatch"]),
        (["tablse"], []),
    ],
)
def test_named_examples_are_written(words, files, folder):
    assert cli.main(["examples", *words]) == (0 if files else 2)
    written = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert sorted(written) == files


def test_a_modified_file_is_kept_without_overwrite():
    Path("jobs").mkdir()
    own = Path("jobs/tables.toml")
    own.write_text("rho = 1\n")
    assert cli.main(["examples", "quickstart", "tables"]) == 2
    assert (own.read_text(), list(Path("jobs").iterdir())) == ("rho = 1\n", [own])
    assert cli.main(["examples", "tables", "--overwrite"]) == 0
    assert own.read_text() == example_texts()["tables.toml"]
    # Identical files are not a conflict.
    assert cli.main(["examples", "tables"]) == 0


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["sweep", "my jobs/trust.toml"], "mu2mpi examples trust.toml --output 'my jobs'"),
        (["run", "--config", "experiment.toml"], "mu2mpi examples experiment.toml --output ."),
        (["job", "jobs/tables.toml"], "mu2mpi examples tables.toml"),
        (["sweep", "jobs/mine.toml"], None),
    ],
)
def test_message_about_a_missing_example_names_the_command_that_writes_it(words, command, capsys):
    assert cli.main(words) == 2
    err = capsys.readouterr().err
    assert f"`{command}`" in err if command else "mu2mpi examples" not in err
