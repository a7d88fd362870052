"""Suggestions for misspelt names and for synonyms of other packages."""

import numpy as np
import pytest

from mu2mpi import cli
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import did_you_mean, suggest_or_list


def rejection(capsys, *words):
    """Return the message of the command line about arguments that it rejects."""
    assert cli.main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["run", "--eps=2"], "--epsilon"),
        (["run", "--clients", "5"], "--machines"),
        (["run", "--machnes", "5"], "--machines"),
        (["run", "--batch_size", "5"], "--batch"),
        (["run", "--learning-rate", "5"], "--eta-scale, in units of what theory allows"),
        (["sweep", "a.toml", "--radius", "1"], "--diameter, which is twice the radius"),
        (["audit", "--iterations", "5"], "--rounds"),
        (["show", "a.h5", "--diagnostic"], "--diagnostics"),
        (["run", "--server", "secure_aggregation"], "aggregated"),
        (["run", "--method", "dpsgd"], "dp-sgd"),
        (["run", "--partition", "dirchlet:0.3"], "dirichlet:A"),
        (["tabel", "runs"], "table"),
        (["sweep", "--list"], "--dry-run"),
        (["plot", "histroy", "."], "history"),
    ],
)
def test_misspelt_names_and_synonyms_are_suggested(capsys, words, meant):
    assert f"did you mean {meant}?" in rejection(capsys, *words)


def test_every_unknown_option_has_a_line_of_its_own(capsys):
    lines = rejection(capsys, "run", "--users", "3", "--clip", "1").splitlines()
    assert ["--machines?" in lines[0], "--clip-norm?" in lines[1], len(lines)] == [True, True, 3]
    lines = rejection(capsys, "run", "--users", "3", "--quux").splitlines()
    assert lines[1:] == ["unknown option --quux", "See: mu2mpi run --help"]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("machnes = 3", "did you mean machines?"),
        ("learning_rate = 3", "did you mean eta_scale"),
        ('method = "dpsgd"', "did you mean dp-sgd?"),
        ("rho = [1, 2]", "`mu2mpi sweep`"),
        ("[[part]]\nrho = 2", "`mu2mpi sweep`"),
    ],
)
def test_keys_and_values_of_a_configuration_are_suggested(capsys, tmp_path, line, meant):
    path = tmp_path / "a.toml"
    path.write_text(line)
    error = rejection(capsys, "run", "--config", path, "--output", tmp_path / "a.h5")
    assert str(path) in error
    assert meant in error


def test_an_unknown_name_without_similar_ones_gets_the_list():
    assert suggest_or_list("quux", ["rho", "seed"], "settings") == "; the settings are rho, seed"
    assert did_you_mean("sed", ["rho", "seed"]) == "; did you mean seed?"
    assert did_you_mean("", ["rho"]) == ""
    with pytest.raises(InputError, match="epsilon"):
        Experiment(eps=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": np.zeros((100, 3))}, "data should be a number or a name, not of type ndarray. Pass arrays"),
        ({"preset": np.zeros(3)}, "preset should be a number or a name, not of type ndarray"),
        ({"quux": 3}, "unknown option 'quux'; `mu2mpi run --help all` lists all settings"),
        ({"method": "storm", "batch": 3}, "batch needs method = one of accelerated-srgd, dp-gd, "),
        ({"colluders": 1}, "colluders needs server = aggregated or shuffled; got server = untrusted"),
        ({"server": "central"}, "server = 'central' should be one of aggregated, shuffled, trusted, "),
    ],
)
def test_messages_are_one_line_whatever_is_given(settings, message):
    with pytest.raises(InputError) as caught:
        Experiment(**settings)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 220
