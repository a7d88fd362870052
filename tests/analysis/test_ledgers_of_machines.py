"""Accounts of unequal machines: verification, display and publication, and detection of edited files."""

import re
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

from mu2mpi.analysis.description import describe_result, privacy_summary
from mu2mpi.analysis.privacy_reports import check_privacy_claims, claim_contradictions
from mu2mpi.analysis.publication import publish
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

OWNERS = {"north": 3, "south": 8, "east": 20, "west": 40}
BUDGETS = "[rho]\neast = 0.5\n[epsilon]\nwest = 6.0\n"

OWN = {"data": "own.csv", "normalize": "unit", "test": "test.csv", "evaluations": 4}
MADE = {"data": "synthetic", "samples": 120, "features": 3, "machines": 6, "rounds": 12, "seed": 1}
RUNS = {
    "sizes": {"participation": "by-size", "budgets": "budgets.toml", "epsilon": 4.0, **OWN},
    "trusted": {
        "participation": "by-size",
        "budgets": "budgets.toml",
        "server": "trusted",
        "delta": 0.02,
        **OWN,
    },
    "trace": {"participation": "trace:trace.csv", "objective": "samples", "epsilon": 1.0, **OWN},
    "uniform": {"participation": "uniform:3", "server": "trusted", "rho": 2.0, **MADE},
    "gradients": {"participation": "bernoulli:0.4", "estimator": "gradient", "rho": 2.0, **MADE},
    "correlated": {"method": "anytime-dp-mf", "participation": "uniform:3", "rho": 2.0, **MADE},
    "passes": {"method": "dp-gd", "batch": 7, "participation": "uniform:3", "rho": 2.0, **MADE},
    "drawn": {"method": "noisy-minibatch-sgd", "participation": "uniform:3", "epsilon": 1.0, **MADE},
    "silent": {"participation": "uniform:3", "rho": float("inf"), **MADE},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with a real result of each kind."""
    folder, rng = tmp_path_factory.mktemp("machines"), np.random.default_rng(1)
    owners = [name for name, count in OWNERS.items() for _ in range(count)]
    samples = pd.DataFrame(rng.uniform(-1, 1, (71, 2)), columns=["a", "b"]).assign(
        label=rng.integers(2, size=71)
    )
    samples.assign(machine=owners).to_csv(folder / "own.csv", index=False)
    samples.assign(machine=rng.permutation(owners)).to_csv(folder / "test.csv", index=False)
    (folder / "budgets.toml").write_text(BUDGETS)
    there = [(t, name) for t in range(1, 9) for name in OWNERS if t < 4 or name != "north"]
    pd.DataFrame(there[1:], columns=["round", "machine"]).to_csv(folder / "trace.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, settings in RUNS.items():
            run(Experiment(**settings), output=folder / f"{name}.h5")
        for used in ("budgets.toml", "trace.csv", "own.csv"):
            Path(used).unlink()
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_what_a_run_writes_of_machines_holds_without_the_files_that_it_read(made, name):
    assert check_privacy_claims([made / f"{name}.h5"])[1] == []


def test_each_keeps_to_what_it_may_spend(made):
    accounts = read_result(made / "sizes.h5").accounts
    stated = dict(zip(accounts.machine_names, accounts.epsilon, strict=True))
    assert stated["north"] == pytest.approx(4, rel=1e-2)
    assert stated["west"] == pytest.approx(6, rel=1e-2)
    assert max(stated.values()) <= 6
    assert dict(zip(accounts.machine_names, accounts.rho, strict=True))["east"] == 0.5


def changed(source, target, action):
    """Copy a file and change it as another program would."""
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+") as file:
        action(file)
    return target


def cell(name, row, value):
    def action(file):
        column = file[f"privacy/machines/{name}"]
        column[row] = value(column[row]) if callable(value) else value

    return action


def swapped(*names):
    def action(file):
        for name in names:
            column = file[f"privacy/machines/{name}"]
            values = column[()]
            values[[0, 2]] = values[[2, 0]]
            column[...] = values

    return action


def replaced(name, content):
    """Return what puts other content in the place of what is there, or nothing."""

    def action(file):
        there = file[f"privacy/machines/{name}"][()] if f"privacy/machines/{name}" in file else None
        file.pop(f"privacy/machines/{name}", None)
        if content is not None:
            file[f"privacy/machines/{name}"] = content(there) if callable(content) else content

    return action


def without_a_row(file):
    group = file["privacy/machines"]
    for name in list(group):
        if group[name].ndim == 1 and name != "round":
            replaced(name, group[name][1:])(file)


def with_experiment(**changes):
    def action(file):
        file.attrs["experiment"] = Experiment(**{**RUNS["gradients"], **changes}).to_toml()

    return action


def half_spent(file):
    file["history/rho_spent"][...] /= 2


def fewer_used(file):
    file["history/samples"][...] -= 1


def attribute(**values):
    return lambda file: file["privacy"].attrs.update(values)


@pytest.mark.parametrize(
    ("name", "action", "words"),
    [
        ("sizes", cell("sigma", 0, lambda sigma: sigma / 2), "sigma of machine east"),
        ("sizes", cell("rho", 3, 0.1), "rho of machine west is 0.1, but "),
        ("sizes", cell("rho_budget", 3, 0.1), "rho of machine west is "),
        ("sizes", swapped("rho_budget", "rho", "epsilon"), "sigma of machine east"),
        ("sizes", cell("samples", 3, 10), "rounds of machine "),
        ("sizes", cell("rho_budget", 0, np.nan), "rho_budget of machine east is out of range"),
        ("sizes", cell("participation", (0, 2), lambda there: 1 - there), "participation"),
        ("sizes", replaced("participation", lambda there: there[:-1]), "participation"),
        ("sizes", without_a_row, "3 machines"),
        ("sizes", lambda file: file.pop("privacy/machines"), "/privacy/machines"),
        ("sizes", attribute(sigma=1.0), "sigma is 1.0 in /privacy and "),
        ("sizes", half_spent, "rho_spent by round "),
        ("sizes", fewer_used, "70 samples were used by /history, and 71 by /privacy"),
        ("trusted", cell("rho", 2, 0.1), "rho of machine south is 0.1"),
        ("trace", cell("weight", 0, 0.7), "weight of machine "),
        ("drawn", cell("epsilon", 0, 0.1), "epsilon of machine 0 is 0.1"),
        (
            "gradients",
            with_experiment(participation="bernoulli:0.5"),
            "participation is not that of the experiment",
        ),
        ("gradients", with_experiment(participation=None), "/privacy/machines"),
        ("gradients", with_experiment(rounds=2**31), "2,147,483,648"),
        (
            "gradients",
            with_experiment(rho=1.0),
            "rho_budget of machine 0 is 2, but its rounds, weight and budget give 1",
        ),
    ],
)
def test_a_table_that_was_changed_is_found_out(made, tmp_path, name, action, words):
    path = changed(made / f"{name}.h5", tmp_path / "changed.h5", action)
    assert words in "\n".join(claim_contradictions(read_result(path)))


@pytest.mark.parametrize(
    "action",
    [
        replaced("sigma", lambda there: there[:2]),
        replaced("owner", ["north"]),
        replaced("sigma", ["a"] * 4),
        replaced("rounds", lambda there: there.astype(np.float64)),
        replaced("sigma", None),
        replaced("owner", [1, 2, 3, 4]),
        replaced("participation", [1, 0]),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(made, tmp_path, action):
    path = changed(made / "sizes.h5", tmp_path / "changed.h5", action)
    with pytest.raises(InputError, match=re.escape(str(path))):
        read_result(path)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sizes", {"budgets": "/home/me/budgets.toml", "rounds": 40, "machines": 4}),
        ("trace", {"participation": "trace:/home/me/t.csv", "rounds": 8, "machines": 4}),
    ],
)
def test_what_is_published_holds_and_names_no_folder(made, tmp_path, name, settings):
    def action(file):
        file.attrs["experiment"] = Experiment(**{**RUNS[name], **settings}).to_toml()

    publish([changed(made / f"{name}.h5", tmp_path / "a.h5", action)], tmp_path / "public.h5")
    result, before = read_result(tmp_path / "public.h5"), read_result(made / f"{name}.h5")
    assert check_privacy_claims([tmp_path / "public.h5"])[1] == []
    assert before.accounts.differences(result.accounts) == []
    assert result.accounts.machine_owners == tuple(sorted(OWNERS))
    assert b"/home/me" not in (tmp_path / "public.h5").read_bytes()


def test_show_has_a_row_for_each_machine_and_those_of_most_told_first(made):
    text = describe_result(read_result(made / "sizes.h5"), Path("a.h5"))
    table = [line.split() for line in text.splitlines() if line.split()[:1] and line.split()[0] in OWNERS]
    assert table[0][0] == "west"
    assert sorted(float(row[-1]) for row in table)[::-1] == [float(row[-1]) for row in table]
    assert {row[0]: int(row[1]) for row in table} == OWNERS
    assert "samples of machine west" in " ".join(check_privacy_claims([made / "sizes.h5"])[0].split())


def test_delta_is_judged_by_the_samples_of_all_machines(made):
    path = made / "trusted.h5"
    result = read_result(path)
    for text in (check_privacy_claims([path])[0], describe_result(result, path)):
        assert "not below 1/n for n = 71 samples" in " ".join(text.split())
    assert "delta is not below 1/n = 0.014" in privacy_summary(result.privacy, result.accounts)
