"""Plans of a sweep: which runs are refused, and which combinations are left out, before anything runs."""

import sys

import pytest

from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.sweep_plans import resolve_sweep

DATA = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}


def resolved(settings):
    """Return a sweep, the file names of its accepted runs, and the reasons of its refused ones."""
    sweep = Sweep(settings)
    plans, refused = resolve_sweep(sweep, sweep.experiments, None, Communicator(), to_read=sweep.experiments)
    return sweep, [sweep.file_name(experiment) for experiment in plans], refused


def test_a_run_that_the_sampler_refuses_is_named():
    _, names, refused = resolved({**DATA, "epsilon": [2.0, 1e-9]})
    assert names == ["epsilon-2.h5"]
    assert refused["epsilon-1e-09.h5"].startswith("epsilon = 1e-09")


def test_pairs_that_do_not_go_together_take_one_line_each():
    settings = {**DATA, "epsilon": [1.0, 2.0], "seed": [1, 2]}
    settings |= {"method": ["mu2-sgd", "dp-sgd"], "server": ["untrusted", "trusted"]}
    sweep, names, refused = resolved(settings)
    assert (len(names), refused) == (12, {})
    assert len(sweep.exclusions) == 1
    assert sweep.exclusions[0].startswith("method = dp-sgd, server = untrusted is left out: ")


def test_a_pair_without_an_accountant_is_refused():
    settings = {**DATA, "server": ["untrusted", "shuffled"], "method": ["dp-gd", "noisy-minibatch-sgd"]}
    sweep, names, refused = resolved({**settings, "epsilon": [1.0, 2.0]})
    assert (len(names), len(refused), sweep.exclusions) == (6, 2, [])
    assert all("noisy-minibatch-sgd" in name and "shuffled" in name for name in refused)
    assert {reason.partition(" has ")[0] for reason in refused.values()} == {"--mechanism binomial"}


@pytest.mark.parametrize("mistake", [{"clip_norm": -1}, {"diametr": 3}, {"machines": [0]}])
def test_a_mistake_in_all_runs_of_a_method_is_refused_at_once(mistake):
    """Also a key that no experiment has."""
    parts = [{"method": "mu2-sgd"}, {"method": "dp-gd", **mistake}]
    with pytest.raises(InputError, match=next(iter(mistake))):
        Sweep({**DATA, "part": parts})


@pytest.mark.parametrize("part", [(0, 1), (3, 4)])
def test_runs_of_one_method_that_need_too_many_samples_are_refused(part):
    """A part that consists of them alone says the same."""
    sweep = Sweep({**DATA, "method": ["dp-gd", "mu2-sgd"], "rounds": [10, 500]})
    experiments = [experiment for _, experiment in sweep.select_runs(None, part)]
    if part[1] > 1:
        with pytest.raises(InputError, match="500 rounds need 500 samples"):
            resolve_sweep(sweep, experiments, None, Communicator())
    else:
        plans, refused = resolve_sweep(sweep, experiments, None, Communicator())
        assert len(plans) == 3
        assert list(refused) == ["rounds-500_mu2-sgd.h5"]
    assert sweep.exclusions == []


def test_a_method_whose_data_are_missing_is_refused(tmp_path):
    absent = str(tmp_path / "absent.csv")
    parts = [{"method": "dp-gd", "data": "digits"}, {"method": "mu2-sgd", "data": absent}]
    sweep, names, refused = resolved({"machines": 2, "rounds": 3, "part": parts})
    assert (len(names), len(refused), sweep.exclusions) == (1, 1, [])


class WithoutDpAccounting:
    """Finder of modules in an environment that lacks dp-accounting."""

    def find_spec(self, name, path=None, target=None):
        if name == "dp_accounting":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize("compares", [True, False])
def test_a_method_without_its_package_is_left_out_of_comparisons_alone(monkeypatch, compares):
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [WithoutDpAccounting(), *sys.meta_path])
    names = ["dp-gd", "dp-sgd"]
    methods = {"methods": names} if compares else {"method": names, "server": "trusted"}
    sweep, names, refused = resolved({**DATA, **methods, "epsilon": 1.234})
    assert len(names) == 1
    assert len(sweep.exclusions) == compares
    assert len(refused) == (not compares)
    assert "not installed" in "".join([*sweep.exclusions, *refused.values()])


def test_values_that_are_invalid_refuse_the_runs_on_their_file(tmp_path):
    (tmp_path / "a.csv").write_text("a,label\n" + "0.5,0\n-0.5,1\n" * 20 + "7.5,1\n")
    _, names, refused = resolved({"data": ["digits", str(tmp_path / "a.csv")], "machines": 2, "rounds": 3})
    assert names == ["digits.h5"]
    assert "a.csv" in "".join(refused.values())


def test_a_mistake_in_some_combinations_of_each_pair_is_refused_at_once():
    with pytest.raises(InputError, match="epsilon = -1"):
        Sweep({**DATA, "method": ["mu2-sgd", "dp-gd"], "epsilon": [1.0, -1.0]})


@pytest.mark.parametrize("losses", [["poisson", "squared"], ["squared", "poisson"]])
def test_a_loss_that_does_not_take_the_range_of_labels_is_refused_among_others(tmp_path, losses):
    path = tmp_path / "a.csv"
    path.write_text("a,label\n" + "0.5,3\n-0.5,-2\n" * 20)
    settings = {"data": str(path), "label_range": "-5:5", "machines": 2, "rounds": 3, "loss": losses}
    _, names, refused = resolved(settings)
    assert names == ["squared.h5"]
    assert refused["poisson.h5"].startswith("--loss poisson needs counts from 0")


def test_data_that_cannot_be_read_refuse_their_runs_alone(tmp_path):
    _, names, refused = resolved(
        {"data": ["digits", str(tmp_path / "absent.csv")], "machines": 2, "rounds": 3}
    )
    assert names == ["digits.h5"]
    assert len(refused) == 1
    assert "absent.csv" in str(refused)
