"""The two lines with which an analysis begins."""

import subprocess
import sys

import numpy as np
import pytest

import mu2mpi
from mu2mpi.analysis.extra import needed
from mu2mpi.errors import InputError
from mu2mpi.results.reader import read_result


def test_one_run_has_names_units_and_arrays(folder):
    runs = mu2mpi.load(folder)
    assert len(runs) == 24
    (run,) = runs.where(server="trusted", rho=4, machines=10, seed=1)
    result = read_result(run.path)
    assert run.experiment == result.experiment
    np.testing.assert_array_equal(run.x, result.x)
    assert (run.privacy, run.theory, run.diagnostics) == (result.privacy, result.theory, result.diagnostics)
    assert run.history.test_loss.attrs["units"] == "nat"
    assert run.history.test_loss.sel(round=60) == result.history.test_loss[-1]
    assert run.history.to_dataframe().index.name == "round"
    np.testing.assert_array_equal(run.timing.noise, result.timing["noise"])
    assert "accuracy" in repr(run)


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
    assert [run.path for run in runs] == [run.path for run in runs[:]]
    assert len(runs[1:3]) == 2
    assert repr(runs) == "<4 runs>"
    with pytest.raises(InputError, match=r"'roh'.*rho"):
        runs.where(roh=4)


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
