"""Labelled arrays of many runs: every number in its place, with names, units and intervals."""

import numpy as np
import pytest
from helpers.summaries import comparison_run, rate_run, rate_runs
from scipy import stats

import mu2mpi
from mu2mpi.analysis import datasets
from mu2mpi.analysis.runs import Runs
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.job import run


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
            unit = variable.attrs.get("units")
            assert (unit == "s") == str(name).endswith("_seconds")
            assert unit in (None, "s", "nat")
        assert data.test_loss.attrs["units"] == data.excess_loss.attrs["units"] == "nat"
        data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
        with xarray.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
            xarray.testing.assert_identical(back.load(), data)
    assert not [name for name in data if "clipped" in name or "increment" in name]


def test_methods_are_chosen_by_a_dimension_that_sel_does_not_take_for_its_own(tmp_path):
    settings = {"data": "digits", "machines": 2, "rounds": 4, "evaluations": 2, "seed": 1}
    for method in ("dp-gd", "mu2-sgd"):
        run(Experiment(**settings, method=method, server="trusted"), output=tmp_path / f"{method}.h5")
    runs = mu2mpi.load(tmp_path)
    for accuracy in (runs.to_xarray().final_test_accuracy, runs.over_seeds().final_test_accuracy):
        assert accuracy.sel(algorithm="dp-gd").dims == accuracy.dims[1:]
    plot = accuracy.sel(statistic="mean").plot()
    assert plot[0].axes.get_ylabel() == accuracy.attrs["long_name"]


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


def test_several_data_sets_are_refused():
    runs = Runs([*rate_runs(seeds=1), comparison_run(1000, 1)])
    with pytest.raises(InputError, match=r"population, synthetic .* --where data="):
        runs.to_xarray(history=False)


def test_what_would_not_fit_is_refused(monkeypatch):
    made = [rate_run(0.1, k, rho=1.0 + k, diameter=1.0 + k % 7) for k in range(14)]
    monkeypatch.setattr(datasets, "MAX_XARRAY_ELEMENTS", 14**2 * 7)
    assert Runs(made).to_xarray(history=False).excess_loss.count() == 14
    monkeypatch.setattr(datasets, "MAX_XARRAY_ELEMENTS", 14**2 * 7 - 1)
    with pytest.raises(InputError):
        Runs(made).to_xarray(history=False)
