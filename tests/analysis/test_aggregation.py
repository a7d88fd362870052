"""Aggregation: which runs are averaged, and which settings are rows and columns."""

import math
from dataclasses import replace

import pytest
from helpers.summaries import cells_of, comparison_run, drawn, seeds_of, summary

from mu2mpi.analysis.aggregation import MeanAndStd, TableLayout
from mu2mpi.analysis.setting_labels import drop_repeated_runs, varying_settings
from mu2mpi.analysis.tables import build_table
from mu2mpi.core.errors import InputError


@pytest.mark.parametrize(
    "setting",
    [
        {"diameter": 0.2},
        {"clip_norm": 3.0},
        {"data": "digits"},
        {"estimator": "gradient"},
        {"rounds": 500},
        {"data": "synthetic", "data_seed": 5, "rounds": 50},
        {"diameter": 0.2, "machines": 10},
    ],
)
def test_other_settings_are_never_averaged(setting):
    table = build_table([summary(2.0, seed=1), summary(3.0, seed=2, **setting)])
    means = [
        cell.values["test_loss"].mean for section in table.sections for cell in section.aggregates.values()
    ]
    assert sorted(mean for mean in means if mean == mean) == [2.0, 3.0]


@pytest.mark.parametrize("setting", [{"participation": "bernoulli:0.5"}, {"partition": "labels:2"}, {}])
def test_rounds_that_seeds_draw_belong_together_and_others_do_not(setting):
    near = [drawn(seed=k, rounds=100 + 3 * k, **setting) for k in range(3)]
    assert varying_settings(near) == ([] if setting else ["rounds"])
    assert seeds_of(near) == ([3] if setting else [1, 1, 1])
    # Of one seed they are no draws, but wishes; nor are they if they are far apart.
    asked = [drawn(seed=1, rounds=100 + 3 * k, evaluations=12 + k, **setting) for k in range(2)]
    far = [drawn(seed=k, rounds=100 * 2**k, **setting) for k in range(3)]
    assert varying_settings(asked) == varying_settings(far) == ["rounds"]
    assert seeds_of([*far, drawn(seed=1, participation="uniform:3")]) == [1, 1, 1, 1]


def test_delta_parts_runs_where_it_changes_the_noise_and_is_told():
    (section,) = build_table([summary(2.0, seed=1), summary(3.0, seed=2, delta=1e-6, evaluations=5)]).sections
    assert [cell.seeds for cell in section.aggregates.values()] == [2]
    minibatch = {"method": "noisy-minibatch-sgd", "batch": 9}
    runs = [summary(**minibatch), summary(**minibatch, delta=1e-6)]
    assert drop_repeated_runs(runs) == (runs, [])
    dp = {"method": "dp-sgd", "epsilon": 2.0, "seed": 1}
    runs = [drawn(1.0, mechanism="poisson", **dp), drawn(2.0, mechanism="gaussian", delta=1e-2, **dp)]
    assert all("delta" in {*s.layout.rows, *s.settings} for s in build_table(runs).sections)


def test_a_run_that_is_there_twice_counts_once():
    runs = [summary(2.0, seed=1), summary(3.0, seed=2), summary(3.0, seed=2, name="copy.h5", evaluations=3)]
    table = build_table(runs)
    (cell,) = table.sections[0].aggregates.values()
    assert cell.values["test_loss"] == MeanAndStd(2.5, pytest.approx(math.sqrt(0.5)))
    assert len(table.notes) == 1
    assert f"% {table.notes[0]}" in table.render("latex")
    unseeded = [summary(loss, seed=None, name=name) for loss, name in ((2.0, "a"), (3.0, "b"), (3.0, "c"))]
    assert seeds_of(unseeded) == [2]


def measured(run, **figures):
    return replace(run, measurements=figures)


def test_other_rows_columns_and_values():
    runs = [
        measured(summary(2.0 + 0.1 * k, seed=k, rho=rho, diameter=D, server=server), elapsed_seconds=k + rho)
        for k in (0, 1, 2)
        for rho in (4, 8)
        for D in (0.1, 1.0)
        for server in ("trusted", "untrusted")
    ]
    table = build_table(runs, TableLayout(("diameter",), ("rho", "server"), ("elapsed_seconds",)))
    (section,) = table.sections
    assert section.columns == [(4.0, "untrusted"), (4.0, "trusted"), (8.0, "untrusted"), (8.0, "trusted")]
    assert section.settings == {
        "data": "mnist", "machines": 100, "rounds": 600, "loss": "softmax", "method": "mu2-sgd",
        "neighbours": "replace", "normalize": "none", "partition": "iid",
    }  # fmt: skip
    assert cells_of(table.render(), "1") == [["1", *["5 ± 1"] * 2, *["9 ± 1"] * 2]]
    ranks = [measured(summary(2.0, seed=k), ranks=r, noise_seconds=1 / r) for k in (1, 2) for r in (1, 2)]
    text = build_table(ranks, TableLayout(("seed",), ("ranks",), ("noise_seconds",))).render()
    assert cells_of(text, "0.5000") == [["1", "1.0000", "0.5000"], ["2", "1.0000", "0.5000"]]


@pytest.mark.parametrize(
    ("rows", "columns", "other", "found"),
    [
        ("rho", "machines", {"machines": 10, "rounds": 6000}, ("machines", "rounds")),
        ("rounds", "machines", {"machines": 10, "rounds": 6000}, ("machines",)),
        # Rounds that follow from rho tell nothing of M.
        ("rho", "machines", {"rho": 8.0, "rounds": 500}, ("machines",)),
    ],
)
def test_rounds_go_with_machines_unless_they_are_named(rows, columns, other, found):
    table = build_table([summary(), summary(**other)], TableLayout((rows,), (columns,)))
    assert table.sections[0].layout.columns == found


def test_sections_of_one_row_become_rows_unless_rows_are_named():
    runs = [comparison_run(4000, seed, diameter=D) for seed in (1, 2) for D in (1.0, 2.0, 4.0)]
    (section,) = build_table(runs).sections
    assert [row[-1] for row in section.rows] == [1.0, 2.0, 4.0]
    assert len(build_table(runs, TableLayout(rows=("server",))).sections) == 3
    by_rho = comparison_run(4000, rho=0.5, epsilon=None)
    lines = cells_of(build_table([comparison_run(4000), by_rho]).render(), "loss")
    assert [line[:2] for line in lines] == [["–", "0.5"], ["2", "–"]]


@pytest.mark.parametrize("layout", [(("server", "roh"),), (("server",), ("server",)), ((), (), ("loss",))])
def test_layouts_that_cannot_be(layout):
    with pytest.raises(InputError):
        build_table([summary()], TableLayout(*layout))
    with pytest.raises(InputError):
        build_table([])
    with pytest.raises(InputError):
        build_table([summary()]).render("html")
