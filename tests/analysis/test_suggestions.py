"""What is misspelt, or called otherwise elsewhere, is answered with what is meant."""

from typing import get_args

import pytest

from mu2mpi import cli
from mu2mpi.analysis.catalogue import KINDS
from mu2mpi.analysis.tables import Format
from mu2mpi.cli.commands import command_names
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.options import choices, option_fields
from mu2mpi.config.sweep import Sweep
from mu2mpi.data.schema import TYPES
from mu2mpi.errors import InputError
from mu2mpi.results.schema import SCORES
from mu2mpi.suggestions import LEAST_ALIKE, NOTES, OTHER_WORDS, did_you_mean, or_else


def refused(capsys, *words):
    """Return what the command line says of what it does not take."""
    assert cli.main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run", "--eps", "2"], "--epsilon"),
        (["run", "--eps=2"], "--epsilon"),
        (["run", "--clients", "5"], "--machines"),
        (["run", "--machnes", "5"], "--machines"),
        (["run", "--M", "5"], "--machines"),
        (["run", "--batch_size", "5"], "--batch"),
        (["run", "--learning-rate", "5"], "--eta-scale, in units of what theory allows"),
        (["sweep", "a.toml", "--radius", "1"], "--diameter, which is twice the radius"),
        (["audit", "--iterations", "5"], "--rounds"),
        (["privacy", "--eps", "2"], "--epsilon"),
        (["table", "runs", "--collumns", "rho"], "--columns"),
        (["show", "a.h5", "--diagnostic"], "--diagnostics"),
        (["run", "--server", "trustd"], "trusted"),
        (["run", "--server", "secure_aggregation"], "aggregated"),
        (["run", "--method", "dpsgd"], "dp-sgd"),
        (["run", "--data", "digit"], "digits"),
        (["run", "--partition", "dirchlet:0.3"], "dirichlet:A"),
        (["run", "--participation", "unifrom:3"], "uniform:m"),
        (["tabel", "runs"], "table"),
        (["plot", "histroy", "."], "history"),
    ],
)
def test_what_is_misspelt_or_called_otherwise_is_named(capsys, words, meant):
    assert f"did you mean {meant}?" in refused(capsys, *words)


def test_every_unknown_option_has_a_line_of_its_own(capsys):
    first, second, see = refused(capsys, "run", "--users", "3", "--clip", "1").splitlines()
    assert first == "mu2mpi: error: --users is no option here; did you mean --machines?"
    assert second == "--clip is no option here; did you mean --clip-norm?"
    assert see == "See: mu2mpi run --help"
    # What is like nothing needs all that there is.
    assert "--epsilon, " in refused(capsys, "run", "--users", "3", "--quux")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("machnes = 3", "unknown option 'machnes'; did you mean machines?"),
        ("learning_rate = 3", "did you mean eta_scale"),
        ('method = "dpsgd"', "did you mean dp-sgd?"),
        ('normalize = "units"', "did you mean unit?"),
        ("rho = [1, 2]", "lists of values are for `mu2mpi sweep`"),
        ("[rho]\nvalue = 2", "rho is a table; give it a value"),
        ("[[part]]\nrho = 2", "[[part]] tables, which make a sweep: give it to `mu2mpi sweep`"),
    ],
)
def test_so_are_keys_and_values_of_a_configuration(capsys, tmp_path, line, words):
    path = tmp_path / "a.toml"
    path.write_text(line)
    error = refused(capsys, "run", "--config", path, "--output", tmp_path / "a.h5")
    assert str(path) in error
    assert words in error


@pytest.mark.parametrize("values", [[[1, 2], [3]], [1, {"low": 2}]])
def test_a_list_in_a_list_is_told_what_a_sweep_takes(values):
    with pytest.raises(
        InputError, match=r"my\.toml: rho holds .* one list of values, such as rho = \[a, b\]"
    ):
        Sweep({"rho": values}, "my.toml")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["table", "--where", "roh=4"], "rho"),
        (["table", "--where", "clients=4"], "machines"),
        (["table", "--rows", "methd"], "method"),
        (["table", "--values", "val_loss"], "test_loss"),
    ],
)
def test_so_are_settings_and_measurements_of_results(capsys, folder, words, meant):
    assert f"did you mean {meant}?" in refused(capsys, words[0], folder, *words[1:])


def test_other_words_are_for_what_there_is_and_mean_one_thing_among_it():
    fields = option_fields()
    values = {value for field in fields.values() for value in choices(field) or ()}
    known = {*fields, *values, *command_names(), *KINDS, *TYPES, *SCORES.values(), *get_args(Format)}
    known |= {"output", "test_loss"}
    assert {name.replace("_", "-") for name in known} >= set(OTHER_WORDS)
    for some in (fields, values, TYPES):
        words = [word for name in some for word in OTHER_WORDS.get(name.replace("_", "-"), "").split()]
        assert len(set(words)) == len(words)
        for word in words:
            assert "did you mean" in did_you_mean(word, some)
    assert set(NOTES) <= {*OTHER_WORDS, *" ".join(OTHER_WORDS.values()).split()}


def test_what_is_like_nothing_known_is_answered_with_all():
    assert or_else("quux", ["rho", "seed"], "settings") == "; the settings are rho, seed"
    assert did_you_mean("sed", ["rho", "seed"]) == "; did you mean seed?"
    assert did_you_mean("", ["rho"]) == ""
    assert LEAST_ALIKE < 1
    with pytest.raises(InputError, match="did you mean epsilon"):
        Experiment(eps=2)
