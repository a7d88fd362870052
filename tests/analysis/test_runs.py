"""Results as a sequence, a data frame and labelled arrays, against the files, the table and SciPy."""

import csv
import io
import subprocess
import sys

import numpy as np
import pytest
from helpers.summaries import comparison_run, rate_run, rate_runs
from scipy import stats

import mu2mpi
from mu2mpi.analysis import arrays
from mu2mpi.analysis.runs import Runs
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder)


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Return runs whose rounds follow from the machines and rho from epsilon, one combination missing."""
    folder = tmp_path_factory.mktemp("ragged")
    # Not in the order of their settings.
    for k, (machines, epsilon, seed) in enumerate(
        [(40, 2.0, None), (40, 2.0, None), (40, 1.0, 4), (9, 1.0, 4)]
    ):
        settings = {"data": "digits", "machines": machines, "epsilon": epsilon, "evaluations": 5}
        run(Experiment(**settings, seed=seed), output=folder / f"{k}.h5")
    return mu2mpi.load(folder)


def test_the_table_follows_to_the_digit(runs):
    statistics = runs.over_seeds(history=False)
    lines = list(csv.DictReader(io.StringIO(runs.table(format="csv"))))
    assert len(lines) == 8
    for line in lines:
        place = {"server": line["server"], "rho": float(line["rho"]), "machines": int(line["machines"])}
        for name in ("test_loss", "test_accuracy"):
            found = statistics[f"final_{name}"].sel(**place)
            assert found.sel(statistic="seeds") == int(line["seeds"])
            assert found.sel(statistic="mean") == pytest.approx(float(line[f"{name}_mean"]), rel=1e-14)
            assert found.sel(statistic="deviation") == pytest.approx(float(line[f"{name}_sd"]), rel=1e-9)


def test_every_number_of_every_file_is_in_its_place(runs, ragged):
    for members in (runs, ragged):
        data = members.to_xarray()
        axes = [name for name in data.final_test_loss.dims if name != "seed"]
        for result, summary in zip(members, members.summaries, strict=True):
            of_seeds = data.sel({name: getattr(result.experiment, name) for name in axes})
            # A run without a seed is found by its loss.
            (at,) = np.flatnonzero(of_seeds.final_test_loss == summary.test_loss)
            one = of_seeds.isel(seed=at)
            assert result.experiment.seed in (None, one.seed)
            for name in ("test_loss", "test_accuracy", "rho_spent", "elapsed_seconds"):
                there = one[name].sel(round=result.history.round)
                np.testing.assert_array_equal(there, getattr(result.history, name))
            measured = np.isin(data["round"], result.history.round)
            np.testing.assert_array_equal(np.isfinite(one.test_loss), measured)
            assert one.auc == result.metrics["auc"]
            assert one.epsilon_exact == result.privacy.epsilon_exact
            assert one.compute_seconds == pytest.approx(result.timing["compute"].mean())
            for name in ("rounds", "rho"):
                if name in data.coords and name not in axes:
                    assert one[name] == getattr(result.experiment, name)
        assert data.test_loss.count() == sum(len(result.history) for result in members)
        assert data.final_test_loss.count() == len(members)


def test_what_follows_lies_along_what_it_follows_from(ragged):
    data = ragged.to_xarray()
    assert data.final_test_loss.dims == ("machines", "epsilon", "seed")
    assert data.seed.values.tolist() == [4, 5, 6]
    assert (data.rounds.dims, data.rho.dims) == (("machines",), ("epsilon",))
    assert np.isnan(data.final_test_loss.sel(machines=9, epsilon=2)).all()
    assert data.attrs["data"] == "digits"
    assert not {"seed", "machines", "epsilon", "rho", "evaluations"} & data.attrs.keys()


def test_arrays_have_names_and_units_and_fit_a_file(runs, tmp_path):
    import xarray

    for data in (runs.to_xarray(), runs.over_seeds()):
        for name, variable in data.variables.items():
            assert variable.attrs["long_name"]
            assert (variable.attrs["units"] == "s") == str(name).endswith("_seconds")
        assert data.test_loss.attrs["units"] == data.excess_loss.attrs["units"] == "nat"
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
            xarray.testing.assert_identical(back.load(), data)
    assert not [name for name in data if "clipped" in name or "increment" in name]


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_intervals_are_those_of_student(runs, ragged, confidence):
    found = runs.over_seeds(confidence).test_loss.sel(server="trusted", rho=16, machines=2)
    losses = [r.history.test_loss[1:] for r in runs.select(server="trusted", rho=16, machines=2)]
    low, high = stats.t.interval(confidence, 2, np.mean(losses, axis=0), stats.sem(losses))
    # At the first round all are at the same point, of which SciPy makes NaN.
    assert len({*found[0].sel(statistic=["mean", "low", "high"]).values.tolist()}) == 1
    np.testing.assert_allclose(found[1:].sel(statistic="low"), low, rtol=1e-12)
    np.testing.assert_allclose(found[1:].sel(statistic="high"), high, rtol=1e-12)
    alone = ragged.over_seeds(confidence).final_test_loss.sel(machines=9, epsilon=1)
    assert np.isnan(alone).values.tolist() == [False, True, True, True, False]
    with pytest.raises(InputError):
        ragged.over_seeds(95)


def test_data_sets_are_branches_of_a_tree():
    known = rate_runs(seeds=2)
    drawn = [comparison_run(size, seed) for size in (1000, 4000) for seed in (1, 2)]
    for make in (Runs.to_xarray, Runs.over_seeds):
        tree = make(Runs([*known, *drawn]), history=False)
        for name, members in (("population", known), ("synthetic", drawn)):
            assert tree[name].to_dataset().identical(make(Runs(members), history=False))


def test_a_run_that_is_there_twice_counts_once(runs):
    with pytest.warns(UserWarning, match="repeats") as caught:
        twice = (runs + mu2mpi.load([run.path for run in runs[:2]])).to_xarray(history=False)
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert twice.identical(runs.to_xarray(history=False))
    with pytest.raises(InputError):
        runs[:0].to_xarray()


def test_what_would_not_fit_is_refused(monkeypatch):
    made = [rate_run(0.1, k, rho=1.0 + k, diameter=1.0 + k % 7) for k in range(14)]
    monkeypatch.setattr(arrays, "MAX_CELLS", 14**2 * 7)
    assert Runs(made).to_xarray(history=False).excess_loss.count() == 14
    monkeypatch.setattr(arrays, "MAX_CELLS", 14**2 * 7 - 1)
    with pytest.raises(InputError):
        Runs(made).to_xarray(history=False)


def test_one_run_has_names_units_and_arrays(runs):
    (run,) = runs.select(server="trusted", rho=4, machines=10, seed=1)
    data = run.to_xarray()
    assert data.test_loss.sel(round=60) == run.history.test_loss[-1]
    np.testing.assert_array_equal(data.noise_seconds, run.timing["noise"])
    np.testing.assert_array_equal(data.x.sel(row="3")[:-1], run.x[3, :-1])
    assert data.confusion.sel({"class": "2"}).sum() == run.confusion[2].sum()
    assert not [name for name in data if "clipped" in name or "count" in name]
    assert all(variable.attrs["long_name"] for variable in data.variables.values())


def test_a_result_is_the_same_from_a_run_and_from_its_file(tmp_path):
    settings = {"data": "digits", "server": "trusted", "machines": 2, "rounds": 5, "seed": 1}
    # A method is selected by its name however it was chosen.
    experiment = Experiment(**settings, estimator="gradient", query="iterate")
    made = mu2mpi.run(experiment, output=tmp_path / "a.h5")
    (found,) = mu2mpi.load(tmp_path).select(method="parallel-sgd", partition="iid")
    assert type(found) is type(made) is mu2mpi.Result
    assert found.path == made.path == tmp_path / "a.h5"
    assert found.to_xarray().identical(made.to_xarray())
    assert mu2mpi.run(experiment).path is None


def test_all_runs_are_one_tidy_frame(runs):
    frame = runs.to_dataframe()
    run = frame.query("server == 'untrusted' and rho == 16 and machines == 2 and seed == 3").iloc[0]
    result = read_result(run.file)
    assert run.test_loss == result.history.test_loss[-1]
    assert run.test_accuracy == result.history.test_accuracy[-1]
    assert run.epsilon_exact == result.privacy.epsilon_exact
    assert run.excess_loss == result.theory.excess_loss
    assert frame.groupby(["server", "rho", "machines"]).size().tolist() == [3] * 8
    # Nothing that the guarantee does not cover but times.
    assert not [name for name in frame if "clipped" in name or "increment" in name]
    assert frame.seed.dtype == "Int64"
    assert frame.created.dt.tz is not None
    none = runs[:0].to_dataframe()
    assert set(none) <= set(frame)
    assert none.groupby(["server", "rho"]).test_loss.mean().empty


def test_what_cannot_be_used_is_named_and_skipped(folder, tmp_path):
    content = next(folder.glob("*.h5")).read_bytes()
    (tmp_path / "good.h5").write_bytes(content)
    (tmp_path / "half.h5").write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"half\.h5") as caught:
        assert len(mu2mpi.load(tmp_path)) == 1
    assert caught[0].filename == __file__
    with pytest.raises(InputError):
        mu2mpi.load(tmp_path, strict=True)


def test_loading_imports_neither_the_simulation_nor_the_extra(folder):
    script = (
        "import sys, mu2mpi\n"
        f"mu2mpi.load({str(folder)!r})[0].x\n"
        "print([m for m in ('numba', 'mpi4py', 'pandas', 'xarray', 'matplotlib') if m in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "[]\n"
