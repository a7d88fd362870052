"""Fields of an experiment become options, and what is given of them becomes settings again."""

import os
import re
from typing import Literal, get_args, get_origin

import pytest
import tomli_w
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.cli import main
from mu2mpi.cli.experiment_arguments import add_field, add_run_options, explicit_settings, merged_settings
from mu2mpi.cli.program import Parser
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core.errors import CollectiveInputError, InputError
from mu2mpi.core.options import is_flag
from mu2mpi.core.registry import known_names

FIELDS = option_fields()
REGISTERED = {"loss": "losses", "method": "methods", "mechanism": "mechanisms", "server": "servers"}
REGISTERED["preset"] = "presets"
PARSER = Parser("program", allow_abbrev=False)
add_run_options(PARSER, "replacement of an existing output")
ACTIONS = {action.dest: action for action in PARSER._actions if action.dest in FIELDS}
CHOICES = {
    name: get_args(kind)
    for name, field in FIELDS.items()
    for kind in (field.annotation, *get_args(field.annotation))
    if get_origin(kind) is Literal
} | {name: tuple(known_names(kind)) for name, kind in REGISTERED.items()}
FLAGS = {name for name, field in FIELDS.items() if is_flag(field)}

texts = {
    name: st.sampled_from(CHOICES[name]) if name in CHOICES else st.from_regex(r"[a-z0-9.]+", fullmatch=True)
    for name in FIELDS
} | dict.fromkeys(FLAGS, st.just(True))
some_texts = st.fixed_dictionaries({}, optional=texts)


def words_of(settings):
    pairs = ((f"--{name.replace('_', '-')}", text) for name, text in settings.items())
    return [word for pair in pairs for word in pair if word is not True]


def test_each_field_is_one_option_with_its_values():
    assert {name: action.option_strings for name, action in ACTIONS.items()} == {
        name: [f"--{name.replace('_', '-')}"] for name in FIELDS
    }
    assert set(Experiment.model_fields) < set(FIELDS)
    assert {"estimator", "query", "preset", "batch"} <= set(FIELDS) - set(Experiment.model_fields)
    assert {name: action.choices for name, action in ACTIONS.items() if action.choices} == CHOICES
    assert {name for name, action in ACTIONS.items() if action.nargs == 0} == FLAGS
    metavars = {"machines": "N", "rho": "REAL", "data": "NAME", "features": "N|NAME", "test": "REAL|NAME"}
    assert {name: ACTIONS[name].metavar for name in metavars} == metavars


def test_help_is_the_description_with_the_default(monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    shown = PARSER.format_help()
    for field in FIELDS.values():
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        end = "" if default is None else f" [default: {default}]"
        assert f" {field.description}{end}\n" in shown


@pytest.mark.parametrize("seconds", ["0", "nan", "soon"])
def test_time_between_checkpoints_is_positive(seconds):
    assert PARSER.parse_args(["--checkpoint-every", "0.5"]).checkpoint_every == 0.5
    assert main(["run", "--checkpoint-every", seconds]) == 2


def test_an_option_may_differ_from_its_field():
    fields = option_fields()
    parser = Parser("program")
    add_field(parser, "method", fields["method"], choices=None, help="any")
    add_field(parser, "normalize", fields["normalize"], choices=("none",))
    add_field(parser, "clip_norm", fields["clip_norm"], default="2")
    assert explicit_settings(parser.parse_args(["--method", "new"])) == {"method": "new", "clip_norm": "2"}
    with pytest.raises(InputError):
        parser.parse_args(["--normalize", "unit"])


@pytest.mark.slow
@given(some_texts, some_texts)
def test_options_override_the_file_and_epsilon_and_rho_each_other(tmp_path_factory, in_file, settings):
    path = tmp_path_factory.mktemp("settings") / "experiment.toml"
    path.write_text(tomli_w.dumps(in_file))
    arguments = PARSER.parse_args(words_of(settings))
    either = {"rho", "epsilon"}
    overridden = set(settings) | (either if either & set(settings) else set())
    left = {name: text for name, text in in_file.items() if name not in overridden}
    assert merged_settings(path, arguments) == left | settings
    assert merged_settings(None, arguments) == explicit_settings(arguments) == settings


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "broken.toml").write_text("rho = ")
    (tmp_path / "deep.toml").write_text("rho = " + "[" * 100_000)
    (tmp_path / "large.toml").write_bytes(b"\n" * (1 << 20) + b"\n")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "endless.toml").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("broken", "none", "deep", "large", "folder", "endless", "pipe"):
        with pytest.raises(InputError, match=re.escape(str(tmp_path / f"{name}.toml"))):
            merged_settings(tmp_path / f"{name}.toml", PARSER.parse_args([]))


def test_an_unknown_option_is_answered_with_one_that_is_similar():
    with pytest.raises(CollectiveInputError, match=r"^unknown option --quux\nSee: \S+ --help$"):
        PARSER.reject_unknown(["--quux", "1"])
    with pytest.raises(CollectiveInputError) as caught:
        PARSER.reject_unknown(["--machnes", "1"])
    assert "--machines" in str(caught.value)
    assert "--rho" not in str(caught.value)
