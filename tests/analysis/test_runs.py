"""The two lines with which an analysis begins."""

import subprocess
import sys

import numpy as np
import pytest

import mu2mpi
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.extra import needed
from mu2mpi.results.reader import read_result


def test_one_run_has_names_units_and_arrays(folder):
    runs = mu2mpi.load(folder)
    assert len(runs) == 24
    (run,) = runs.select(server="trusted", rho=4, machines=10, seed=1)
    data = run.to_xarray()
    assert data.test_loss.attrs["units"] == "nat"
    assert data.test_loss.sel(round=60) == run.history.test_loss[-1]
    assert data[["test_loss"]].to_dataframe().index.name == "round"
    np.testing.assert_array_equal(data.noise_seconds, run.timing["noise"])
    np.testing.assert_array_equal(data.x.sel(row="3")[:-1], run.x[3, :-1])
    assert data.confusion.sel({"class": "2"}).sum() == run.confusion[2].sum()
    assert data.confusion.sum() == 360
    assert data.attrs["machines"] == 10
    assert not [name for name in data if "clipped" in name or "count" in name]
    for variable in data.variables.values():
        assert variable.attrs["long_name"]
        assert variable.attrs["units"]
    assert "accuracy" in repr(run)


def test_a_result_is_the_same_from_a_run_and_from_its_file(tmp_path):
    """One class, with the same arrays under the same names; and it knows its file."""
    experiment = Experiment(data="digits", server="trusted", machines=2, rounds=20)
    made = mu2mpi.run(experiment, output=tmp_path / "a.h5")
    (found,) = mu2mpi.load(tmp_path)
    assert type(found) is type(made) is mu2mpi.Result
    assert found.path == made.path == tmp_path / "a.h5"
    assert found.to_xarray().identical(made.to_xarray())
    assert mu2mpi.run(experiment).path is None


def test_all_runs_are_one_tidy_frame(folder):
    frame = mu2mpi.load(str(folder)).to_dataframe()
    assert len(frame) == 24
    run = frame.query("server == 'untrusted' and rho == 16 and machines == 2 and seed == 3").iloc[0]
    result = read_result(run.file)
    assert run.test_loss == result.history.test_loss[-1]
    assert run.test_accuracy == result.history.test_accuracy[-1]
    assert run.epsilon_exact == result.privacy.epsilon_exact
    assert run.excess_loss == result.theory.excess_loss
    assert run.compute_seconds == pytest.approx(result.timing["compute"].mean())
    assert frame.groupby(["server", "rho", "machines"]).size().tolist() == [3] * 8
    # Nothing that the guarantee does not cover but times.
    assert not [name for name in frame if "clipped" in name or "increment" in name]
    assert frame.seed.dtype == "Int64"
    assert frame.created.dt.tz is not None


def test_runs_are_a_sequence(folder):
    runs = mu2mpi.load([folder / path.name for path in sorted(folder.glob("*.h5"))[:4]])
    paths = [run.path for run in runs]
    assert paths == [run.path for run in runs.summaries] == [runs[k].path for k in range(-4, 0)]
    assert [run.path for run in runs[1:3] + runs[:1]] == [*paths[1:3], paths[0]]
    assert repr(runs) == "<4 runs>"
    with pytest.raises(InputError, match=r"'roh'.*rho"):
        runs.select(roh=4)
    with pytest.raises(InputError, match=r"no run has rho = 5; rho is 4, 16"):
        mu2mpi.load(folder).select(server="trusted", rho=5)


def test_a_method_is_selected_by_its_name_however_it_was_chosen(tmp_path):
    settings = {"data": "digits", "machines": 2, "rounds": 5, "seed": 1}
    run(Experiment(**settings, estimator="gradient", query="iterate"), output=tmp_path / "a.h5")
    (found,) = mu2mpi.load(tmp_path).select(method="parallel-sgd", partition="iid")
    assert found.experiment.estimator == "gradient"


def test_no_runs_are_an_empty_frame_with_the_same_columns(folder):
    none, some = mu2mpi.load(folder)[:0].to_dataframe(), mu2mpi.load(folder).to_dataframe()
    assert len(none) == 0
    assert set(none) <= set(some)
    assert none.groupby(["server", "rho"]).test_loss.mean().empty


def test_what_cannot_be_used_is_named_and_skipped(folder, tmp_path):
    content = next(folder.glob("*.h5")).read_bytes()
    (tmp_path / "good.h5").write_bytes(content)
    (tmp_path / "half.h5").write_bytes(content[: len(content) // 2])
    (tmp_path / "foreign.h5").write_text("hello")
    with pytest.warns(UserWarning, match="skipped") as caught:
        assert len(mu2mpi.load(tmp_path)) == 1
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert str(tmp_path / "foreign.h5") in messages[0]
    assert str(tmp_path / "half.h5") in messages[1]
    assert caught[0].filename == __file__
    with pytest.raises(InputError, match=r"half\.h5"):
        mu2mpi.load(tmp_path, strict=True)
    with pytest.raises(InputError, match="no results"), pytest.warns(UserWarning, match="skipped"):
        mu2mpi.load(tmp_path / "half.h5")


def test_without_the_extra_the_way_out_is_named():
    with pytest.raises(InputError, match=r'nowhere_found; .*pip install "mu2mpi\[analysis\]"'):
        needed("nowhere_found.deep")


def test_loading_imports_neither_the_simulation_nor_the_extra(folder):
    script = (
        "import sys, mu2mpi\n"
        f"mu2mpi.load({str(folder)!r})[0].x\n"
        "print([m for m in ('numba', 'mpi4py', 'pandas', 'xarray', 'matplotlib') if m in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "[]\n"
