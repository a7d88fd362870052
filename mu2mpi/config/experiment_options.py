"""Options of experiments: common ones, and own ones of sources, methods, mechanisms and servers."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, reduce
from itertools import chain
from operator import or_
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import (
    MAX_REAL_OPTION,
    MIN_REAL_OPTION,
    check_file_name,
    check_registered_name,
    choices,
    is_flag,
)
from mu2mpi.core.registry import default_name, known_names, lookup, registered_options
from mu2mpi.core.suggestions import did_you_mean, one_of, suggest_setting
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import find_source
from mu2mpi.federation.participation.schedule import check_participation
from mu2mpi.privacy.accounting.gaussian_dp import MIN_DELTA
from mu2mpi.privacy.accounting.guarantee import rho_for_epsilon

PER_MACHINE_OPTIONS = ("participation", "objective", "budgets")  # options that make machines unequal
# Options whose values have own options, and the registered kind of the values
COMPONENT_KINDS = {"data": "sources", "method": "methods", "mechanism": "mechanisms", "server": "servers"}


def _option(description: str, details: str = "", default: Any = None, **limits: Any) -> Any:
    """Declare an option with its help text of at most 15 words, and details shown by ``--help OPTION``."""
    return Field(default, description=description, json_schema_extra={"details": details}, **limits)


def _component(
    kind: str, description: str, details: str = "", default: Any = None, kind_key: str = "kind"
) -> Any:
    """Declare an option with values of a registry kind: names, or NAME:ARGUMENT if the key is ``forms``."""
    return Field(default, description=description, json_schema_extra={"details": details, kind_key: kind})


def _real_option(description: str, details: str = "", default: float | None = None) -> Any:
    """Declare an option whose value is a positive real number from MIN_REAL_OPTION to MAX_REAL_OPTION."""
    return _option(description, details, default, ge=MIN_REAL_OPTION, le=MAX_REAL_OPTION)


def _integer_option(description: str, details: str = "", minimum: int = 1, max_bits: int = 32) -> Any:
    """Declare an option whose value is an integer from `minimum` to 2^max_bits - 1, unset by default."""
    return _option(description, details, ge=minimum, lt=2**max_bits)


class ExperimentOptions(BaseModel):
    """Options of every experiment, whatever its source, method, mechanism and trust mode."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=False)

    data: str = _component(
        "sources",
        "data set, or a file of your own",
        "File formats, columns and schemas are explained in the guide (docs/guides/data.md).",
        "digits",
        "forms",
    )
    partition: str | None = _component(
        "partitions",
        "assignment of samples to machines [default: owner if named, or iid]",
        "A file with owners has one machine per owner. Otherwise --machines share the samples.",
        kind_key="forms",
    )
    loss: str = _component("losses", "loss function of a linear model", default="softmax")
    method: str = _component("methods", "optimisation method", default=default_name("methods"))
    mechanism: str | None = _component(
        "mechanisms", "noise mechanism [default: that of the method or server]"
    )
    server: str = _component("servers", "trust mode: who adds noise, and who sees messages", "", "untrusted")
    machines: int | None = _integer_option(
        "number of machines M [default: one per MPI rank]",
        "A rank simulates several machines if M is larger than the number of ranks.",
    )
    participation: str | None = _component(
        "participation", "participation schedule: the machines of each round [default: all]", kind_key="forms"
    )
    participation_seed: int | None = _integer_option(
        "public seed of the participation schedule [default: --seed, or 0]", "", 0, 63
    )
    objective: Literal["machines", "samples"] | None = _option(
        "mean to minimise: over machines, or over samples [default: set by --participation]"
    )
    budgets: str | None = _option(
        "file with a rho or epsilon per machine [default: one budget for all]",
        "Machines that the file does not name have the budget of --rho or --epsilon.",
    )
    rounds: int | None = _integer_option(
        "number of rounds T [default: the number of samples, or the method's choice]",
        "Methods that use a fresh sample per round have at most as many rounds as a machine has samples.",
    )
    epsilon: float | None = _option(
        "privacy budget epsilon at --delta, instead of --rho",
        "The noise is that of the largest rho that keeps to it. inf means no noise.",
        gt=0,
    )
    delta: float = _option(
        "delta at which epsilon is given or stated, below 1 / samples",
        "It should be far below 1 / samples (docs/guides/privacy.md).",
        1e-5,
        ge=MIN_DELTA,
        lt=1,
    )
    rho: float = _option(
        "privacy budget rho; inf for no noise",
        "The Renyi divergence of every order a between runs on neighbouring data is at most a rho^2 / 2.",
        4.0,
        gt=0,
        validate_default=True,
    )
    neighbours: Literal["replace", "zero-out"] = _option(
        "data sets the budget is for: one sample replaced, or zeroed out",
        "zero-out is the relation of most other libraries, takes less noise and protects less. Results state "
        "epsilon for both (docs/background/neighbours.md).",
        "replace",
    )
    noise: Literal["aggregate"] | None = _option(
        "noise of the sum alone (aggregate) [default: noise per machine]",
        "One draw stands for the noise of all machines. It is faster, and protects no single message.",
    )
    diameter: float = _real_option("diameter D of the ball K around the starting point 0", "", 0.1)
    normalize: Literal["none", "unit", "box"] = _option(
        "scaling of samples: none, unit norm, or box by --feature-bound",
        "With unit, samples get a bias feature of 0.1 and norm 1.",
        "none",
    )
    norm_bound: float | None = _real_option(
        "public bound on the norm of features", "Samples with a larger norm are scaled down to it."
    )
    l2: float | None = _real_option(
        "weight lambda of the regulariser lambda ||x||^2 / 2",
        "Its gradient depends on no data and gets no noise.",
    )
    clip_norm: float | None = _real_option("clipping norm of increments [default: their bound S = G + 2LD]")
    eta_scale: float | None = _real_option(
        "step size in units of 1/(4LT) [default: theory's, at most 1]",
        "The unit is the largest step size of the method's theory: for mu2-sgd 1/(4LT).",
    )
    seed: int | None = _integer_option(
        "public seed of run and noise [default: a secret key]",
        "Everyone who knows the seed can reproduce the run and recompute its noise.",
        0,
        63,
    )
    evaluations: int | None = _integer_option(
        "number of evaluations, at logarithmically spaced rounds [default: 12 to 20]",
        "By default a share of the test set is used where all of it would take over a tenth of the time.",
    )

    @field_validator("data", "partition")
    @classmethod
    def _check_source_or_partition(cls, value: str | None, info: ValidationInfo) -> str | None:
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
    def _check_registered(cls, value: str | None, info: ValidationInfo) -> str | None:
        extra: Any = cls.model_fields[str(info.field_name)].json_schema_extra
        return check_registered_name(extra["kind"], value)

    @property
    def has_unequal_machines(self) -> bool:
        """Whether machines differ in budget or weight, or miss rounds, by one of PER_MACHINE_OPTIONS."""
        return any(getattr(self, name) is not None for name in PER_MACHINE_OPTIONS)

    @field_validator("epsilon", "rho")
    @classmethod
    def _check_budget(cls, value: float | None, info: ValidationInfo) -> float | None:
        """Check the range; replace rho, if epsilon is given, by the largest rho within (epsilon, delta)."""
        if value is not None and math.isfinite(value) and not MIN_REAL_OPTION <= value <= MAX_REAL_OPTION:
            limits = f"{MIN_REAL_OPTION:g} and {MAX_REAL_OPTION:g}"
            raise ValueError(f"should be between {limits}, or inf for no noise")
        epsilon, delta = info.data.get("epsilon"), info.data.get("delta")
        is_given = info.field_name == "epsilon" or epsilon is None or delta is None
        return value if is_given else rho_for_epsilon(epsilon, delta)


def option_fields() -> dict[str, FieldInfo]:
    """Return the pydantic fields of all options by name; a method's own options follow ``method``, etc."""
    return _option_fields(registered_options(*COMPONENT_KINDS.values()))


@cache
def _option_fields(registered: tuple[Any, ...]) -> dict[str, FieldInfo]:
    """Return the fields of all options by name, cached until a component is registered."""
    names = chain(ExperimentOptions.model_fields, *map(own_option_fields, COMPONENT_KINDS))
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"an extension gives {', '.join(repeated)} a second meaning. Rename its option")
    fields: dict[str, FieldInfo] = {}
    for name, field in ExperimentOptions.model_fields.items():
        fields[name] = field
        # The noise key is derived from the settings in this order, so another order changes the noise.
        for choice in {"method": ("mechanism", "method"), "mechanism": ()}.get(name, (name,)):
            fields |= {own: _merge_fields(owners) for own, owners in own_option_fields(choice).items()}
    return fields


def own_option_fields(option: str) -> Mapping[str, Mapping[str, FieldInfo]]:
    """Return fields[name][owner] of the own options of all components that ``--method``, ... can choose."""
    kind = COMPONENT_KINDS.get(option)
    return _own_option_fields(option, registered_options(kind)) if kind else {}


# Both are cached until a component is registered.
@cache
def _own_option_fields(option: str, registered: tuple[Any, ...]) -> dict[str, dict[str, FieldInfo]]:
    fields: dict[str, dict[str, FieldInfo]] = {}
    for owner, options in _option_classes(option, registered).items():
        for name, field in options.model_fields.items():
            fields.setdefault(name, {})[owner] = field
    return fields


@cache
def _option_classes(option: str, registered: tuple[Any, ...]) -> dict[str, type[BaseModel]]:
    components = [lookup(COMPONENT_KINDS[option], name) for name in known_names(COMPONENT_KINDS[option])]
    return {(c.option_syntax if option == "data" else c.name): c.options for c in components}


def method_option_names() -> list[str]:
    """Return the names of the own options of all methods and mechanisms, except --preset."""
    return [name for key in ("mechanism", "method") for name in own_option_fields(key) if name != "preset"]


def implied_mechanism(settings: Mapping[str, Any]) -> str | None:
    """Return the name of the first mechanism that has an own option among the settings, or None."""
    owners = own_option_fields("mechanism")
    return next((next(iter(owners[n])) for n, v in settings.items() if n in owners and v is not None), None)


def _merge_fields(fields: Mapping[str, FieldInfo]) -> FieldInfo:
    """Merge an option's fields, one per owner such as a method, into one field whose default is None."""
    owners_by_text: dict[str, list[str]] = {}
    for owner, field in fields.items():
        default = "" if field.default is None else f" [default: {field.default}]"
        owners_by_text.setdefault(f"{field.description}{default}", []).append(owner)
    texts = [f"{', '.join(owners)}: {text}" for text, owners in owners_by_text.items()]
    types: Iterable[Any] = (field.annotation for field in fields.values())
    first = next(iter(fields.values()))
    return FieldInfo(
        annotation=reduce(or_, types),
        default=None,
        description="; ".join(texts if len(texts) > 1 else owners_by_text),
        title=first.description,
        json_schema_extra=first.json_schema_extra,
    )


def preset_method(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return {"method": the preset's method} unless settings imply a method; checks boolean options."""
    for name, field in option_fields().items():
        if isinstance(settings.get(name), bool) and not is_flag(field):
            raise InputError(f"{name} = {settings[name]} should be a number or a name, not a boolean")
    given = {name for name, value in settings.items() if value is not None}
    # The preset's method is the best with its default mechanism and equal machines only.
    deviation = given & {"method", "mechanism", *PER_MACHINE_OPTIONS} or implied_mechanism(settings)
    if deviation or str(settings.get("preset")) not in known_names("presets"):
        return {}
    owners, method = own_option_fields("method"), lookup("presets", settings["preset"]).default_method
    has_all_options = all(method in owners[name] for name in given & owners.keys())
    return {"method": method} if method is not None and has_all_options else {}


def build_component_options(chosen: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, BaseModel]:
    """Build the own options of the components in `chosen`, such as {"method": "dp-sgd"}, by choice.

    Raises InputError for unknown settings and for own options of components that are not chosen.
    """
    errors = []
    owners = {choice: own_option_fields(choice) for choice in chosen}
    values_by_choice: dict[str, dict[str, Any]] = {choice: {} for choice in chosen}
    for name, value in settings.items():
        choices_with_option = [choice for choice in chosen if name in owners[choice]]
        matching = next((key for key in choices_with_option if chosen[key] in owners[key][name]), None)
        if matching is not None:
            values_by_choice[matching] |= {} if value is None else {name: value}
        elif not choices_with_option:
            errors.append(f"unknown option {name!r}{suggest_setting(name, option_fields())}")
        elif value is not None:
            choice = choices_with_option[0]
            needed = f"{choice} = {one_of(owners[choice][name])}"
            errors.append(f"{name} needs {needed}; got {choice} = {chosen[choice]}. Leave it out")
    options = {}
    for choice, values in values_by_choice.items():
        try:
            classes = _option_classes(choice, registered_options(COMPONENT_KINDS[choice]))
            options[choice] = classes[chosen[choice]](**values)
        except ValidationError as error:
            errors.append(format_validation_errors(error))
    if errors:
        raise InputError("\n".join(errors))
    return options


def format_validation_errors(error: ValidationError) -> str:
    """Format a pydantic validation error as text: one line per invalid option."""
    return "\n".join(map(_pydantic_message, error.errors()))


def _pydantic_message(error: Any) -> str:
    """Format one pydantic error, such as "machines = 0 should be greater than or equal to 1"."""
    location = ".".join(str(key) for key in error["loc"])
    if not location:
        return str(error["msg"]).removeprefix("Value error, ")
    if isinstance(error["input"], list):
        return f"{location} is a list of values. Use `mu2mpi sweep` for lists"
    if isinstance(error["input"], dict):
        return f"{location} is a table. Give it a value, as in {location} = ..."
    if not isinstance(given := error["input"], str | int | float):
        hint = ". Pass arrays and data frames as mu2mpi.run(settings, data=...)" * (location == "data")
        return f"{location} should be a number or a name, not of type {type(given).__name__}{hint}"
    message = str(error["msg"]).removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
    if error["type"] == "literal_error" and location in option_fields():
        message += did_you_mean(str(error["input"]), choices(option_fields()[location]) or ())
    for bound in {"gt", "ge", "lt", "le"} & error.get("ctx", {}).keys():
        # Pydantic writes such bounds with hundreds of zeros.
        message = f"{message.rpartition(' ')[0]} {repr(error['ctx'][bound]).removesuffix('.0')}"
    return f"{location} = {error['input']!r} {message}"
