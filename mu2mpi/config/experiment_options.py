"""All options, those of every experiment and those of its method, server and source, as one flat list."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from itertools import chain
from operator import or_
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import LEAST, MOST, check_file_name, registered
from mu2mpi.core.registry import default, find, names
from mu2mpi.core.suggestions import did_you_mean, or_else
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import find_source
from mu2mpi.federation.participation.schedule import check_participation
from mu2mpi.privacy.accounting.gaussian_dp import SMALLEST_DELTA
from mu2mpi.privacy.accounting.guarantee import affordable_rho

OF_MACHINES = ("participation", "objective", "budgets")  # by which machines differ, or are away
# Options whose values have options of their own, and the kinds of these values
_CHOOSERS = {"data": "sources", "method": "methods", "mechanism": "mechanisms", "server": "servers"}


def _choice(kind: str, value: str | None, description: str, key: str = "kind") -> Any:
    """Declare an option that names a registered thing, and if the key is ``forms``, perhaps a value of it."""
    return Field(value, description=description, json_schema_extra={key: kind})


def _size(description: str, value: float | None = None) -> Any:
    """Declare a positive number."""
    return Field(value, ge=LEAST, le=MOST, description=description)


def _whole(description: str, least: int = 1, bits: int = 32) -> Any:
    """Declare a whole number that is not given by default."""
    return Field(None, ge=least, lt=2**bits, description=description)


class ExperimentOptions(BaseModel):
    """The options that every experiment has, whatever its source, method, mechanism and trust mode."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=False)

    data: str = _choice("sources", "digits", "data set, or a file of your own (docs/guides/data.md)", "forms")
    partition: str | None = _choice(
        "partitions", None, "which machine gets which samples [default: owner if named, or iid]", "forms"
    )
    loss: str = _choice("losses", "softmax", "loss that is minimised, of a linear model")
    method: str = _choice("methods", default("methods"), "optimisation method (docs/guides/methods.md)")
    mechanism: str | None = _choice("mechanisms", None, "noise mechanism [default: the method's own]")
    server: str = _choice("servers", "untrusted", "who adds noise, who is trusted (docs/guides/trust.md)")
    machines: int | None = _whole("number of machines M [default: one a rank]")
    participation: str | None = _choice(
        "participation", None, "participation schedule (docs/guides/federations.md) [default: all]", "forms"
    )
    participation_seed: int | None = _whole("public seed of participation [default: the seed, or 0]", 0, 63)
    objective: Literal["machines", "samples"] | None = Field(
        None, description="mean over machines or over samples [default: as the participation schedule says]"
    )
    budgets: str | None = Field(None, description="file with machines' rho or epsilon [default: the same]")
    rounds: int | None = _whole("number of rounds T [default: by the samples, or the method's theory]")
    epsilon: float | None = Field(None, gt=0, description="epsilon at this delta, to be given instead of rho")
    delta: float = Field(
        1e-5, ge=SMALLEST_DELTA, lt=1, description="delta of epsilon, given or stated; well below 1 / samples"
    )
    rho: float = Field(
        4.0,
        gt=0,
        validate_default=True,
        description="privacy: every order a has Renyi divergence a*rho^2/2; inf for no noise",
    )
    noise: Literal["aggregate"] | None = Field(
        None, description="aggregate: one draw for all machines, protects no message [default: each its own]"
    )
    diameter: float = _size("diameter D of the ball K around the starting point 0", 0.1)
    normalize: Literal["none", "unit", "box"] = Field(
        "none", description="scale of samples: none, unit norm with a bias of 0.1, or box (--feature-bound)"
    )
    norm_bound: float | None = _size("scale samples with a longer row of features to this public norm")
    l2: float | None = _size("lambda of a regulariser lambda ||x||^2 / 2, which gets no noise")
    clip_norm: float | None = _size("clip increments to this norm instead of to S = G + 2LD")
    eta_scale: float | None = _size(
        "eta in units of 1/(4LT), or of another method's largest step [default: that of theory, at most 1]"
    )
    seed: int | None = _whole("makes run and noise reproducible by all who know it [default: secret]", 0, 63)
    evaluations: int | None = _whole(
        "rounds, logarithmically spaced, at which loss and accuracy are measured "
        "[default: 12 to 20, and on a share of the test set where all of it takes over a tenth of the time]"
    )

    @field_validator("data", "partition")
    @classmethod
    def _check_text(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            (find_source if info.field_name == "data" else parse_partition)(value)
            check_file_name(value)
        return value

    @field_validator("participation")
    @classmethod
    def _check_participation(cls, value: str | None) -> str | None:
        return value if value is None else check_participation(value)

    @field_validator("loss", "method", "mechanism", "server")
    @classmethod
    def _check_known(cls, value: str | None, info: ValidationInfo) -> str | None:
        extra: Any = cls.model_fields[str(info.field_name)].json_schema_extra
        return registered(extra["kind"], value)

    @property
    def machines_differ(self) -> bool:
        """Whether machines differ, or may be away, by any option."""
        return any(getattr(self, name) is not None for name in OF_MACHINES)

    @field_validator("epsilon", "rho")
    @classmethod
    def _check_range(cls, value: float | None) -> float | None:
        if value is not None and math.isfinite(value) and not LEAST <= value <= MOST:
            raise ValueError(f"should lie in {LEAST:g} .. {MOST:g}, or be inf for no noise")
        return value

    @field_validator("rho")
    @classmethod
    def _derive_rho(cls, value: float, info: ValidationInfo) -> float:
        """Take rho from epsilon where that is given, rounded down: the largest that keeps to it."""
        epsilon, delta = info.data.get("epsilon"), info.data.get("delta")
        return value if epsilon is None or delta is None else affordable_rho(epsilon, delta)


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
    kind = _CHOOSERS.get(chooser)
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
