"""The page that shows an analysis does what it shows."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run

PROJECT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_analysis_page_runs_from_its_first_line_to_its_last(folder):
    script = PROJECT / "docs" / "guides" / "analysis.py"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "<24 runs>" in done.stdout
    made = {path.name for path in (folder / "figures").iterdir()}
    assert made == {
        "history.png", "tradeoff.png", "weights.png", "noise.png", "timing.png",
        "history-samples.pdf", "tradeoff-machines.svg", "band.png",
    }  # fmt: skip


@pytest.mark.slow
def test_the_analysis_page_runs_on_runs_of_which_the_theorem_says_nothing(tmp_path):
    for seed in (1, 2):
        clipped = Experiment(data="digits", machines=2, rounds=20, clip_norm=1.0, seed=seed)
        assert math.isnan(run(clipped, output=tmp_path / f"{seed}.h5").theory.excess_loss_bound)
    script = PROJECT / "docs" / "guides" / "analysis.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_page_on_tables_makes_a_private_model(tmp_path):
    script = PROJECT / "docs" / "start" / "tables.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *_, (intercept, *_), predicted, privacy = (line.split() for line in done.stdout.splitlines())
    assert intercept == "(intercept)"
    assert len(predicted) == 5
    assert privacy[:2] == ["epsilon", "="]
    assert 1.9 < float(privacy[2]) <= 2
    assert sum(" +- " in line for line in done.stdout.splitlines()) == 5


def test_every_path_and_attribute_of_a_file_is_documented(folder):
    import h5py

    text = (PROJECT / "docs" / "reference" / "result-file.md").read_text()
    names = set()
    with h5py.File(next(folder.glob("*.h5"))) as file:
        file.visititems(lambda name, thing: names.update([name.split("/")[-1], *thing.attrs]))
        names.update(name for name in file.attrs if not name.endswith("_version"))
    known = {"CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "_Netcdf4Dimid"}
    assert [
        name for name in sorted(names - known) if f"`{name}`" not in text and f"/{name}`" not in text
    ] == []
