"""Options of all experiments and of methods, as one list."""

import pytest
from pydantic import Field, create_model

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import method_option_names, option_fields, own_option_fields
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options, choices
from mu2mpi.core.registry import known_names, lookup


def test_options_are_one_list_with_those_of_methods_behind_the_method():
    listed = list(option_fields())
    assert len(listed) == len(set(listed))
    place = listed.index("method") + 1
    own = [*own_option_fields("mechanism"), *own_option_fields("method")]
    assert listed[place : place + len(own)] == own
    assert {"estimator", "query", "preset", "batch"} <= set(own)
    assert set(method_option_names()) == set(own) - {"preset"}
    # An option that several methods have says what it means to each.
    text = option_fields()["batch"].description
    assert option_fields()["batch"].title.startswith("batch size ")
    assert text.startswith("accelerated-srgd: ")
    assert "dp-sgd: expected batch size" in text
    assert "noisy-minibatch-sgd: batch size K" in text
    assert choices(option_fields()["estimator"]) == ("corrected-momentum", "gradient")
    assert choices(option_fields()["method"]) == tuple(known_names("methods"))
    assert choices(option_fields()["rho"]) is None


def test_options_of_other_methods_are_none():
    settings = {"dp-sgd": {"server": "trusted"}, "storm": {"clip_norm": 1.0}}
    for name in known_names("methods"):
        experiment = Experiment(method=name, **settings.get(name, {}))
        own = lookup("methods", name).options.model_fields
        for option in own_option_fields("method"):
            expected = own[option].default if option in own else None
            assert getattr(experiment, option) == expected
            assert option in own or option not in experiment.settings()
    with pytest.raises(AttributeError, match="machnies"):
        Experiment().machnies  # noqa: B018


@pytest.mark.parametrize("name", ["rounds", "features"])
def test_an_extension_cannot_give_an_option_a_second_meaning(monkeypatch, name):
    field = Field(1, description="something else")
    monkeypatch.setattr(
        lookup("methods", "storm"), "options", create_model("O", __base__=Options, **{name: (int, field)})
    )
    with pytest.raises(InputError, match=f"gives {name} a second meaning"):
        option_fields()


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, "dp-gd"),
        ({"momentum": 0.5}, "dp-gd"),
        ({"estimator": "gradient"}, "mu2-sgd"),
        ({"noise_correlation": 0.5}, "mu2-sgd"),
        ({"mechanism": "correlated"}, "mu2-sgd"),
    ],
)
def test_the_practical_preset_prefers_a_method_only_where_it_takes_what_is_given(settings, method):
    assert Experiment(preset="practical", **settings).method == method
