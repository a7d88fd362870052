"""Files about machines: what each may spend, and when each was there."""

import csv
import math

import h5py
import numpy as np
import pytest
from helpers.simulations import simulation_of
from helpers.unequal_machines import owned_source, write_budgets, write_trace

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.machine_files import read_participation_trace, read_privacy_budgets
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact

NAMES = ("clinic", "ü hospital", "10", "9")
STATED = {"clinic": 0.5, "10": 3.0, "ü hospital": 12.25}
BY_NUMBER = {0: ("rho", 0.5), 2: ("rho", 3.0), 1: ("rho", 12.25)}


def write_table(path, columns):
    """Write columns by name to a CSV, npz or HDF5 file."""
    if path.suffix == ".csv":
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.array(column) for name, column in columns.items()})
    else:
        with h5py.File(path, "w") as file:
            for name, column in columns.items():
                file[name] = column
    return path


@pytest.mark.parametrize("suffix", ["csv", "npz", "h5"])
@pytest.mark.parametrize("times", [1, 3])
def test_budgets_are_a_row_a_machine_or_a_row_a_sample(suffix, times, tmp_path):
    columns = {"machine": list(STATED) * times, "rho": list(STATED.values()) * times}
    assert read_privacy_budgets(write_table(tmp_path / f"a.{suffix}", columns), NAMES) == BY_NUMBER


def test_budgets_in_toml_may_mix_rho_and_epsilon(tmp_path):
    path = tmp_path / "a.toml"
    write_budgets(path, rho={"clinic": 2, "10": 0.5}, epsilon={"9": 1.5})
    assert read_privacy_budgets(path, NAMES) == {0: ("rho", 2.0), 2: ("rho", 0.5), 3: ("epsilon", 1.5)}


@pytest.mark.parametrize(
    "text",
    [
        "", "rho = 3", "[rhoo]\na = 1", "[rho]\n[epsilon]\n'clinic' = 'much'", "[rho]\nclinic = true",
        "[rho]\nclinic = 0", "[rho]\nclinic = nan", "[rho]\nclinic = inf", "[rho]\nclinic = {a = 1}",
        "[rho]\nnobody = 1", "[rho]\nclinic = 1\n[epsilon]\nclinic = 1", "[rho\n",
    ],
)  # fmt: skip
def test_bad_budgets_in_toml(text, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"a\.toml"):
        read_privacy_budgets(path, NAMES)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("a.csv", {"machine": ["clinic"], "rho": [1], "epsilon": [1]}),
        ("a.csv", {"who": ["clinic"], "rho": [1]}),
        ("a.csv", {"machine": ["clinic", "clinic"], "rho": [1, 2]}),
        ("a.csv", {"machine": ["nobody"], "rho": [1]}),
        ("a.csv", {"machine": ["clinic"], "rho": ["lots"]}),
        ("a.npz", {"machine": ["clinic"], "rho": [np.nan]}),
        ("a.h5", {"machine": np.array([], "S3"), "rho": np.array([])}),
    ],
)
def test_bad_tables_of_budgets(name, columns, tmp_path):
    path = tmp_path / name
    write_table(path, columns)
    with pytest.raises(InputError, match=name):
        read_privacy_budgets(path, NAMES)


@pytest.mark.parametrize("suffix", ["csv", "npz", "h5"])
def test_a_trace_says_who_was_there_when(suffix, tmp_path):
    columns = {"round": [3, 1, 1, 3], "machine": ["10", "clinic", "9", "10"]}
    expected = np.zeros((3, 4), bool)
    expected[0, [0, 3]] = expected[2, 2] = True
    np.testing.assert_array_equal(
        read_participation_trace(write_table(tmp_path / f"a.{suffix}", columns), NAMES), expected
    )


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("a.csv", {"round": [1], "who": ["clinic"]}),
        ("a.csv", {"round": [0], "machine": ["clinic"]}),
        ("a.npz", {"round": [np.nan], "machine": ["clinic"]}),
        ("a.csv", {"round": [10**9], "machine": ["clinic"]}),
        ("a.csv", {"round": [1, 2], "machine": ["clinic", "nobody"]}),
        ("a.csv", {"round": [], "machine": []}),
    ],
)
def test_bad_traces(name, columns, tmp_path):
    path = tmp_path / name
    write_table(path, columns)
    with pytest.raises(InputError, match=name):
        read_participation_trace(path, NAMES)


@pytest.mark.parametrize("partition", ["owner", "iid"])
def test_each_machine_gets_the_budget_of_its_owner_or_of_its_number(partition, tmp_path):
    names = "abc" if partition == "owner" else "012"
    budgets = write_budgets(tmp_path / "a.toml", rho={names[2]: 0.25}, epsilon={names[0]: 1.0})
    present = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 1]], bool)
    trace = write_trace(tmp_path / "a.csv", present, list(names))
    experiment = Experiment(
        machines=3, partition=partition, budgets=budgets, participation=trace, rounds=4, rho=2.0
    )
    members = simulation_of(experiment, owned_source(2, [6, 8, 4], 3, 2)).constants.problem.per_machine_plan
    accounts = members.accounts(1e-5)
    np.testing.assert_array_equal(accounts.participation, present)
    assert accounts.machine_names == tuple(names)
    assert accounts.machine_owners == (tuple(names) if partition == "owner" else None)
    assert accounts.rho_budget[1:].tolist() == [2.0, 0.25]
    np.testing.assert_allclose(accounts.rho, accounts.rho_budget)
    assert 0.99 < epsilon_exact(accounts.rho[0], 1e-5) <= accounts.epsilon[0] <= 1.0


@pytest.mark.parametrize("kind", ["names", "numbers", "floats"])
@pytest.mark.parametrize("suffix", ["h5", "npz", "csv"])
def test_a_budget_may_stand_beside_the_samples_of_its_owner(kind, suffix, tmp_path):
    """The file of budgets is the file of data, with a row a sample."""
    owners = np.repeat([2, 10, 9], [12, 20, 14])
    rho = np.select([owners == 2, owners == 10], [0.5, 1.0], 7.0)
    random = np.random.default_rng(1)
    column = {"names": [f"clinic {k}" for k in owners], "numbers": owners, "floats": owners.astype(float)}[
        kind
    ]
    features = random.integers(-9, 9, (46, 2)) / 9
    columns = {"features": features, "labels": random.integers(0, 2, 46), "machine": column, "rho": rho}
    own = {}
    if suffix == "csv":
        del columns["features"]
        columns |= {"f": features[:, 0]}
        own = {"features": "f", "labels": "labels"}
    path = str(write_table(tmp_path / f"a.{suffix}", columns))
    experiment = Experiment(data=path, budgets=path, participation="by-size", **own)
    source = open_source(experiment)
    accounts = resolve_plan(experiment, source, 1).constants.problem.per_machine_plan.accounts(1e-5)
    assert accounts.samples.sum() == source.training_samples
    assert accounts.samples.tolist() == accounts.rounds.tolist()
    for name, allowed in zip(accounts.machine_names, accounts.rho_budget, strict=True):
        assert allowed == {2: 0.5, 10: 1.0, 9: 7.0}[int(float(name.removeprefix("clinic ")))]
    assert len(set(accounts.rho_budget)) == 3
    assert math.isclose(accounts.rho.max(), 7.0)
