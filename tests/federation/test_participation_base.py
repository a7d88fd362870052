"""Participation schedules of extensions, and the options of built-in ones."""

import subprocess
import sys

import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.federation.participation.base import check_participation, schedule_of

EXTENSION = '''
"""Machines in turn, k per round."""

import numpy as np

from mu2mpi import register
from mu2mpi.federation.participation.base import Participation


@register
class InTurn(Participation):
    """Every machine in every k-th round."""

    name, form, summary = "in-turn", "in-turn:k", "every k-th machine per round"
    @classmethod
    def check_value(cls, value):
        if not value.isdecimal():
            raise ValueError("should be in-turn:k with a number of rounds, such as in-turn:2")

    @classmethod
    def expected_share(cls, value, machines):
        return 1 / int(value)

    def __init__(self, value, federation):
        super().__init__(value, federation)
        self.period = int(value)

    def participates(self, rounds, total_rounds):
        t, i = np.ogrid[rounds.start : rounds.stop, : self.machines]
        return (t + i) % self.period == 0
'''

USE = """
import sys
import numpy as np
import in_turn
import mu2mpi
from mu2mpi.config.task import input_files
from mu2mpi.core.errors import InputError
from mu2mpi.cli import main

experiment = mu2mpi.Experiment(
    data="synthetic", samples=100, features=3, machines=4, participation="in-turn:2", rounds=6, seed=1
)
result = mu2mpi.run(experiment, output="a.h5")
t, i = np.ogrid[1:7, :4]
assert np.array_equal(result.accounts.present, (t + i) % 2 == 0)
assert mu2mpi.read_result("a.h5").experiment.participation == "in-turn:2"
assert [*input_files(experiment)] == ["the module in_turn"]
try:
    experiment.having(participation="in-turn:x")
except InputError as error:
    assert "such as in-turn:2" in str(error)
sys.exit(main(["run", "--help"]))
"""


def test_an_extension_is_one_module(tmp_path):
    (tmp_path / "in_turn.py").write_text(EXTENSION)
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run(
        [sys.executable, "use.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "in-turn:k, every k-th machine per round" in " ".join(done.stdout.split())


@pytest.mark.parametrize("name", names("participation"))
def test_forms_of_built_in_schedules(name):
    schedule = find("participation", name)
    values = {"m": "3", "p": "0.25", "FILE": "a.csv"}
    text, *placeholder = schedule.form.split(":")
    text = ":".join([text, *(values[value] for value in placeholder)])
    assert check_participation(text) == (None if schedule.is_default else text)
    assert schedule_of(text) == (schedule, text.partition(":")[2])
    assert schedule_of(None)[0].is_default


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
