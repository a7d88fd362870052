"""Sphinx: the pages of commands and of options, from what makes ``--help``.

A page holds ``<!-- commands -->`` or ``<!-- options -->`` where they belong.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic.fields import FieldInfo

from mu2mpi.cli.commands import command_names
from mu2mpi.cli.program import parser_of
from mu2mpi.config.experiment_options import choices, option_fields, own_options, takes_boolean
from mu2mpi.core.registry import find, names as known_names

if TYPE_CHECKING:
    from sphinx.application import Sphinx

GROUPS = {
    "What is learned, and from what": "data loss normalize norm_bound l2 samples features classes data_seed "
    "margin label_noise heterogeneity schema labels test missing_labels feature_bound label_range strict "
    "data_is_public",
    "Who takes part": "machines partition participation participation_seed objective",
    "Privacy": "rho epsilon delta budgets server colluders masks shuffle mechanism noise noise_correlation "
    "noise_buffers",
    "Method": "method preset estimator query",
    "Steps": "rounds batch tail momentum diameter clip_norm eta_scale",
    "Seed and output": "seed evaluations",
}
"""Options by what they are about, in the order of the page."""

OF_EXPERIMENT = "the experiment"
"""How the title of their group begins in the help of a command; they have a page of their own."""

KINDS = {int: "a whole number", float: "a number", str: "text"}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}

DOCS = Path(__file__).parents[1]
WORDS = re.compile(
    r"(?P<code>`[^`]+`)|(?P<flag>--[a-z][a-z0-9-]*)|\(docs/(?P<page>[\w/-]+\.md)(?: says which)?\)"
    r"|(?P<sign>[*_<>`|\[\]\\$])"
)
"""What in a help is no plain text for Markdown: code, flags, pages, and signs that have a meaning there."""

DEFAULT = re.compile(r" ?\[default: (?P<default>[^\]]*)\]")


def grouped_options() -> dict[str, list[str]]:
    """Return the names of all options by group; raises ValueError unless each is in one."""
    groups = {title: names.split() for title, names in GROUPS.items()}
    named, known = [name for names in groups.values() for name in names], option_fields()
    if sorted(named) != sorted(known):
        wrong = {*named} ^ {*known} or {name for name in named if named.count(name) > 1}
        raise ValueError(f"GROUPS in {__file__} should name once: {', '.join(sorted(wrong))}")
    return groups


def options_page() -> str:
    """Return all options by group, in Markdown."""
    parts = []
    for title, members in grouped_options().items():
        parts += [f"## {title}", *("\n".join(_option(name)) for name in members)]
    return "\n\n".join(parts)


def _option(name: str) -> Iterator[str]:
    chooser = next((of for of in ("data", "method", "server") if name in own_options(of)), "")
    fields = own_options(chooser).get(name)
    flag, alike = f"--{name.replace('_', '-')}", _alike(fields or {"": option_fields()[name]})
    yield f"### {name}\n"
    for owners, field in alike:
        whose = f"`{chooser}` {_listed(owners)}"
        if len(alike) > 1:
            yield f"With {whose}:"
        yield f"{_sentence(_without_default(field), choices(field) or ())}\n"
        yield f"- flag: `{flag}`" + ("" if takes_boolean(field) else f", values: {_values(field)}")
        if told := _summaries(field):
            yield "\n".join(f"  - `{name}`: {_marked(words)}" for name, words in told.items())
        yield f"- default: {_default(field)}"
        if chooser and len(alike) == 1:
            yield f"- only with {whose}"
        yield ""


def _alike(fields: dict[str, FieldInfo]) -> list[tuple[list[str], FieldInfo]]:
    """Return the forms of an option, and who has each."""
    forms: dict[tuple[object, ...], tuple[list[str], FieldInfo]] = {}
    for owner, field in fields.items():
        form = (field.description, field.default, str(field.annotation))
        forms.setdefault(form, ([], field))[0].append(owner)
    return list(forms.values())


def _listed(names: list[str]) -> str:
    """Return names as code, but for what is no name, such as "a file"."""
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


def _summaries(field: FieldInfo) -> dict[str, str]:
    """Return a few words about each thing that an option chooses, where it has some."""
    extra = field.json_schema_extra
    kind = str(extra.get("kind", extra.get("forms"))) if isinstance(extra, dict) else ""
    things = [find(kind, name) for name in known_names(kind)] if kind else []
    told = {getattr(one, "form", one.name): getattr(one, "summary", "") for one in things}
    return {name: words for name, words in told.items() if words}


def _number(number: Any) -> str:
    """Return a number as people write it: large powers of two as such."""
    if isinstance(number, int) and number > 10**9 and number.bit_count() == 1:
        return "2" + str(number.bit_length() - 1).translate(SUPERSCRIPTS)
    return f"{number:g}" if isinstance(number, float) else f"{number:,}"


def _default(field: FieldInfo) -> str:
    said = DEFAULT.search(str(field.description))
    if said:
        return _marked(said["default"])
    if field.default is None:
        return "not set"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _without_default(field: FieldInfo) -> str:
    return DEFAULT.sub("", str(field.description))


def commands_page() -> str:
    """Return all commands with their options, in Markdown."""
    names = command_names()
    parser = parser_of(names, names)
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: str(choice.help) for choice in commands._choices_actions}
    lines = [f"- [`mu2mpi {name}`](#mu2mpi-{name}): {_marked(summaries[name])}" for name in names]
    return "\n".join([*lines, *("\n".join(_command(name, commands.choices[name])) for name in names)])


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()
    yield f"\n## mu2mpi {name}\n\n{_sentence(str(parser.description))}\n"
    yield f"```{{program}} mu2mpi {name}\n```\n"
    for group in parser._action_groups:
        if str(group.title).startswith(OF_EXPERIMENT):
            yield "All [options of an experiment](options.md) may follow.\n"
            continue
        for action in group._group_actions:
            if action.dest == "help":
                continue
            metavar = formatter._metavar_formatter(action, action.dest)(1)[0]
            value = "" if action.nargs == 0 else f" {metavar}"
            flags = ", ".join(f"{flag}{value}" for flag in action.option_strings) or metavar
            words = formatter._expand_help(action) if action.help else f"One of {metavar.strip('{}')}"
            yield f"```{{option}} {flags}\n{_sentence(words)}\n```\n"


def _sentence(text: str, names: tuple[str, ...] = ()) -> str:
    """Return a help as a sentence in Markdown; a name at its beginning stays as it is."""
    text = text.strip().removesuffix(".")
    first, space, rest = text.partition(" ")
    begin = f"`{first}`" if first in names else text[0].upper() + first[1:]
    return f"{_marked(begin + space + rest)}."


def _marked(text: str) -> str:
    """Return a help in Markdown, with links to the pages that it names."""
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
    """Put what is made into a page that asks for it."""
    for mark, make in (("<!-- commands -->", commands_page), ("<!-- options -->", options_page)):
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def setup(app: "Sphinx") -> dict[str, Any]:
    """Have marks replaced when pages are read."""
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True}
