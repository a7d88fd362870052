"""All options, those of every experiment and those of its method, server and source, as one flat list."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from itertools import chain
from operator import or_
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mu2mpi.config.fields import OF_MACHINES, ExperimentOptions
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.core.suggestions import did_you_mean, or_else

_CHOOSERS = ("data", "method", "mechanism", "server")  # options whose values have options of their own


def option_fields() -> dict[str, FieldInfo]:
    """Return all options by name, those of methods and so on behind the option that chooses these."""
    return _option_fields(tuple(chain(*map(_owners, _CHOOSERS))))


@cache
def _option_fields(known: tuple[tuple[str, type[BaseModel]], ...]) -> dict[str, FieldInfo]:
    """Return the same while these are the sources, methods and servers."""
    own = [name for chooser in _CHOOSERS for name in own_options(chooser)]
    counts = Counter([*ExperimentOptions.model_fields, *own])
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise InputError(f"an extension gives {', '.join(repeated)} a second meaning. Rename that option")
    fields: dict[str, FieldInfo] = {}
    for name, field in ExperimentOptions.model_fields.items():
        fields[name] = field
        # The key of the noise is derived from settings in this order: another one is other noise.
        for chooser in {"method": ("mechanism", "method"), "mechanism": ()}.get(name, (name,)):
            fields |= {other: _merged(parts) for other, parts in own_options(chooser).items()}
    return fields


def _owners(chooser: str) -> tuple[tuple[str, type[BaseModel]], ...]:
    """Return the names that an option such as ``method`` may have, with the options of each."""
    kinds = {"data": "sources", "method": "methods", "mechanism": "mechanisms", "server": "servers"}
    kind = kinds.get(chooser)
    things = [(name, find(kind, name)) for name in names(kind)] if kind else []
    return tuple((thing.form if chooser == "data" else name, thing.options) for name, thing in things)


def own_options(chooser: str) -> dict[str, dict[str, FieldInfo]]:
    """Return options, by name, that only some methods, servers or sources have, and of each those that do."""
    return _own_options(_owners(chooser))


@cache
def _own_options(owners: tuple[tuple[str, type[BaseModel]], ...]) -> dict[str, dict[str, FieldInfo]]:
    found: dict[str, dict[str, FieldInfo]] = {}
    for owner, model in owners:
        for name, field in model.model_fields.items():
            found.setdefault(name, {})[owner] = field
    return found


def method_options() -> list[str]:
    """Return the names of options of methods and mechanisms, without those that choose other settings."""
    presets = {name for method in names("methods") for name in find("methods", method).presets}
    return [name for kind in ("mechanism", "method") for name in own_options(kind) if name not in presets]


def implied_mechanism(settings: Mapping[str, Any]) -> str | None:
    """Return the mechanism whose own options are among some settings; None if there are none."""
    own = own_options("mechanism")
    return next((next(iter(own[n])) for n, value in settings.items() if n in own and value is not None), None)


def _merged(parts: Mapping[str, FieldInfo]) -> FieldInfo:
    """Return the option that several have in common, with the help of each, and the first as its title."""
    helps: dict[str, list[str]] = {}
    for owner, field in parts.items():
        default = "" if field.default is None else f" [default: {field.default}]"
        helps.setdefault(f"{field.description}{default}", []).append(owner)
    text = "; ".join(f"{', '.join(owners)}: {words}" for words, owners in helps.items())
    kinds: Iterable[Any] = (field.annotation for field in parts.values())
    first = next(iter(parts.values()))
    return FieldInfo(
        annotation=reduce(or_, kinds),
        default=None,
        description=text,
        title=first.description,
        json_schema_extra=first.json_schema_extra,
    )


def preset_method(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the method that a preset prefers if none is named; refuse booleans where none belong."""
    fields = option_fields()
    for name in fields.keys() & settings.keys():
        if isinstance(settings[name], bool) and not takes_boolean(fields[name]):
            raise InputError(f"{name} = {settings[name]} should be a number or a name, not a boolean")
    given = {name for name, value in settings.items() if value is not None}
    if settings.get("preset") not in names("presets"):
        return {}
    # Which method is best with another mechanism, or where machines differ, is another question.
    if given & {"method", "mechanism", *OF_MACHINES} or implied_mechanism(settings):
        return {}
    of_methods, best = own_options("method"), find("presets", settings["preset"]).method
    takes_all = all(best in of_methods[name] for name in given & of_methods.keys())
    return {"method": best} if best is not None and takes_all else {}


def options_for(chosen: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, BaseModel]:
    """Return the options of the source and so on that were chosen, from settings that only some have."""
    lines = []
    known = {kind: own_options(kind) for kind in chosen}
    taken: dict[str, dict[str, Any]] = {kind: {} for kind in chosen}
    for name, value in settings.items():
        having = [kind for kind in chosen if name in known[kind]]
        own = next((kind for kind in having if chosen[kind] in known[kind][name]), None)
        if own is not None:
            taken[own] |= {} if value is None else {name: value}
        elif not having:
            lines.append(f"unknown option {name!r}{or_else(name, option_fields(), 'options')}")
        elif value is not None:
            kind = having[0]
            whose = f"{kind} = {' or '.join(known[kind][name])}"
            lines.append(f"{name} applies to {whose} only, and {kind} is {chosen[kind]}; leave it out")
    parts = {}
    for kind, values in taken.items():
        try:
            parts[kind] = dict(_owners(kind))[chosen[kind]](**values)
        except ValidationError as error:
            lines.append(explained(error))
    if lines:
        raise InputError("\n".join(lines))
    return parts


def choices(field: FieldInfo) -> tuple[str, ...] | None:
    """Return the values that an option may have, or None if they are not a short list of names."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "kind" in extra:
        return tuple(names(str(extra["kind"])))
    kinds = (field.annotation, *get_args(field.annotation))
    literal = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    return get_args(literal) if literal else None


def takes_boolean(field: FieldInfo) -> bool:
    """Return whether an option is a matter of yes or no."""
    return bool in (field.annotation, *get_args(field.annotation))


def explained(error: ValidationError) -> str:
    """Turn what pydantic complains of into a line for each option."""
    return "\n".join(map(_explain, error.errors()))


def _explain(problem: Any) -> str:
    """Turn one pydantic error into one line about one option."""
    location = ".".join(str(part) for part in problem["loc"])
    if not location:
        return str(problem["msg"]).removeprefix("Value error, ")
    if isinstance(problem["input"], list):
        return f"{location} is a list; lists of values are for `mu2mpi sweep`"
    if isinstance(problem["input"], dict):
        return f"{location} is a table; give it a value, as in {location} = ..."
    message = str(problem["msg"]).removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
    if problem["type"] == "literal_error" and location in option_fields():
        message += did_you_mean(str(problem["input"]), choices(option_fields()[location]) or ())
    for bound in {"gt", "ge", "lt", "le"} & problem.get("ctx", {}).keys():
        # Where pydantic writes out hundreds of zeros.
        message = f"{message.rpartition(' ')[0]} {repr(problem['ctx'][bound]).removesuffix('.0')}"
    return f"{location} = {problem['input']!r} {message}"
