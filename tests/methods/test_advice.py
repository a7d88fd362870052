"""Each method's practical preset is about as accurate as the best, or a run says what is."""

import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import open_source, resolve_plan

# Other tests may register further methods.
PACKAGED_METHODS = [
    name for name in known_names("methods") if type(lookup("methods", name)).__module__.startswith("mu2mpi.")
]
SETTINGS = {"data": "digits", "epsilon": 2.0, "preset": "practical", "machines": 10}


def advice(**settings):
    plan = resolve_plan(Experiment(**SETTINGS, **settings), open_source(Experiment(**SETTINGS)), 1)
    preset = lookup("presets", plan.experiment.preset)
    return preset.advice(plan.experiment.chosen_method, plan.constants.problem)


@pytest.mark.parametrize("server", ["untrusted", "trusted", "aggregated", "shuffled"])
def test_methods_without_advice_are_within_five_points_of_the_best(server):
    accuracies = {}
    for method in PACKAGED_METHODS:
        settings = {"method": method, "server": server}
        try:
            has_advice = advice(**settings) is not None
        except InputError:
            continue
        seeds = (1, 2) if has_advice else range(1, 9)
        final = [
            run({**SETTINGS, **settings, "seed": k}, progress=False).history.test_accuracy[-1] for k in seeds
        ]
        accuracies[method, has_advice] = 100 * np.mean(final)
    # Several local steps between messages may do better than any method that has one.
    has_local_steps = lambda method: "local_steps" in lookup("methods", method).options.model_fields  # noqa: E731
    best = max(accuracy for (method, _), accuracy in accuracies.items() if not has_local_steps(method))
    assert len(accuracies) >= 7
    for (method, has_advice), accuracy in accuracies.items():
        assert has_advice or accuracy > best - 5, (method, accuracy, best)
    # What is advised is worth it.
    assert accuracies["dp-gd", False] > best - 5


def test_advice_names_the_better_method_and_stops_where_noise_is_small(capfd):
    assert "--method dp-gd" in advice(method="storm", server="trusted")
    assert advice(method="dp-gd", server="untrusted") is None
    settings = {**SETTINGS, "method": "storm", "seed": 1}
    run(settings, progress=True)
    assert capfd.readouterr().err.count("--method dp-gd is usually more accurate than --method storm") == 1
    run({**settings, "epsilon": None, "rho": np.inf}, progress=True)
    assert "usually" not in capfd.readouterr().err


@pytest.mark.parametrize("settings", [{"server": "shuffled"}, {"server": "trusted", "mechanism": "gaussian"}])
def test_a_preset_that_counts_on_amplification_is_refused_without(settings):
    with pytest.raises(InputError, match=r"needs privacy amplification.*Use --method dp-gd"):
        Experiment(**SETTINGS, method="dp-sgd", **settings)
    Experiment(data="digits", method="dp-sgd", **settings)
