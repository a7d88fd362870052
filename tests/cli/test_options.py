"""Fields of an experiment become options, and what is given of them becomes settings again."""

import argparse
import os
import re
from typing import Literal, get_args, get_origin

import pytest
import tomli_w
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.cli.options import add_field, add_running_options, given_settings, merged_settings
from mu2mpi.cli.program import Parser
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.options import option_fields, takes_boolean
from mu2mpi.errors import InputError, SharedInputError
from mu2mpi.methods.dp_sgd import DpSgdOptions
from mu2mpi.registry import find, names

FIELDS = option_fields()
REGISTERED = {"loss": "problems", "method": "methods", "mechanism": "mechanisms", "server": "servers"}


def options() -> tuple[Parser, dict[str, argparse.Action]]:
    """Return a parser with the options of a run, and these options by the names of their fields."""
    parser = Parser("program", allow_abbrev=False)
    add_running_options(parser)
    return parser, {action.dest: action for action in parser._actions if action.dest in FIELDS}


PARSER, ACTIONS = options()

CHOICES = {
    name: get_args(kind)
    for name, field in FIELDS.items()
    for kind in (field.annotation, *get_args(field.annotation))
    if get_origin(kind) is Literal
} | {name: tuple(names(kind)) for name, kind in REGISTERED.items()}

FLAGS = {name for name, field in FIELDS.items() if takes_boolean(field)}

texts = {
    name: st.sampled_from(CHOICES[name]) if name in CHOICES else st.from_regex(r"[a-z0-9.]+", fullmatch=True)
    for name in FIELDS
} | dict.fromkeys(FLAGS, st.just(True))
some_texts = st.fixed_dictionaries({}, optional=texts)


def words_of(settings):
    pairs = ((f"--{name.replace('_', '-')}", text) for name, text in settings.items())
    return [word for pair in pairs for word in pair if word is not True]


def test_each_field_is_one_option_in_its_order():
    assert list(ACTIONS) == list(FIELDS)
    assert [action.option_strings for action in ACTIONS.values()] == [
        [f"--{name.replace('_', '-')}"] for name in FIELDS
    ]


def test_options_of_methods_stand_beside_those_of_every_experiment():
    assert set(Experiment.model_fields) < set(FIELDS)
    assert {"estimator", "query", "preset", "batch"} <= set(FIELDS) - set(Experiment.model_fields)
    description = DpSgdOptions.model_fields["batch"].description
    assert f"dp-sgd: {description}" in FIELDS["batch"].description
    assert "noisy-minibatch-sgd: " in FIELDS["batch"].description


def test_choices_are_the_values_of_the_field():
    assert {name: action.choices for name, action in ACTIONS.items() if action.choices} == CHOICES
    assert {"server", "estimator"} <= set(CHOICES)
    assert {"mu2-sgd", "dp-sgd"} <= set(CHOICES["method"])


@pytest.mark.parametrize(
    ("name", "metavar"),
    [("machines", "N"), ("rho", "REAL"), ("data", "NAME"), ("features", "N|NAME"), ("test", "REAL|NAME")],
)
def test_what_an_option_takes_is_named_by_its_type(name, metavar):
    assert ACTIONS[name].metavar == metavar
    without = {name for name, action in ACTIONS.items() if not (action.choices or action.metavar)}
    assert without == FLAGS == {"strict", "data_is_public"}
    assert all(ACTIONS[name].nargs == 0 for name in FLAGS)


def test_help_is_the_description_and_the_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    shown = PARSER.format_help()
    for field in FIELDS.values():
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        end = "" if default is None else f" [default: {default}]"
        # Between the two may be a few words about each choice.
        assert re.search(f" {re.escape(str(field.description))}(: .*)?{re.escape(end)}\n", shown)


def test_help_says_what_each_method_and_trust_mode_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    shown = PARSER.format_help()
    for kind in ("methods", "servers"):
        for name in names(kind):
            words = find(kind, name).summary
            assert (f"{name}, {words}" if words else name) in shown


@pytest.mark.parametrize(("seconds", "words"), [("0", "positive"), ("nan", "positive"), ("soon", "soon")])
def test_time_between_checkpoints_is_positive(seconds, words):
    assert PARSER.parse_args(["--checkpoint-every", "0.5"]).checkpoint_every == 0.5
    with pytest.raises(InputError, match=words):
        PARSER.parse_args(["--checkpoint-every", seconds])


def test_an_option_may_differ_from_its_field():
    parser = Parser("program")
    add_field(parser, "method", choices=None, help="any")
    add_field(parser, "normalize", choices=("none",))
    add_field(parser, "clip_norm", default="2")
    assert given_settings(parser.parse_args(["--method", "new"])) == {"method": "new", "clip_norm": "2"}
    assert "--method NAME" in parser.format_help()
    with pytest.raises(InputError, match="unit"):
        parser.parse_args(["--normalize", "unit"])


@given(some_texts)
def test_settings_are_those_that_were_given(settings):
    assert given_settings(PARSER.parse_args(words_of(settings))) == settings


@given(some_texts, some_texts)
def test_options_override_the_file_and_epsilon_and_rho_each_other(tmp_path_factory, in_file, settings):
    path = tmp_path_factory.mktemp("settings") / "experiment.toml"
    path.write_text(tomli_w.dumps(in_file))
    merged = merged_settings(path, PARSER.parse_args(words_of(settings)))
    either = {"rho", "epsilon"}
    overridden = set(settings) | (either if either & set(settings) else set())
    assert merged == {name: text for name, text in in_file.items() if name not in overridden} | settings


@pytest.mark.parametrize(("there", "here"), [("rho", "epsilon"), ("epsilon", "rho")])
def test_epsilon_and_rho_override_each_other(tmp_path, there, here):
    path = tmp_path / "experiment.toml"
    path.write_text(f"{there} = 2.0\nseed = 1\n")
    assert merged_settings(path, PARSER.parse_args([f"--{here}", "3"])) == {"seed": 1, here: "3"}
    assert merged_settings(path, PARSER.parse_args([])) == {"seed": 1, there: 2.0}


def test_without_a_file_the_settings_are_those_given():
    assert merged_settings(None, PARSER.parse_args(["--rho", "3", "--seed", "1"])) == {
        "rho": "3",
        "seed": "1",
    }


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "broken.toml").write_text("rho = ")
    (tmp_path / "deep.toml").write_text("rho = " + "[" * 100_000)
    (tmp_path / "digits.toml").write_text("seed = " + "1" * 5000)
    (tmp_path / "large.toml").write_bytes(b"\n" * (1 << 20) + b"\n")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("broken", "none", "deep", "digits", "large", "folder", "endless", "pipe"):
        name = f"{name}.toml"
        with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
            merged_settings(tmp_path / name, PARSER.parse_args([]))


def test_an_unknown_option_is_answered_with_those_there_are():
    with pytest.raises(SharedInputError) as caught:
        PARSER.refuse(["--quux", "1"])
    first, listed, see = str(caught.value).splitlines()
    assert first == "unrecognized arguments: --quux 1"
    assert listed.removeprefix("the options are ").split(", ") == [
        *("--help", "--data-dir", "--checkpoint-every"),
        *(f"--{name.replace('_', '-')}" for name in FIELDS),
    ]
    assert see == "See: program --help"


def test_another_error_lists_no_options():
    with pytest.raises(SharedInputError) as caught:
        PARSER.parse_args(["--server", "honest"])
    assert "honest" in str(caught.value)
    assert "the options are" not in str(caught.value)
