"""Participation schedules of extensions, and the options of built-in ones."""

import numpy as np
import pytest

from mu2mpi import run
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.problem_builder import input_digests
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.federation.participation.schedule import check_participation, parse_participation


def test_an_extension_is_one_module(extension):
    extension("in_turn")
    experiment = Experiment(
        data="synthetic", samples=100, features=3, machines=4, participation="in-turn:2", rounds=6, seed=1
    )
    t, i = np.ogrid[1:7, :4]
    assert np.array_equal(run(experiment).accounts.participation, (t + i) % 2 == 0)
    assert [*input_digests(experiment)] == ["the module in_turn"]
    with pytest.raises(InputError, match="such as in-turn:2"):
        experiment.replace(participation="in-turn:x")


@pytest.mark.parametrize("name", known_names("participation"))
def test_forms_of_built_in_schedules(name):
    schedule = lookup("participation", name)
    values = {"m": "3", "p": "0.25", "FILE": "a.csv"}
    text, *placeholder = schedule.option_syntax.split(":")
    text = ":".join([text, *(values[value] for value in placeholder)])
    assert check_participation(text) == (None if schedule.is_default else text)
    assert parse_participation(text) == (schedule, text.partition(":")[2])
    assert parse_participation(None)[0].is_default


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("uniforn:3", "did you mean uniform:m"),
        ("uniform:x", "such as uniform:20"),
        ("bernoulli:2", "such as bernoulli:0.2"),
        ("trace", "such as trace:"),
        ("by-size:3", "without a value"),
    ],
)
def test_messages_name_the_form(text, message):
    with pytest.raises(InputError, match=message):
        Experiment(participation=text)
