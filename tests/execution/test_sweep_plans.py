"""Plans of a sweep: which runs are refused, and which combinations are left out, before anything runs."""

import pytest

from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.sweep_plans import resolve_sweep

DATA = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}


def resolved(settings):
    """Return a sweep, the file names of its accepted runs, and the reasons of its refused ones."""
    sweep = Sweep(settings)
    plans, refused = resolve_sweep(sweep, sweep.experiments, None, Communicator())
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


def test_a_pair_that_the_data_rule_out_takes_one_line():
    settings = {**DATA, "server": ["untrusted", "shuffled"], "method": ["dp-gd", "noisy-minibatch-sgd"]}
    sweep, names, refused = resolved({**settings, "epsilon": [1.0, 2.0]})
    assert (len(names), refused) == (6, {})
    assert len(sweep.exclusions) == 1
    assert "noisy-minibatch-sgd, server = shuffled is left out: --mechanism binomial" in sweep.exclusions[0]


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
