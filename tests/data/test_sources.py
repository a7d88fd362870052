"""Sources: what the built-in ones declare, and one of the user's own in a single file."""

import pytest

from mu2mpi import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.data.source import find_source
from mu2mpi.execution.plan import open_source, resolve_plan


@pytest.mark.parametrize("name", ["digits", "population", "synthetic"])
def test_what_is_declared_is_what_is_opened(name):
    declared = find_source(name)
    assert declared is lookup("sources", name)
    assert declared.has_known_distribution == open_source(Experiment(data=name)).has_known_distribution
    assert not declared.is_user_data


@pytest.mark.parametrize("data", ["a.csv", "folder/b.H5", "c.libsvm.gz"])
def test_a_file_is_the_users_own(data):
    experiment = Experiment(data=data)
    assert experiment.source.is_user_data
    assert experiment.source.name == "user-file"


@pytest.mark.parametrize("data", ["user-file", "a.txt", "a.csv.bz2", "", "Digits"])
def test_other_names_are_answered_with_what_there_is(data):
    with pytest.raises(
        InputError,
        match=r"cifar10, digits, fashion-mnist, mnist, population, synthetic, a file .*\.csv.*\.parquet",
    ):
        Experiment(data=data)


def test_a_misspelt_name_is_guessed():
    with pytest.raises(InputError, match="did you mean synthetic"):
        Experiment(data="synthethic")


@pytest.mark.parametrize("data", ["digits", "population"])
def test_a_bound_of_features_is_for_files(data):
    with pytest.raises(InputError, match="feature_bound"):
        Experiment(data=data, normalize="box")


def test_a_source_of_one_file_is_declared_like_any_other(extension):
    extension("spirals")
    assert known_names("sources")[-1] == "spirals"
    experiment = Experiment(data="spirals", turns=0.25)
    assert experiment.settings()["turns"] == 0.25
    assert Experiment.from_settings({"data": "spirals"}).turns == 0.5
    with pytest.raises(InputError, match="turns needs data = spirals"):
        Experiment(turns=1.0)
    with pytest.raises(InputError, match="turns = 11"):
        Experiment(data="spirals", turns=11)
    with pytest.raises(InputError, match="did you mean spirals"):
        Experiment(data="spiral")
    plan = resolve_plan(experiment, open_source(experiment), 3)
    assert list(plan.input_files) == ["the module spirals"]
