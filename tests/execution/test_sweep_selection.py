"""Selections in a sweep: only the best is written, with the total guarantee, and nothing of other runs."""

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from uuid import UUID

import h5py
import numpy as np
import pytest

from mu2mpi import cli
from mu2mpi.analysis.privacy_reports import GroupSize, check_privacy_claims, claim_contradictions
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.execution import sweep_selection as module
from mu2mpi.execution.sweep_selection import run_selection
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.accounting.selection import Selection
from mu2mpi.results.reader import read_result, read_summary

GRID = {
    "data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": [4, 8], "server": "trusted",
    "diameter": [0.5, 2.0], "epsilon": 4.0,
}  # fmt: skip
SELECTION = Selection(select="test_loss", select_runs=5.0)


def contents(path):
    """Return the names of all attributes and data sets of a result file."""
    names = set()
    with h5py.File(path) as file:
        names |= {f"@{name}" for name in file.attrs}
        file.visititems(lambda name, item: names.update([name, *(f"{name}@{key}" for key in item.attrs)]))
    return names


@pytest.fixture
def runs(monkeypatch):
    """Return the results of all runs of selections, five each."""
    found, simulation = [], module.Simulation
    monkeypatch.setattr(Selection, "draw_run_count", lambda self: 5)

    class Watched(simulation):
        def run(self, *arguments):
            found.append(super().run(*arguments))
            return found[-1]

    monkeypatch.setattr(module, "Simulation", Watched)
    return found


@pytest.mark.parametrize(("metric", "best"), [("test_loss", min), ("test_accuracy", max), ("auc", max)])
def test_the_best_of_the_runs_is_written_alone(tmp_path, runs, capfd, metric, best):
    path = tmp_path / "runs" / "selected.h5"
    run_selection(Sweep(GRID), replace(SELECTION, select=metric), path)
    assert len(runs) == 5
    assert len({run.environment["run_id"] for run in runs}) == 5
    values = [run.metrics.get(metric, getattr(run.history, metric, [None])[-1]) for run in runs]
    chosen = runs[values.index(best(values))]
    result = read_result(path)
    np.testing.assert_array_equal(result.x, chosen.x)
    assert len({run.x.tobytes() for run in runs}) == 5  # each with noise of its own
    assert list(tmp_path.rglob("*.h5*")) == [path]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    # Neither output nor file differs with the number of runs.
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"the selected result is {path}\n")


def test_the_file_has_the_total_guarantee_and_nothing_of_other_runs(tmp_path, runs):
    path, plain = tmp_path / "selected.h5", tmp_path / "plain.h5"
    run_selection(Sweep(GRID), SELECTION, path)
    result = read_result(path)
    privacy = result.privacy
    assert 0.99 * 4 <= privacy.epsilon_exact <= 4 == result.experiment.epsilon
    assert read_summary(path).measurements["epsilon_exact"] == privacy.epsilon_exact
    assert math.isnan(read_summary(path).measurements["epsilon_paper"])
    # The noise of the run is that of a smaller epsilon.
    assert epsilon_exact(privacy.mechanism.guarantee().rho, 1e-5) < 2.5
    assert privacy.rho is None
    assert np.isnan(result.history.rho_spent).all()
    assert np.isnan(result.history.elapsed_seconds).all()
    assert claim_contradictions(result) == []
    words = [f"--{name}={value}" for name, value in {**GRID, "rounds": 4, "diameter": 2}.items()]
    assert cli.main(["run", *words, "--output", str(plain)]) == 0
    extra = {f"privacy@{name}" for name in vars(SELECTION) if name.startswith("select")}
    assert contents(path) - contents(plain) == extra
    missing = {name.split("/")[0].split("@")[0] for name in contents(plain) - contents(path)}
    assert missing == {"diagnostics", "timing", "cost"}
    with h5py.File(path) as file:
        assert file["privacy"].attrs["select_runs"] == 5.0


def test_results_do_not_depend_on_the_number_of_runs(tmp_path, monkeypatch):
    """Files after 1 and after 20 runs of a grid of one setting differ in the noise alone."""
    grid, sizes, texts = {**GRID, "rounds": 4, "diameter": 2.0}, [], []
    for count in (1, 20):
        monkeypatch.setattr(Selection, "draw_run_count", lambda self, count=count: count)
        path = tmp_path / f"{count}.h5"
        run_selection(Sweep(grid), SELECTION, path)
        with h5py.File(path) as file:
            attributes = {name: dict(file[name].attrs) for name in ("/", "privacy")}
        # Of the id nothing but its version is fixed.
        run_id = attributes["/"].pop("run_id").decode()
        assert UUID(run_id) == UUID(run_id, version=4)
        for name in ("created", "history"):
            attributes["/"].pop(name)
        texts.append(repr(attributes))
        sizes.append(contents(path))
    assert texts[0] == texts[1]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    "changes",
    [{"epsilon_exact": 1.0}, {"select_runs": 2.0},
     {"sigma": 1e4}, {"rho": 1e-3}],
)  # fmt: skip
def test_edited_claims_are_found(tmp_path, changes):
    path = tmp_path / "selected.h5"
    run_selection(Sweep(GRID), SELECTION, path)
    with h5py.File(path, "r+") as file:
        for name, value in changes.items():
            file["privacy"].attrs[name] = value
    assert claim_contradictions(read_result(path))
    with h5py.File(path, "r+") as file:
        file["privacy"].attrs["select_runs"] = -1.0
    with pytest.raises(InputError, match="select_runs"):
        read_result(path)


def test_reports_state_the_total_and_what_is_not_protected(tmp_path, capsys):
    path = tmp_path / "selected.h5"
    run_selection(Sweep(GRID), SELECTION, path)
    assert cli.main(["show", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Whoever sees the selected result alone, and nothing else of any run, learns at most" in shown
    assert "(epsilon, delta)-DP: epsilon = 3.97" in shown
    assert "by Renyi DP, for the best of a random number of runs, 5 on average." in shown
    assert "WARNING: The run was selected by test_loss" in shown
    assert "Test samples are not protected." in shown
    assert "rho^2" not in shown
    report, problems = check_privacy_claims([path], GroupSize(2))
    assert problems == []
    assert "Renyi divergence" not in report
    # Two samples of a person: group privacy of the whole selection.
    person = read_result(path).privacy.guarantee.epsilon
    rows = [line for line in report.splitlines() if "none" in line and "1e-05" in line]
    row = next(line for line in rows if "agrees" not in line)
    assert float(row.split()[-1]) >= 2 * person(1e-5)


@pytest.mark.parametrize(
    ("changes", "selection", "message"),
    [
        ({"seed": 1}, {}, "secret random numbers, got seed = 1"),
        ({"seed": [1, 2]}, {}, "one value of seed"),
        ({"epsilon": [1.0, 4.0]}, {}, "one value of epsilon"),
        ({"epsilon": None, "rho": [1.0, 2.0]}, {}, "--epsilon"),
        ({"epsilon": math.inf}, {}, "finite --epsilon"),
        ({"delta": [1e-5, 1e-6]}, {}, "one value of delta"),
        ({"machines": [2, 3]}, {}, "one value of machines"),
        ({"samples": [60, 90]}, {}, "one value of samples"),
        ({"server": ["trusted", "untrusted"]}, {}, "one value of server"),
        ({"server": "untrusted"}, {}, "needs --server trusted"),
        ({"participation": "uniform:1"}, {}, "equal machines"),
        ({"method": ["dp-gd", "dp-sgd"], "diameter": 1.0, "clip_norm": 1.0}, {}, "has none"),
        ({}, {"select": "train_loss"}, "needs a metric of the test set"),
        ({}, {"select": "rmse"}, "needs a metric of the test set"),
        ({}, {"select": "largest_increment_norm"}, "needs a metric of the test set"),
        ({}, {"select_runs": 1.0}, "--select-runs"),
        ({}, {"select_runs": math.nan}, "--select-runs"),
        ({"rounds": [4, 400]}, {}, "grid without refused runs"),
    ],
)
def test_what_has_no_guarantee_is_refused_before_any_run(tmp_path, runs, changes, selection, message):
    grid = {name: value for name, value in {**GRID, **changes}.items() if value is not None}
    with pytest.raises(InputError, match=message):
        run_selection(Sweep(grid), replace(SELECTION, **selection), tmp_path / "selected.h5")
    assert runs == []
    assert [*tmp_path.iterdir()] == []


def test_an_existing_file_is_kept(tmp_path, runs):
    path = tmp_path / "selected.h5"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="exists"):
        run_selection(Sweep(GRID), SELECTION, path)
    assert (runs, path.read_bytes()) == ([], b"mine")
    run_selection(Sweep(GRID), SELECTION, path, overwrite=True)
    assert read_result(path).privacy.selection.select == "test_loss"


def test_nothing_is_left_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Selection, "draw_run_count", lambda self: 5)
    scores = iter([1.0, 2.0])
    monkeypatch.setattr(module, "_score", lambda result, metric: next(scores))
    with pytest.raises((StopIteration, RuntimeError)):
        run_selection(Sweep(GRID), SELECTION, tmp_path / "selected.h5")
    assert [*tmp_path.iterdir()] == []


STARTED = """
import sys
from mu2mpi import cli
from mu2mpi.execution import sweep_selection
from mu2mpi.privacy.accounting.selection import Selection
Selection.draw_run_count = lambda self: 10**6
score, seen = sweep_selection._score, []
def watched(*arguments):
    seen.append(1)
    if len(seen) == 3:
        print("third", flush=True)
    return score(*arguments)
sweep_selection._score = watched
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_killed_selection_leaves_nothing(tmp_path, signum):
    words = [f"{name} = {value!r}" for name, value in GRID.items()]
    (tmp_path / "grid.toml").write_text("\n".join(words))
    command = [sys.executable, "-c", STARTED, "sweep", "grid.toml", "--select", "test_loss"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True, env=os.environ)
    assert process.stdout.readline() == "third\n"
    process.send_signal(signum)
    _, err = process.communicate(timeout=120)
    assert process.returncode == -signum
    assert err in ("mu2mpi: terminated\n", "mu2mpi: interrupted\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["grid.toml"]


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [f"{name} = {value!r}" for name, value in GRID.items() if name not in ("server", "epsilon")]
    (tmp_path / "grid.toml").write_text("\n".join(words))
    start = ["sweep", "grid.toml", "--select", "test_loss", "--epsilon", "4"]
    for refused in ("--seed 1", "--index 0", "--part 0/2", "--log x", "--dry-run", "--select-runs x",
                    "--server untrusted", "--rho 1"):  # fmt: skip
        assert cli.main([*start, *refused.split()]) == 2
    assert cli.main([*start[:4]]) == 2
    assert not (tmp_path / "runs").exists()
    capsys.readouterr()
    assert cli.main([*start, "--select-runs", "2", "--delta", "1e-6", "-o", "chosen"]) == 0
    privacy = read_result(tmp_path / "chosen" / "selected.h5").privacy
    assert (privacy.server, privacy.delta) == ("trusted", 1e-6)
    assert cli.main([*start, "-o", "chosen"]) == 2
