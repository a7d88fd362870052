"""Every combination of settings of which some are lists, and the names of their results."""

import math

import pytest
from helpers.property_tests import given
from hypothesis import strategies

from mu2mpi.config.sweep import Sweep, result_name
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import temporary_path
from mu2mpi.results.records import checkpoint_path


def test_sweep_is_the_product_of_its_lists():
    sweep = Sweep({"server": ["untrusted", "trusted"], "rho": [4, 8.0, math.inf], "machines": 3, "seed": [1]})
    assert len(sweep.experiments) == 6
    assert [e.rho for e in sweep.experiments[:3]] == [4, 8, math.inf]
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[0] == "untrusted_rho-4_seed-1.h5"
    assert names[5] == "trusted_rho-inf_seed-1.h5"
    assert len(set(names)) == 6
    assert sweep.select_runs(5) == [(5, sweep.experiments[5])]


def test_sweep_over_epsilon():
    sweep = Sweep({"epsilon": [0.5, 2], "delta": [1e-5, 1e-6]})
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[:2] == ["epsilon-0.5_delta-1e-05.h5", "epsilon-0.5_delta-1e-06.h5"]
    assert len({e.rho for e in sweep.experiments}) == 4
    with pytest.raises(InputError, match="both given"):
        Sweep({"epsilon": [0.5, 2], "rho": [1, 2]}, "a.toml")


def test_parts_of_a_sweep_are_sweeps_of_their_own():
    settings = {
        "rho": 4.0, "seed": [1, 2],
        "part": [{"machines": [2, 4], "rounds": 10}, {"machines": 2, "rounds": [10, 20], "rho": math.inf}],
    }  # fmt: skip
    sweep = Sweep(settings)
    found = [(e.machines, e.rounds, e.rho, e.seed) for e in sweep.experiments]
    first = [(m, 10, 4.0, s) for s in (1, 2) for m in (2, 4)]
    assert found == first + [(2, t, math.inf, s) for s in (1, 2) for t in (10, 20)]
    assert sweep.swept_names == ["seed", "machines", "rounds", "rho"]
    assert len({sweep.file_name(e) for e in sweep.experiments}) == 8
    # What two parts share is run once, and an option replaces what any part says.
    once = Sweep(settings, overrides={"rho": 8.0, "machines": 2})
    assert [(e.machines, e.rounds, e.rho, e.seed) for e in once.experiments] == [
        (2, 10, 8.0, 1), (2, 10, 8.0, 2), (2, 20, 8.0, 1), (2, 20, 8.0, 2)
    ]  # fmt: skip
    assert once.swept_names == ["seed", "rounds"]


@pytest.mark.parametrize(
    "bad",
    [
        *({"part": part} for part in (3, [], {"rho": 1}, [1], [{"rhoo": 1}], [{"seed": []}])),
        *({"seed": seeds} for seeds in ([], [1, 1], [1, 2, 1], [[1]])),
        {"batch": [8, 16]},
        {"data": "synthetic", "seed": list(range(1000)), "data_seed": list(range(1000))},
    ],
)
def test_bad_parts_and_lists(bad):
    with pytest.raises(InputError, match=r"a\.toml: "):
        Sweep(bad, "a.toml")


@pytest.mark.parametrize("index", [-1, 6])
def test_index_out_of_range(index):
    with pytest.raises(InputError, match="5"):
        Sweep({"seed": [1, 2, 3], "rho": [1, 2]}).select_runs(index)


@pytest.mark.parametrize("parts", [1, 2, 4, 6, 7])
def test_parts_are_the_whole_sweep_and_differ_by_one_run_at_most(parts):
    sweep = Sweep({"seed": [1, 2, 3], "rho": [1, 2]})
    found = [sweep.select_runs(None, (k, parts)) for k in range(parts)]
    assert sorted(number for part in found for number, _ in part) == [0, 1, 2, 3, 4, 5]
    assert all(experiment is sweep.experiments[number] for part in found for number, experiment in part)
    sizes = list(map(len, found))
    assert sizes[0] - sizes[-1] <= 1
    assert [number for number, _ in found[0]] == list(range(0, 6, parts))


def test_long_names_are_cut_and_stay_apart(tmp_path):
    names = [f"{'ü' * 3000}{end}.csv" for end in "ab"] + ["short.csv"]
    sweep = Sweep({"data": names, "labels": "\n/" * 500, "seed": 1})
    files = [sweep.file_name(experiment) for experiment in sweep.experiments]
    assert len(set(files)) == 3
    assert files[2] == "short.csv.h5"
    for file in files:
        # With what a checkpoint that is being written adds.
        with temporary_path(checkpoint_path(tmp_path / file)) as temporary:
            temporary.touch()
        assert file.endswith(".h5")


def labels_of(*names):
    return Sweep({"data": "samples.csv", "labels": list(names)}, "a.toml")


@pytest.mark.parametrize("pair", [("a b", "a-b"), ("A", "a"), ("\n", "/"), ("..", ".")])
def test_results_never_share_a_name(pair):
    with pytest.raises(InputError, match="would both be called") as caught:
        labels_of(*pair)
    assert all(repr(name) in str(caught.value) for name in pair)
    assert "a.toml" in str(caught.value)


TEXTS = strategies.text(strategies.characters(exclude_characters="\0"), min_size=1)
PLAIN = strategies.text("aA.-_/ \n\udcff", min_size=1)
"""Texts of which many become the same name."""


@given(
    strategies.lists(TEXTS | PLAIN, min_size=1, max_size=4, unique=True),
    strategies.lists(PLAIN | TEXTS, min_size=1, max_size=2, unique=True),
    strategies.lists(
        strategies.floats(1e-6, 1e6) | strategies.integers(1, 9), min_size=1, max_size=3, unique=True
    ),
)
def test_names_of_results_are_distinct_and_visible_files(tmp_path_factory, files, labels, rhos):
    settings = {"data": [f"{name}.csv" for name in files], "labels": labels, "rho": rhos}
    try:
        sweep = Sweep(settings, "a.toml")
    except InputError:
        return
    names = [sweep.file_name(experiment) for experiment in sweep.experiments]
    assert len({name.casefold() for name in names}) == len(names) == len(files) * len(labels) * len(rhos)
    folder = tmp_path_factory.mktemp("names")
    for experiment, name in zip(sweep.experiments, names, strict=True):
        for called in (name, result_name(experiment)):
            path = folder / called
            assert not called.startswith((".", "-"))
            assert path.parent == folder
            with temporary_path(checkpoint_path(path)) as temporary:
                temporary.touch()
