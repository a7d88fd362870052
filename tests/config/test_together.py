"""Settings that do not go together."""

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"participation_seed": 1}, "participation"),
        ({"participation": "all", "participation_seed": 1}, "participation"),
        ({"objective": "samples", "method": "objective-perturbation", "server": "trusted"}, "objective-pert"),
        ({"budgets": "a.toml", "method": "accelerated-srgd"}, "accelerated-srgd"),
        ({"objective": "samples", "noise": "aggregate"}, "--noise aggregate"),
        ({"participation": "uniform:2", "method": "dp-gd", "preset": "practical"}, "--preset practical"),
        ({"budgets": "a.toml", "method": "dp-sgd", "server": "trusted"}, "poisson"),
        ({"budgets": "a.toml", "method": "noisy-minibatch-sgd"}, "replacement-exact"),
        ({"objective": "people"}, "objective"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, name):
    with pytest.raises(InputError, match=name):
        Experiment(**settings)
