"""Many runs as one labelled dataset, against the files, the table and SciPy."""

import csv
import io
import math

import numpy as np
import pytest
from made_up import comparison_run, rate_run, rate_runs
from scipy import stats

import mu2mpi
from mu2mpi.analysis import arrays
from mu2mpi.analysis.runs import Runs
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.execution.job import run


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder)


@pytest.fixture(scope="module")
def ragged(tmp_path_factory):
    """Return runs whose rounds follow from the machines and rho from epsilon, one combination missing."""
    folder = tmp_path_factory.mktemp("ragged")
    for k, (machines, epsilon, seed) in enumerate(
        [(20, 1.0, 4), (40, 1.0, 4), (40, 2.0, None), (40, 2.0, None)]
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
            mean, deviation, seeds = (
                statistics[f"final_{name}"].sel(**place, statistic=of).item()
                for of in ("mean", "deviation", "seeds")
            )
            assert seeds == int(line["seeds"])
            assert mean == pytest.approx(float(line[f"{name}_mean"]), rel=1e-14)
            assert deviation == pytest.approx(float(line[f"{name}_sd"]), rel=1e-9)
    mean, deviation = statistics.final_test_loss.sel(server="trusted", rho=4, machines=10)[:2].values
    assert f"{mean:.4f} ± {deviation:.4f}" in runs.table()


def test_every_number_of_every_file_is_in_its_place(runs, ragged):
    for members in (runs, ragged):
        data = members.to_xarray()
        axes = [name for name in data.final_test_loss.dims if name != "seed"]
        counted = 0
        for result, summary in zip(members, members.summaries, strict=True):
            place = {name: getattr(result.experiment, name) for name in axes}
            # A run without a seed is found by its loss.
            of_seeds = data.sel(place)
            (at,) = np.flatnonzero(of_seeds.final_test_loss == summary.test_loss)
            one = of_seeds.isel(seed=at)
            if result.experiment.seed is not None:
                assert one.seed == result.experiment.seed
            for name in ("test_loss", "test_accuracy", "rho_spent", "elapsed_seconds"):
                there = one[name].sel(round=result.history.round)
                np.testing.assert_array_equal(there, getattr(result.history, name))
            np.testing.assert_array_equal(
                np.isfinite(one.test_loss), np.isin(data["round"], result.history.round)
            )
            assert one.auc == result.metrics["auc"]
            assert one.epsilon_exact == result.privacy.epsilon_exact
            assert one.compute_seconds == pytest.approx(result.timing["compute"].mean())
            counted += len(result.history)
        assert data.test_loss.count() == counted
        assert data.final_test_loss.count() == len(members)


def test_what_follows_lies_along_what_it_follows_from(ragged):
    data = ragged.to_xarray()
    assert data.final_test_loss.dims == ("machines", "epsilon", "seed")
    assert data.seed.values.tolist() == [4, 5, 6]
    assert data.rounds.dims == ("machines",)
    assert data.rounds.sel(machines=20) == ragged[0].experiment.rounds
    assert data.rho.dims == ("epsilon",)
    assert data.rho.sel(epsilon=2) == ragged[2].experiment.rho
    assert np.isnan(data.final_test_loss.sel(machines=20, epsilon=2)).all()
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
    alone = ragged.over_seeds(confidence).final_test_loss.sel(machines=20, epsilon=1)
    assert np.isnan(alone).values.tolist() == [False, True, True, True, False]
    with pytest.raises(InputError, match="between 0 and 1"):
        ragged.over_seeds(95)


def test_data_sets_are_branches_of_a_tree():
    known, drawn = (
        rate_runs(seeds=2),
        [comparison_run(size, seed) for size in (1000, 4000) for seed in (1, 2)],
    )
    both = Runs([*known, *drawn])
    for make in (Runs.to_xarray, Runs.over_seeds):
        tree = make(both, history=False)
        assert set(tree.children) == {"population", "synthetic"}
        assert tree["population"].to_dataset().identical(make(Runs(known), history=False))
        assert tree["synthetic"].to_dataset().identical(make(Runs(drawn), history=False))
    assert tree["synthetic"].final_test_loss.dims == ("samples", "statistic")


def test_a_run_that_is_there_twice_counts_once(runs):
    with pytest.warns(UserWarning, match="repeats the run") as caught:
        twice = (runs + mu2mpi.load([run.path for run in runs[:2]])).to_xarray()
    assert len(caught) == 2
    assert caught[0].filename == __file__
    assert twice.identical(runs.to_xarray())
    with pytest.raises(InputError, match="no results"):
        runs[:0].to_xarray()


def test_settings_that_are_unset_or_names_are_coordinates_as_well():
    settings = [(None, None), (1.0, None), (2.0, "uniform:2")]
    made = [rate_run(k, 1, clip_norm=norm, participation=kind) for k, (norm, kind) in enumerate(settings)]
    data = Runs(made).to_xarray(history=False)
    assert data.participation.values.tolist() == ["unset", "uniform:2"]
    np.testing.assert_array_equal(data.clip_norm, [math.nan, 1.0, 2.0])
    assert data.excess_loss.isel(clip_norm=0).sel(participation="unset").item() == 0
    assert data.excess_loss.sel(clip_norm=2, participation="uniform:2").item() == 2
    assert data.excess_loss.count() == 3


def test_what_would_not_fit_is_refused(monkeypatch):
    made = [rate_run(0.1, k, rho=1.0 + k, diameter=1.0 + k % 7, machines=1 + k % 5) for k in range(35)]
    monkeypatch.setattr(arrays, "MAX_CELLS", 35**2 * 7 * 5 - 1)
    with pytest.raises(InputError, match=r"rho.*42,875 numbers"):
        Runs(made).to_xarray(history=False)
    monkeypatch.setattr(arrays, "MAX_CELLS", 35**2 * 7 * 5)
    assert Runs(made).to_xarray(history=False).excess_loss.count() == 35
