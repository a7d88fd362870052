"""Help of the commands that run experiments: common options, all options by group, or one topic.

A topic of ``mu2mpi run --help TOPIC`` is an option, an option's value such as mu2-sgd, or a group of options.
"""

from argparse import Action, ArgumentParser, HelpFormatter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from mu2mpi.cli.experiment_arguments import add_field, option_string
from mu2mpi.config.experiment_options import COMPONENT_KINDS, option_fields, own_option_fields
from mu2mpi.core.options import help_details, registry_kind
from mu2mpi.core.registry import component_summary, known_names, lookup
from mu2mpi.core.suggestions import did_you_mean

# Options by group, in the order of the help; own options of a method, source, ... follow their choice
OPTION_GROUPS = {
    "data": "data data_dir normalize norm_bound",
    "model and loss": "loss l2 diameter",
    "method": "method preset rounds clip_norm eta_scale",
    "privacy": "epsilon delta rho neighbours server mechanism noise budgets",
    "federation": "machines partition participation participation_seed objective",
    "run": "config methods index part dry_run seed evaluations checkpoint_every import",
    "output": "output overwrite",
}
DEFAULT_OPTION_GROUP = "run"  # group of the options that OPTION_GROUPS does not list
_GROUP_OF_OPTION = {name: title for title, members in OPTION_GROUPS.items() for name in members.split()}


class RegisteredOptionValue(NamedTuple):
    """Registered value of an option, such as mu2-sgd of --method."""

    option: str
    component_kind: str
    name: str
    label: str  # as users write it, such as labels:N

    @property
    def title(self) -> str:
        """Option and value as on the command line, such as "--method mu2-sgd"."""
        return f"{option_string(self.option)} {self.label}"

    @property
    def summary(self) -> str:
        """Summary of this value in a few words, for the help."""
        if self.component_kind == "losses":  # whose import, of numba, takes long
            return component_summary("losses", self.name)
        component = lookup(self.component_kind, self.name)
        return getattr(component, "summary", None) or str(component.__doc__).partition("\n")[0].rstrip(".")

    @property
    def component_fields(self) -> dict[str, Any]:
        """Pydantic fields, by name, of the own options of this value, without options in OPTION_GROUPS."""
        if self.option not in COMPONENT_KINDS:
            return {}
        fields = lookup(self.component_kind, self.name).options.model_fields
        return {name: field for name, field in fields.items() if name not in _GROUP_OF_OPTION}


def command_help(parser: ArgumentParser, command: Any, topic: str | None) -> str:
    """Return the help text of a command: common options, or all options, or the options of a topic."""
    if topic is None:
        return _short_help(parser, command)
    if topic != "all":
        return _topic_help(parser, topic)
    formatter = _usage_formatter(parser)
    for title, actions in _grouped_actions(parser).items():
        _add_option_group(formatter, title, actions)
    more = f"{parser.prog} --help NAME, or docs/reference/options.md"
    return f"{formatter.format_help()}\nDetails: {more}\n"


def option_values(option: str) -> list[RegisteredOptionValue]:
    """Return the registered values of an option; an empty list for numbers and fixed choices."""
    field = option_fields().get(option)
    kind = registry_kind(field) if field else None
    names = known_names(kind) if kind else []
    return [RegisteredOptionValue(option, str(kind), name, _value_label(str(kind), name)) for name in names]


def _value_label(kind: str, name: str) -> str:
    option_syntax = getattr(lookup(kind, name), "option_syntax", name) if kind != "losses" else name
    return option_syntax.removeprefix("a ").upper() if " " in option_syntax else option_syntax


def _short_help(parser: ArgumentParser, command: Any) -> str:
    """Return a command's help without a topic: usage, common options, examples and further topics."""
    actions = {action.dest: action for action in parser._actions}
    formatter = _usage_formatter(parser)
    formatter.add_text(command.__doc__)
    _add_section(formatter, "common options", [actions[name] for name in command.COMMON_OPTIONS.split()])
    more = f"""\
more help:
  {parser.prog} --help all    all options, by group
  {parser.prog} --help NAME   a method, data set, server, loss, ..., or an option
  {" " * len(parser.prog)}               such as dp-sgd, shuffled, softmax or clip-norm
"""
    return f"{formatter.format_help()}\nexamples:\n{command.USAGE_EXAMPLES}\n\n{more}"


def _topic_help(parser: ArgumentParser, topic: str) -> str:
    """Return the help of the option, values or group of options named `topic`; InputError if unknown."""
    key = topic.lower().lstrip("-").replace("_", "-")
    groups, formatter = _grouped_actions(parser), _usage_formatter(parser)
    grouped = [action for actions in groups.values() for action in actions]
    options = {action.dest: action for action in (*_field_actions(option_fields()), *grouped)}
    values = [value for option in option_fields() for value in option_values(option)]
    # A value such as labels:N is the topic of its name, its label, and its label up to the colon.
    matches = [v for v in values if key in (v.name, v.label.lower(), v.label.lower().partition(":")[0])]
    option = next((action for name, action in options.items() if name.replace("_", "-") == key), None)
    if option is not None:
        if any(option in groups[title] for title in groups.keys() - OPTION_GROUPS.keys()):
            _add_section(formatter, "option", [option])
        else:
            _add_option(formatter, option)
    for value in matches:
        fields, summary = value.component_fields, f"{value.summary[:1].upper()}{value.summary[1:]}."
        text = summary if fields else f"{summary} It has no options of its own."
        _add_section(formatter, value.title, _with_help_details(_field_actions(fields), fields), text)
    if option is None and not matches:
        title = next((title for title in groups if key in title.split(" and ")), None)
        if title is None:
            known = [*(name.replace("_", "-") for name in options), *(value.name for value in values)]
            hint = did_you_mean(key, known) or f"; {parser.prog} --help all lists them"
            parser.error(f"no option or value of one is called {topic!r}{hint}")
        _add_option_group(formatter, title, groups[title])
    return formatter.format_help()


def _usage_formatter(parser: ArgumentParser) -> HelpFormatter:
    formatter, arguments = parser._get_formatter(), parser._get_positional_actions()
    metavars = [f"[{a.metavar}]" if a.nargs == "?" else str(a.metavar) for a in arguments]
    formatter.add_usage(" ".join(["%(prog)s", *metavars, "[OPTION ...]"]), [], [])
    return formatter


def _grouped_actions(parser: ArgumentParser) -> dict[str, list[Action]]:
    """Return a parser's options by group, without own options of methods, sources, servers, mechanisms."""
    defaults, special = parser._action_groups[:2], parser._action_groups[2:]
    actions = {action.dest: action for group in defaults for action in group._group_actions}
    own_names = {*chain(*map(own_option_fields, COMPONENT_KINDS))} - _GROUP_OF_OPTION.keys()
    order = [*_GROUP_OF_OPTION, *actions]
    groups: dict[str, list[Action]] = {title: [] for title in OPTION_GROUPS}
    for name in sorted(actions, key=order.index):
        if name not in own_names and name != "help":
            groups[_GROUP_OF_OPTION.get(name, DEFAULT_OPTION_GROUP)].append(actions[name])
    return groups | {str(group.title): group._group_actions for group in special}


def _field_actions(fields: dict[str, Any]) -> list[Action]:
    parser = ArgumentParser(add_help=False)
    for name, field in fields.items():
        add_field(parser, name, field)
    return parser._actions


def _add_section(formatter: HelpFormatter, title: str, actions: Sequence[Action], text: str = "") -> None:
    formatter.start_section(title)
    formatter.add_text(text or None)
    formatter.add_arguments(actions)
    formatter.end_section()


def _add_option_group(formatter: HelpFormatter, title: str, actions: Sequence[Action]) -> None:
    """Add a group's options to the help and, in OPTION_GROUPS, their registered values with own options."""
    _add_section(formatter, title, actions)
    for values in (option_values(action.dest) for action in actions if title in OPTION_GROUPS):
        _add_registered_values(formatter, values)
        for value in values:
            if fields := value.component_fields:
                _add_section(formatter, f"options of {value.title}", _field_actions(fields))


def _add_registered_values(formatter: HelpFormatter, values: Sequence[RegisteredOptionValue]) -> None:
    actions = [Action([], v.name, metavar=v.label, help=v.summary.replace("%", "%%")) for v in values]
    if values:
        _add_section(formatter, f"values of {option_string(values[0].option)}", actions)


def _add_option(formatter: HelpFormatter, action: Action) -> None:
    """Add an option with details and registered values to the help, once per component that defines it."""
    values = chain(*map(option_values, COMPONENT_KINDS))
    owners = [value for value in values if action.dest in value.component_fields]
    for value in owners:
        fields = {action.dest: value.component_fields[action.dest]}
        _add_section(formatter, f"with {value.title}", _with_help_details(_field_actions(fields), fields))
    if not owners:
        _add_section(formatter, "option", _with_help_details([action], option_fields()))
    _add_registered_values(formatter, option_values(action.dest))


def _with_help_details(actions: list[Action], fields: dict[str, Any]) -> list[Action]:
    """Append the details of their pydantic fields to the help of argparse actions, and return them."""
    for action in actions:
        if action.dest in fields and (text := help_details(fields[action.dest])):
            action.help = f"{action.help}. {text.replace('%', '%%')}"
    return actions
