"""Every combination of settings of which some are lists, and the names of their results."""

import math

import pytest

from mu2mpi.config.sweep import Sweep
from mu2mpi.errors import InputError
from mu2mpi.files import unfinished
from mu2mpi.results.schema import checkpoint_path


def test_sweep_is_the_product_of_its_lists():
    sweep = Sweep({"server": ["untrusted", "trusted"], "rho": [4, 8.0, math.inf], "machines": 3, "seed": [1]})
    assert len(sweep.experiments) == 6
    assert [e.rho for e in sweep.experiments[:3]] == [4, 8, math.inf]
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[0] == "untrusted_rho-4_seed-1.h5"
    assert names[5] == "trusted_rho-inf_seed-1.h5"
    assert len(set(names)) == 6
    assert sweep.choose(5) == [(5, sweep.experiments[5])]


def test_sweep_over_epsilon():
    sweep = Sweep({"epsilon": [0.5, 2], "delta": [1e-5, 1e-6]})
    names = [sweep.file_name(e) for e in sweep.experiments]
    assert names[:2] == ["epsilon-0.5_delta-1e-05.h5", "epsilon-0.5_delta-1e-06.h5"]
    assert len({e.rho for e in sweep.experiments}) == 4
    with pytest.raises(InputError, match="both given"):
        Sweep({"epsilon": [0.5, 2], "rho": [1, 2]}, "a.toml")


def test_methods_of_a_sweep_are_named_by_what_they_choose():
    parts = [{"method": "dp-sgd"}, {"estimator": ["corrected-momentum", "gradient"], "query": "average"}]
    sweep = Sweep({"server": "trusted", "seed": [1], "part": parts})
    assert [sweep.file_name(experiment) for experiment in sweep.experiments] == [
        "seed-1_dp-sgd.h5",
        "seed-1_mu2-sgd_corrected-momentum_average.h5",
        "seed-1_mu2-sgd_gradient_average.h5",
    ]


def test_close_values_of_a_sweep_get_different_names():
    sweep = Sweep({"rho": [4.0, 4.0000001], "clip_norm": [1e-7, 2e-7]})
    assert len({sweep.file_name(e) for e in sweep.experiments}) == 4


def test_parts_of_a_sweep_are_sweeps_of_their_own():
    settings = {
        "rho": 4.0, "seed": [1, 2],
        "part": [{"machines": [2, 4], "rounds": 10}, {"machines": 2, "rounds": [10, 20], "rho": math.inf}],
    }  # fmt: skip
    sweep = Sweep(settings)
    found = [(e.machines, e.rounds, e.rho, e.seed) for e in sweep.experiments]
    first = [(m, 10, 4.0, s) for s in (1, 2) for m in (2, 4)]
    assert found == first + [(2, t, math.inf, s) for s in (1, 2) for t in (10, 20)]
    assert sweep.swept == ["seed", "machines", "rounds", "rho"]
    assert len({sweep.file_name(e) for e in sweep.experiments}) == 8
    # What two parts share is run once, and an option replaces what any part says.
    once = Sweep(settings, overrides={"rho": 8.0, "machines": 2})
    assert [(e.machines, e.rounds, e.rho, e.seed) for e in once.experiments] == [
        (2, 10, 8.0, 1), (2, 10, 8.0, 2), (2, 20, 8.0, 1), (2, 20, 8.0, 2)
    ]  # fmt: skip
    assert once.swept == ["seed", "rounds"]


@pytest.mark.parametrize("part", [3, [], {"rho": 1}, [1], [{"rhoo": 1}], [{"seed": []}]])
def test_bad_parts(part):
    with pytest.raises(InputError, match=r"a\.toml: "):
        Sweep({"part": part}, "a.toml")


@pytest.mark.parametrize("bad", [[], [1, 1], [[1]]])
def test_bad_lists(bad):
    with pytest.raises(InputError):
        Sweep({"seed": bad}, "a.toml")


@pytest.mark.parametrize("index", [-1, 6])
def test_index_out_of_range(index):
    with pytest.raises(InputError, match=r"0 \.\. 5"):
        Sweep({"seed": [1, 2, 3], "rho": [1, 2]}).choose(index)


def test_lists_of_options_of_a_method():
    sweep = Sweep({"method": "dp-sgd", "server": "trusted", "batch": [8, 16]})
    assert [experiment.batch for experiment in sweep.experiments] == [8, 16]
    assert [sweep.file_name(experiment) for experiment in sweep.experiments] == ["batch-8.h5", "batch-16.h5"]
    with pytest.raises(InputError, match=r"a\.toml: batch applies to method = dp-sgd or noisy-minibatch-sgd"):
        Sweep({"batch": [8, 16]}, "a.toml")


def test_long_names_are_cut_and_stay_apart(tmp_path):
    names = [f"{'ü' * 3000}{end}.csv" for end in "ab"] + ["short.csv"]
    sweep = Sweep({"data": names, "labels": "\n/" * 500, "seed": 1})
    files = [sweep.file_name(experiment) for experiment in sweep.experiments]
    assert len(set(files)) == 3
    assert files[2] == "short.csv.h5"
    for file in files:
        # With what a checkpoint that is being written adds.
        with unfinished(checkpoint_path(tmp_path / file)) as temporary:
            temporary.touch()
        assert file.endswith(".h5")
