"""Sphinx extension: reference pages of commands and options, from the declarations behind ``--help``.

A page marks their place by ``<!-- commands -->`` or ``<!-- options -->``.
"""

import argparse
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.commands import command_names
from mu2mpi.cli.experiment_arguments import help_text, option_string
from mu2mpi.cli.help_topics import OPTION_GROUPS, option_values
from mu2mpi.cli.program import build_parser
from mu2mpi.config.experiment_options import COMPONENT_KINDS, option_fields, own_option_fields
from mu2mpi.core.options import choices, help_details, is_flag

if TYPE_CHECKING:
    from sphinx.application import Sphinx

KINDS = {int: "a whole number", float: "a number", str: "text"}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}

DOCS = Path(__file__).parents[1]
WORDS = re.compile(
    r"(?P<code>`[^`]+`)|(?P<flag>--[a-z][a-z0-9-]*)|\(docs/(?P<page>[\w/-]+\.md)(?: says which)?\)"
    r"|(?P<sign>[*_<>`|\[\]\\$])"
)
"""Parts of a help text that Markdown needs marked or escaped: code, flags, pages and special characters."""

DEFAULT = re.compile(r" ?\[default: (?P<default>[^\]]*)\]")


def options_page() -> str:
    """Return all options by group, in Markdown."""
    parts = []
    for title, members in grouped_options().items():
        if members:
            heading = title[:1].upper() + title[1:]
            parts += [f"## {heading}", *("\n".join(_option(name)) for name in members)]
    return "\n\n".join(parts)


def grouped_options() -> dict[str, list[str]]:
    """Return the names of an experiment's options by group; own options of components come last."""
    fields, listed = option_fields(), " ".join(OPTION_GROUPS.values()).split()
    groups = {}
    for title, members in OPTION_GROUPS.items():
        names = [name for name in members.split() if name in fields]
        own_names = [own for name in names for own in own_option_fields(name) if own not in listed]
        groups[title] = list(dict.fromkeys([*names, *own_names]))
    return groups


def _option(name: str) -> Iterator[str]:
    choice = next((option for option in COMPONENT_KINDS if name in own_option_fields(option)), "")
    fields = own_option_fields(choice).get(name)
    variants = _variants(fields or {"": option_fields()[name]})
    yield f"### {name}\n"
    for owners, field in variants:
        condition = f"`{choice}` {_listed(owners)}"
        if len(variants) > 1:
            yield f"With {condition}:"
        text = _sentence(DEFAULT.sub("", str(field.description)), choices(field) or ())
        yield f"{text} {_marked(help_details(field))}".rstrip() + "\n"
        yield f"- flag: `{option_string(name)}`" + ("" if is_flag(field) else f", values: {_values(field)}")
        if summaries := {value.label: value.summary for value in option_values(name)}:
            yield "\n".join(f"  - `{label}`: {_marked(words)}" for label, words in summaries.items())
        yield f"- default: {_default(field)}"
        if choice and len(variants) == 1:
            yield f"- only with {condition}"
        yield ""


def _variants(fields: dict[str, FieldInfo]) -> list[tuple[list[str], FieldInfo]]:
    """Return the distinct declarations of an option, each with the methods, sources, ... that have it."""
    variants: dict[tuple[object, ...], tuple[list[str], FieldInfo]] = {}
    for owner, field in fields.items():
        key = (field.description, field.default, str(field.annotation))
        variants.setdefault(key, ([], field))[0].append(owner)
    return list(variants.values())


def _listed(names: Iterable[str]) -> str:
    """Return names as code, and "a file" as it is."""
    return ", ".join(name if " " in name else f"`{name}`" for name in names)


def _values(field: FieldInfo) -> str:
    if (names := choices(field)) is not None:
        return ", ".join(f"`{name}`" for name in names)
    annotated = (field.annotation, *get_args(field.annotation))
    words = " or ".join(word for kind, word in KINDS.items() if kind in annotated)
    bounds = [
        f"{how} {_number(getattr(part, name))}"
        for part in field.metadata
        for name, how in BOUNDS.items()
        if getattr(part, name, None) is not None
    ]
    return " ".join(filter(None, [words, " and ".join(bounds)]))


def _number(number: Any) -> str:
    """Format a number: large powers of two as powers, others with thousands separators."""
    if isinstance(number, int) and number > 10**9 and number.bit_count() == 1:
        return "2" + str(number.bit_length() - 1).translate(SUPERSCRIPTS)
    return f"{number:g}" if isinstance(number, float) else f"{number:,}"


def _default(field: FieldInfo) -> str:
    if column_metadata := DEFAULT.search(str(field.description)):
        return _marked(column_metadata["default"])
    if field.default is None:
        return "not set"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def commands_page() -> str:
    """Return all commands and their options, in Markdown."""
    names = command_names()
    parser = build_parser(names, names)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: str(choice.help) for choice in commands._choices_actions}
    lines = [f"- [`mu2mpi {name}`](#mu2mpi-{name}): {_marked(summaries[name])}" for name in names]
    return "\n".join([*lines, *("\n".join(_command(name, commands.choices[name])) for name in names)])


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter, fields = parser._get_formatter(), option_fields()
    yield f"\n## mu2mpi {name}\n\n{_sentence(str(parser.description))}\n"
    yield f"```{{program}} mu2mpi {name}\n```\n"
    shared = []
    for action in parser._actions:
        if action.dest in fields and action.help == help_text(fields[action.dest]):
            shared.append(action.dest)
        elif action.dest != "help":
            metavar = formatter._metavar_formatter(action, action.dest)(1)[0]
            value = "" if action.nargs == 0 else f" {metavar}"
            flags = ", ".join(f"{option}{value}" for option in action.option_strings) or metavar
            text = formatter._expand_help(action) if action.help else f"One of {metavar.strip('{}')}"
            yield f"```{{option}} {flags}\n{_sentence(text)}\n```\n"
    if len(shared) == len(fields):
        yield "All [options of an experiment](options.md) may be given, too.\n"
    elif shared:
        flags = _listed(option_string(option) for option in shared)
        yield f"These [options of an experiment](options.md) may be given, too: {flags}.\n"


def _sentence(text: str, names: tuple[str, ...] = ()) -> str:
    """Return a help text as a sentence in Markdown, in which a name at the beginning stays lower-case."""
    text = text.strip().removesuffix(".")
    first, space, rest = text.partition(" ")
    begin = f"`{first}`" if first in names else text[0].upper() + first[1:]
    return f"{_marked(begin + space + rest)}."


def _marked(text: str) -> str:
    """Return a help text in Markdown, with links to the pages that it names."""
    return WORDS.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    match found.lastgroup:
        case "code":
            return found[0]
        case "flag":
            return f"`{found[0]}`"
        case "sign":
            return f"\\{found[0]}"
    title = re.search(r"^# (.*)$", (DOCS / found["page"]).read_text(), re.MULTILINE)
    assert title is not None
    return f"(see [{title[1]}](../{found['page']}))"


def fill_in(app: "Sphinx", name: str, source: list[str]) -> None:
    """Replace the marks of a page by the generated Markdown."""
    for mark, make in (("<!-- commands -->", commands_page), ("<!-- options -->", options_page)):
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def setup(app: "Sphinx") -> dict[str, Any]:
    """Register `fill_in` for the pages that Sphinx reads."""
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True}
