"""Help of the commands that run experiments: a short first screen, all options by group, and topics."""

import re
import runpy
from pathlib import Path

import pytest

from mu2mpi import cli
from mu2mpi.cli.commands import command_names
from mu2mpi.cli.experiment_arguments import option_string
from mu2mpi.cli.help_topics import OPTION_GROUPS, option_values
from mu2mpi.cli.program import build_parser, parse
from mu2mpi.config.experiment_options import COMPONENT_KINDS, option_fields, own_option_fields
from mu2mpi.core.registry import known_names, lookup

COMMANDS = [name for name in command_names() if hasattr(lookup("commands", name), "COMMON_OPTIONS")]
MAX_WORDS = 15
OPTIONS_PAGE = Path(__file__).parents[2] / "docs" / "_ext" / "from_help.py"


def helped(capsys, *words):
    """Return the help that a command line prints."""
    with pytest.raises(SystemExit) as stop:
        cli.main([*words])
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_commands_that_share_the_options_of_an_experiment_have_topics():
    assert set(COMMANDS) == {"run", "sweep", "audit", "job"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_screen_fits_a_terminal_and_its_examples_can_be_used(
    command, capsys, tmp_path, monkeypatch
):
    text = helped(capsys, command, "--help")
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert f"mu2mpi {command} --help all" in text
    shown = re.findall(r"^  (?:-\w \w+, )?--([\w-]+)", text, re.MULTILINE)
    assert 9 <= len(shown) <= 12
    shown = text.partition("\nexamples:\n")[2].partition("\n\n")[0]
    examples = re.findall(rf"^  (?:mpirun -n \d+ )?mu2mpi ({command} .*)$", shown, re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        assert parse(example.partition(" |")[0].split()).command.__name__.endswith(f"{command}_command")


def test_the_first_screen_of_run_has_what_beginners_need(capsys):
    text = helped(capsys, "run", "--help")
    needed = {"data", "method", "preset", "server", "machines", "rounds", "epsilon", "delta", "loss"}
    assert {name for name in needed | {"seed", "output"} if f"{option_string(name)} " not in text} == set()


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_all_options_are_listed_once_in_their_group_or_under_what_has_them(command, capsys):
    text = helped(capsys, command, "--help", "all")
    sections = dict(re.findall(r"^(\S.*):\n((?:\n|  .*\n)+)", f"{text}\n", re.MULTILINE))
    assert next(iter(sections)) == "data"
    assert set(OPTION_GROUPS) <= set(sections)
    listed = {
        title: re.findall(r"^  (?:-\w \w+, )?--([\w-]+)", lines, re.MULTILINE)
        for title, lines in sections.items()
    }
    everywhere = [name for title in OPTION_GROUPS for name in listed[title]]
    assert len(everywhere) == len(set(everywhere))
    grouped = {name for members in OPTION_GROUPS.values() for name in members.split()}
    own = {name for choice in COMPONENT_KINDS for name in own_option_fields(choice)} - grouped
    assert {name.replace("_", "-") for name in option_fields().keys() - own} <= set(everywhere)
    assert not {name.replace("_", "-") for name in own} & set(everywhere)
    assert listed["options of --method dp-gd"] == ["batch", "tail", "momentum"]
    assert listed["options of --server shuffled"] == ["colluders"]
    for option in ("data", "loss", "method", "server", "mechanism", "partition", "participation", "preset"):
        for value in option_values(option):
            listed_values = f"\n{sections[f'values of --{option}']}".replace("\n", " \n")
            assert f"\n  {value.label} " in listed_values


def test_every_option_is_in_one_group():
    grouped_options = runpy.run_path(OPTIONS_PAGE)["grouped_options"]
    grouped = [name for members in grouped_options().values() for name in members]
    assert sorted(grouped) == sorted(option_fields())
    listed = " ".join(OPTION_GROUPS.values()).split()
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "kind",
    ["methods", "sources", "servers", "losses", "mechanisms", "presets", "partitions", "participation"],
)
def test_every_value_is_a_topic_with_its_own_options(command, kind, capsys):
    # The topic "all" is not the participation schedule of this name.
    for name in {*known_names(kind)} - {"all"}:
        text = helped(capsys, command, "--help", name)
        (label,) = {v.label for option in option_fields() for v in option_values(option) if v.name == name}
        assert f" {label}:" in text
        if kind in COMPONENT_KINDS.values():
            own = lookup(kind, name).options.model_fields.keys() - {"preset"}
            assert [option for option in own if f"  {option_string(option)} " not in f"{text} "] == []


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("mu2-sgd", ["--method mu2-sgd:", "--estimator", "[default: average]"]),
        ("shuffled", ["--server shuffled:", "--colluders"]),
        ("poisson", ["--loss poisson:", "--mechanism poisson:"]),
        ("file", ["--data FILE:", "--schema"]),
        ("labels", ["--labels", "--partition labels:N"]),
        ("batch", ["with --method dp-sgd:", "with --method dp-gd:"]),
        ("clip_norm", ["--clip-norm REAL"]),
        ("noise", ["--noise {aggregate}", "protects no single message"]),
        ("server", ["--server NAME", "values of --server:", "untrusted"]),
        ("federation", ["federation:", "--machines", "values of --participation:"]),
        ("model", ["model and loss:"]),
    ],
)
def test_topics(topic, words, capsys):
    text = helped(capsys, "run", "--help", topic)
    assert [word for word in words if word not in " ".join(text.split())] == []
    assert text.endswith("\n")


def test_options_of_a_job_are_not_those_of_an_experiment(capsys):
    assert "dirichlet" not in helped(capsys, "job", "--help", "partition")
    assert "dirichlet" not in helped(capsys, "job", "--help", "all")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("topic", "meant"), [("mu2sgd", "mu2-sgd"), ("learning-rate", "eta-scale"), ("qqq", "")]
)
def test_an_unknown_topic_is_bad_input_with_a_suggestion(command, topic, meant, capsys):
    assert cli.main([command, "--help", topic]) == 2
    message = capsys.readouterr().err
    assert repr(topic) in message
    assert f"did you mean {meant}" in message if meant else f"mu2mpi {command} --help all" in message


def test_extensions_are_topics(extension, capsys):
    extension("heavy_ball")
    assert "--momentum" in helped(capsys, "run", "--help", "heavy-ball-sgd")
    assert "options of --method heavy-ball-sgd:" in helped(capsys, "run", "--help", "all")


def _all_options():
    """Yield every option of every command and of every method, source, ..., as owner, flag and help."""
    for choice in COMPONENT_KINDS:
        for name, fields in own_option_fields(choice).items():
            for owner, field in fields.items():
                default = "" if field.default is None else f" [default: {field.default}]"
                yield owner, option_string(name), f"{field.description}{default}"
    own = {name for choice in COMPONENT_KINDS for name in own_option_fields(choice)}
    parsers = build_parser(command_names(), command_names())
    (commands,) = (action for action in parsers._actions if action.dest not in ("help", "version", "import"))
    for command, parser in commands.choices.items():
        for action in parser._actions:
            if action.dest not in own or command == "data":
                yield (
                    command,
                    (action.option_strings or [action.metavar])[-1],
                    str(action.help).replace("%%", "%"),
                )


def test_help_of_an_option_has_few_words():
    texts = [(owner, option, text.partition("[default")[0]) for owner, option, text in _all_options()]
    assert [(*where, text) for *where, text in texts if len(text.split()) > MAX_WORDS] == []
