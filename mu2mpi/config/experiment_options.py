"""Options of experiments: common ones, and own ones of sources, methods, mechanisms and servers."""

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
from mu2mpi.core.options import MAX_NUMBER, MIN_NUMBER, check_file_name, check_registered_name
from mu2mpi.core.registry import default_name, known_names, lookup
from mu2mpi.core.suggestions import did_you_mean, suggest_or_list
from mu2mpi.data.partition import parse_partition
from mu2mpi.data.source import find_source
from mu2mpi.federation.participation.schedule import check_participation
from mu2mpi.privacy.accounting.gaussian_dp import MIN_DELTA
from mu2mpi.privacy.accounting.guarantee import rho_for_epsilon

PER_MACHINE_OPTIONS = ("participation", "objective", "budgets")  # options that make machines unequal
# Options whose values have own options, and the registered kind of the values
SELECTORS = {"data": "sources", "method": "methods", "mechanism": "mechanisms", "server": "servers"}


def _option(default: Any, description: str, details: str = "", extra: Any = None, **limits: Any) -> Any:
    """Declare an option: at most 15 words for ``--help``, and details for its own help and its page."""
    return Field(
        default, description=description, json_schema_extra={"details": details, **(extra or {})}, **limits
    )


def _choice(kind: str, default: str | None, description: str, details: str = "", key: str = "kind") -> Any:
    """Declare an option that names a registered thing; with the key ``forms``, perhaps with a value of it."""
    return _option(default, description, details, {key: kind})


def _positive(description: str, details: str = "", default: float | None = None) -> Any:
    """Declare a positive number."""
    return _option(default, description, details, ge=MIN_NUMBER, le=MAX_NUMBER)


def _integer(description: str, details: str = "", minimum: int = 1, bits: int = 32) -> Any:
    """Declare an integer from a minimum up to a number of bits, unset by default."""
    return _option(None, description, details, ge=minimum, lt=2**bits)


class ExperimentOptions(BaseModel):
    """Options of every experiment, whatever its source, method, mechanism and trust mode."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid", strict=False)

    data: str = _choice(
        "sources",
        "digits",
        "data set, or a file of your own",
        "File formats, columns and schemas are explained in the guide (docs/guides/data.md).",
        "forms",
    )
    partition: str | None = _choice(
        "partitions",
        None,
        "assignment of samples to machines [default: owner if named, or iid]",
        "A file with owners has one machine per owner. Otherwise --machines share the samples.",
        "forms",
    )
    loss: str = _choice("losses", "softmax", "loss function of a linear model")
    method: str = _choice("methods", default_name("methods"), "optimisation method")
    mechanism: str | None = _choice(
        "mechanisms", None, "noise mechanism [default: that of the method or server]"
    )
    server: str = _choice("servers", "untrusted", "trust mode: who adds noise, and who sees messages")
    machines: int | None = _integer(
        "number of machines M [default: one per MPI rank]",
        "A rank simulates several machines if M is larger than the number of ranks.",
    )
    participation: str | None = _choice(
        "participation",
        None,
        "participation schedule: the machines of each round [default: all]",
        "",
        "forms",
    )
    participation_seed: int | None = _integer(
        "public seed of the participation schedule [default: --seed, or 0]", "", 0, 63
    )
    objective: Literal["machines", "samples"] | None = _option(
        None, "mean to minimise: over machines, or over samples [default: set by --participation]"
    )
    budgets: str | None = _option(
        None,
        "file with a rho or epsilon per machine [default: one budget for all]",
        "Machines that the file does not name have the budget of --rho or --epsilon.",
    )
    rounds: int | None = _integer(
        "number of rounds T [default: the number of samples, or the method's choice]",
        "Methods that use a fresh sample per round have at most as many rounds as a machine has samples.",
    )
    epsilon: float | None = _option(
        None,
        "privacy budget epsilon at --delta, instead of --rho",
        "The noise is that of the largest rho that keeps to it. inf means no noise.",
        gt=0,
    )
    delta: float = _option(
        1e-5,
        "delta at which epsilon is given or stated, below 1 / samples",
        "It should be far below 1 / samples (docs/guides/privacy.md).",
        ge=MIN_DELTA,
        lt=1,
    )
    rho: float = _option(
        4.0,
        "privacy budget rho; inf for no noise",
        "The Renyi divergence of every order a between runs on neighbouring data is at most a rho^2 / 2.",
        gt=0,
        validate_default=True,
    )
    noise: Literal["aggregate"] | None = _option(
        None,
        "noise of the sum alone (aggregate) [default: noise per machine]",
        "One draw stands for the noise of all machines. It is faster, and protects no single message.",
    )
    diameter: float = _positive("diameter D of the ball K around the starting point 0", "", 0.1)
    normalize: Literal["none", "unit", "box"] = _option(
        "none",
        "scaling of samples: none, unit norm, or box by --feature-bound",
        "With unit, samples get a bias feature of 0.1 and norm 1.",
    )
    norm_bound: float | None = _positive(
        "public bound on the norm of features", "Samples with a larger norm are scaled down to it."
    )
    l2: float | None = _positive(
        "weight lambda of the regulariser lambda ||x||^2 / 2",
        "Its gradient depends on no data and gets no noise.",
    )
    clip_norm: float | None = _positive("clipping norm of increments [default: their bound S = G + 2LD]")
    eta_scale: float | None = _positive(
        "step size in units of 1/(4LT) [default: theory's, at most 1]",
        "The unit is the largest step size of the method's theory: for mu2-sgd 1/(4LT).",
    )
    seed: int | None = _integer(
        "public seed of run and noise [default: a secret key]",
        "Everyone who knows the seed can reproduce the run and recompute its noise.",
        0,
        63,
    )
    evaluations: int | None = _integer(
        "number of evaluations, at logarithmically spaced rounds [default: 12 to 20]",
        "By default a share of the test set is used where all of it would take over a tenth of the time.",
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
        return check_registered_name(extra["kind"], value)

    @property
    def has_unequal_machines(self) -> bool:
        """Whether an option makes machines differ, or lets them miss rounds."""
        return any(getattr(self, name) is not None for name in PER_MACHINE_OPTIONS)

    @field_validator("epsilon", "rho")
    @classmethod
    def _check_range(cls, value: float | None) -> float | None:
        if value is not None and math.isfinite(value) and not MIN_NUMBER <= value <= MAX_NUMBER:
            raise ValueError(f"should be between {MIN_NUMBER:g} and {MAX_NUMBER:g}, or inf for no noise")
        return value

    @field_validator("rho")
    @classmethod
    def _derive_rho(cls, value: float, info: ValidationInfo) -> float:
        """Derive rho from epsilon, if given: the largest rho within epsilon at delta, rounded down."""
        epsilon, delta = info.data.get("epsilon"), info.data.get("delta")
        return value if epsilon is None or delta is None else rho_for_epsilon(epsilon, delta)


def option_fields() -> dict[str, FieldInfo]:
    """Return all options by name; own options of a method, ... follow the option that chooses it."""
    return _option_fields(tuple(chain(*map(_option_classes, SELECTORS))))


@cache
def _option_fields(known: tuple[tuple[str, type[BaseModel]], ...]) -> dict[str, FieldInfo]:
    """Return `option_fields` for the registered sources, methods, ..., the key of this cache."""
    own = [name for selector in SELECTORS for name in own_options(selector)]
    counts = Counter([*ExperimentOptions.model_fields, *own])
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise InputError(f"an extension gives {', '.join(repeated)} a second meaning. Rename its option")
    fields: dict[str, FieldInfo] = {}
    for name, field in ExperimentOptions.model_fields.items():
        fields[name] = field
        # The noise key is derived from the settings in this order, so another order changes the noise.
        for selector in {"method": ("mechanism", "method"), "mechanism": ()}.get(name, (name,)):
            fields |= {other: _merge_fields(owners) for other, owners in own_options(selector).items()}
    return fields


def _option_classes(selector: str) -> tuple[tuple[str, type[BaseModel]], ...]:
    """Return the values of an option such as ``method``, each with the class of its own options."""
    kind = SELECTORS.get(selector)
    components = [(name, lookup(kind, name)) for name in known_names(kind)] if kind else []
    return tuple(
        (component.form if selector == "data" else name, component.options) for name, component in components
    )


def own_options(selector: str) -> dict[str, dict[str, FieldInfo]]:
    """Return own options of methods, servers, ... by name, each with its fields by method, server, ...."""
    return _own_options(_option_classes(selector))


@cache
def _own_options(owners: tuple[tuple[str, type[BaseModel]], ...]) -> dict[str, dict[str, FieldInfo]]:
    fields: dict[str, dict[str, FieldInfo]] = {}
    for owner, options in owners:
        for name, field in options.model_fields.items():
            fields.setdefault(name, {})[owner] = field
    return fields


def method_option_names() -> list[str]:
    """Return the names of own options of methods and mechanisms, without presets."""
    presets = {name for method in known_names("methods") for name in lookup("methods", method).presets}
    return [name for kind in ("mechanism", "method") for name in own_options(kind) if name not in presets]


def implied_mechanism(settings: Mapping[str, Any]) -> str | None:
    """Return the first mechanism that has an own option among the settings; None if there is none."""
    own = own_options("mechanism")
    return next((next(iter(own[n])) for n, value in settings.items() if n in own and value is not None), None)


def _merge_fields(fields: Mapping[str, FieldInfo]) -> FieldInfo:
    """Merge the fields of an own option: its description names who has it, its title is the first one's."""
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


def preferred_method(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the preset's method as a setting if none is implied; InputError for misplaced booleans."""
    fields = option_fields()
    for name in fields.keys() & settings.keys():
        if isinstance(settings[name], bool) and not is_flag(fields[name]):
            raise InputError(f"{name} = {settings[name]} should be a number or a name, not a boolean")
    given = {name for name, value in settings.items() if value is not None}
    if settings.get("preset") not in known_names("presets"):
        return {}
    # The preset's method is the best with its default mechanism and equal machines only.
    if given & {"method", "mechanism", *PER_MACHINE_OPTIONS} or implied_mechanism(settings):
        return {}
    own, best = own_options("method"), lookup("presets", settings["preset"]).method
    takes_all = all(best in own[name] for name in given & own.keys())
    return {"method": best} if best is not None and takes_all else {}


def build_options(chosen: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, BaseModel]:
    """Validate own options; InputError for unknown options, and for options of another source, method, ....

    Parameters
    ----------
    chosen : mapping
        Value of each choosing option, such as ``{"method": "dp-sgd"}``.
    settings : mapping
        Values of own options by name.

    Returns
    -------
    dict
        Instance of the options' class by choosing option.
    """
    errors = []
    owners = {kind: own_options(kind) for kind in chosen}
    values_by_kind: dict[str, dict[str, Any]] = {kind: {} for kind in chosen}
    for name, value in settings.items():
        kinds = [kind for kind in chosen if name in owners[kind]]
        owner = next((kind for kind in kinds if chosen[kind] in owners[kind][name]), None)
        if owner is not None:
            values_by_kind[owner] |= {} if value is None else {name: value}
        elif not kinds:
            errors.append(f"unknown option {name!r}{suggest_or_list(name, option_fields(), 'options')}")
        elif value is not None:
            kind = kinds[0]
            whose = f"{kind} = {' or '.join(owners[kind][name])}"
            errors.append(f"{name} needs {whose}, got {kind} = {chosen[kind]}. Leave it out")
    options = {}
    for kind, values in values_by_kind.items():
        try:
            options[kind] = dict(_option_classes(kind))[chosen[kind]](**values)
        except ValidationError as error:
            errors.append(format_validation_errors(error))
    if errors:
        raise InputError("\n".join(errors))
    return options


def value_kind(field: FieldInfo) -> str | None:
    """Return the kind of registered things that an option's values name; None for other options."""
    extra = field.json_schema_extra
    kind = extra.get("kind", extra.get("forms")) if isinstance(extra, dict) else None
    return None if kind is None else str(kind)


def details(field: FieldInfo) -> str:
    """Return what the help of an option alone adds to its description."""
    extra = field.json_schema_extra
    return str(extra.get("details", "")) if isinstance(extra, dict) else ""


def choices(field: FieldInfo) -> tuple[str, ...] | None:
    """Return the fixed values of an option; None for numbers, files and forms such as labels:N."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "kind" in extra:
        return tuple(known_names(str(extra["kind"])))
    kinds = (field.annotation, *get_args(field.annotation))
    literal = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    return get_args(literal) if literal else None


def is_flag(field: FieldInfo) -> bool:
    """Return whether an option is boolean, so a flag without a value."""
    return bool in (field.annotation, *get_args(field.annotation))


def format_validation_errors(error: ValidationError) -> str:
    """Format the errors of pydantic: one line per option."""
    return "\n".join(map(_pydantic_message, error.errors()))


def _pydantic_message(error: Any) -> str:
    """Format one error of pydantic, such as "machines = 0 should be greater than or equal to 1"."""
    location = ".".join(str(part) for part in error["loc"])
    if not location:
        return str(error["msg"]).removeprefix("Value error, ")
    if isinstance(error["input"], list):
        return f"{location} is a list of values. Use `mu2mpi sweep` for lists"
    if isinstance(error["input"], dict):
        return f"{location} is a table. Give it a value, as in {location} = ..."
    message = str(error["msg"]).removeprefix("Input ").removeprefix("String ").removeprefix("Value error, ")
    if error["type"] == "literal_error" and location in option_fields():
        message += did_you_mean(str(error["input"]), choices(option_fields()[location]) or ())
    for bound in {"gt", "ge", "lt", "le"} & error.get("ctx", {}).keys():
        # Pydantic writes such bounds with hundreds of zeros.
        message = f"{message.rpartition(' ')[0]} {repr(error['ctx'][bound]).removesuffix('.0')}"
    return f"{location} = {error['input']!r} {message}"
