"""What the user asks for: every setting that determines a run, in one validated, immutable object."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR, Context
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from mu2mpi.errors import InputError
from mu2mpi.methods.base import Method, Options, Task
from mu2mpi.privacy.accountant import epsilon_exact, rho_exact
from mu2mpi.privacy.sampler import RESERVE
from mu2mpi.registry import changes, find, names

__all__ = [
    "FILE",
    "MADE_UP_DATA",
    "SOURCE_OPTIONS",
    "Experiment",
    "choices",
    "is_file",
    "method_options",
    "option_fields",
    "read_toml",
    "result_name",
]

RHO_DIGITS = 8
"""Of a rho that follows from epsilon, rounded down: fewer than those in which processors and their
mathematical libraries differ, so that the same experiment has the same rho, and thus noise, everywhere."""

MADE_UP_DATA = ("synthetic", "population")
BUILT_IN = ("digits", "mnist", *MADE_UP_DATA)
MADE_UP = ("samples", "features", "classes", "data_seed")
FILE = "a file"
SUFFIXES = (".h5", ".hdf5", ".npz", ".csv", ".csv.gz", ".svm", ".svm.gz", ".libsvm", ".libsvm.gz")
SOURCE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "synthetic": MADE_UP,
    "population": (*MADE_UP, "margin", "label_noise", "heterogeneity"),
    FILE: ("features", "labels", "test", "feature_bound", "data_seed"),
}
"""Options that apply to some sources of data only."""

PARTITION = re.compile(
    r"iid|contiguous|sorted|owner|dirichlet:(?=.*[1-9])\d*\.?\d+(e-?\d\d?)?|labels:[1-9]\d*"
)


def is_file(data: str) -> bool:
    """Return whether this is, by its suffix, a file of the user's."""
    return data.lower().endswith(SUFFIXES)


class Experiment(BaseModel):
    """One run of a method: by default of Algorithm 1 (untrusted) or Algorithm 2 (trusted) of the paper.

    The options of every experiment are defined here, and those of a method beside the method; the command
    line, the keys of a configuration file, the messages for bad values and the help all come from these
    definitions. To the user they are one flat list, and so are the attributes of an experiment: an option of
    another method is None.

    Raises
    ------
    InputError
        With one line per problem: the option, what is wrong with it, and what is allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    _options: Options = PrivateAttr(Options())

    data: str = Field(
        "digits",
        description="data set: digits (8x8, built in), mnist, a synthetic one, a population of which the "
        "smallest loss is known, or a file of your own that ends in .h5, .hdf5, .npz, .csv, .svm or .libsvm "
        "(docs/data.md)",
    )
    samples: int = Field(
        10_000,
        ge=2,
        description="synthetic, population: number of training samples; a population has more for --rounds",
    )
    features: int | str | None = Field(
        None,
        validate_default=True,
        description="synthetic, population: how many features a sample has [default: 20]; a file: the name "
        "of the dataset or the names of the columns that hold them [default: features, X, x, images or data; "
        "in CSV all other columns]",
    )
    classes: int = Field(3, ge=2, le=1_000_000, description="synthetic, population: number of classes")
    data_seed: int = Field(
        0,
        ge=0,
        lt=2**63,
        description="synthetic, population: seed of the population, and of synthetic samples; "
        "a file: seed of the test split",
    )
    margin: float = Field(
        0.5, ge=0, le=1, description="population only: how far apart classes are, 1 for a point each"
    )
    label_noise: float = Field(
        0.1, ge=0, le=1, description="population only: share of labels that are drawn at random"
    )
    heterogeneity: float = Field(
        0.0,
        ge=0,
        le=1,
        description="population only: how far random labels lean to a model of the machine's own; "
        "the average over machines stays the same",
    )
    labels: str | None = Field(
        None,
        min_length=1,
        coerce_numbers_to_str=True,
        description="a file only: name of the dataset or column that holds the labels "
        "[default: labels, label, y, target or class]",
    )
    test: float | str | None = Field(
        None,
        description="a file only: which share of it, chosen at random, is for testing, or another file that "
        "is [default: 0.2]",
    )
    feature_bound: float | None = Field(
        None,
        ge=1e-100,
        le=1e100,
        description="a file only, with normalize = box: public bound on the absolute value of every feature, "
        "by which they are divided",
    )
    partition: str | None = Field(
        None,
        description="who gets which samples: iid, contiguous, sorted, owner, dirichlet:A or labels:N "
        "[default: owner where the data name owners, or else iid]",
    )
    loss: str = Field(
        "softmax",
        description="loss that is minimised, of a linear model",
        json_schema_extra={"kind": "problems"},
    )
    method: str = Field(
        "mu2-sgd",
        description="the paper's method, or one that it is compared with (docs/methods.md)",
        json_schema_extra={"kind": "methods"},
    )
    mechanism: str | None = Field(
        None,
        description="how noise hides what machines send [default: the method's own]",
        json_schema_extra={"kind": "mechanisms"},
    )
    server: Literal["untrusted", "trusted"] = Field(
        "untrusted",
        description="who adds the noise: every machine before it sends (untrusted), "
        "or the server before it broadcasts (trusted)",
    )
    machines: int | None = Field(
        None, ge=1, lt=2**32, description="number of machines M [default: one a rank]"
    )
    rounds: int | None = Field(
        None,
        ge=1,
        lt=2**32,
        description="number of rounds T [default: as many as the samples allow, or those of the method's own "
        "theory]",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="privacy, instead of rho: takes the largest rho that is exactly (epsilon, delta)-private",
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="the delta of epsilon, be it given or reported; well below 1 / samples"
    )
    rho: float = Field(
        4.0,
        gt=0,
        validate_default=True,
        description="privacy: every order a has Renyi divergence a*rho^2/2; inf for no noise",
    )
    noise: Literal["aggregate"] | None = Field(
        None,
        description="untrusted server only: aggregate draws one N(0, M sigma^2) a round for all machines, "
        "a shortcut to simulate many: results have the same distribution, but single messages are not "
        "protected [default: every machine draws its own, as the protocol says]",
    )
    diameter: float = Field(
        0.1, ge=1e-100, le=1e100, description="diameter D of the ball K around the starting point 0"
    )
    normalize: Literal["none", "unit", "box"] = Field(
        "none",
        description="how each sample is scaled by itself: none; unit for norm 1, a bias feature of 0.1 "
        "included; or box, files only, for features divided by their public bound --feature-bound",
    )
    clip_norm: float | None = Field(
        None, ge=1e-100, le=1e100, description="clip increments to this norm instead of to S = G + 2LD"
    )
    eta_scale: float | None = Field(
        None,
        ge=1e-100,
        le=1e100,
        description="learning rate eta in units of 1/(4LT), or of the largest that smoothness allows another "
        "method [default: that of the theorem, at most 1]",
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**63,
        description="makes the run reproducible, and its noise recomputable by anyone who knows the seed "
        "[default: a secret key from the operating system]",
    )
    evaluations: int | None = Field(
        None,
        ge=1,
        description="rounds, logarithmically spaced, at which loss and accuracy are measured "
        "[default: 20, or fewer so as to take under a tenth of the time]",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("should be a number or a name, not a boolean")
        return value

    @field_validator("data")
    @classmethod
    def _check_data(cls, value: str) -> str:
        if value not in BUILT_IN and not is_file(value):
            raise ValueError(
                f"should be {', '.join(BUILT_IN)}, or a file whose name ends in {', '.join(SUFFIXES)}"
            )
        return value

    @field_validator("features", mode="before")
    @classmethod
    def _read_features(cls, value: object, info: ValidationInfo) -> object:
        """Take a number for data that are made up and a name otherwise, though options are all texts."""
        if info.data.get("data") not in MADE_UP_DATA:
            return None if value is None else str(value)
        try:
            count = 20 if value is None else int(str(value))
        except ValueError:
            count = 0
        if not 1 <= count <= 10_000_000:
            raise ValueError("should be a number of features from 1 to 10000000")
        return count

    @field_validator("test", mode="before")
    @classmethod
    def _read_test(cls, value: object) -> object:
        try:
            share = None if value is None else float(str(value))
        except ValueError:
            if not is_file(str(value)):
                raise ValueError(
                    f"should be a share such as 0.2, or a file whose name ends in {', '.join(SUFFIXES)}"
                ) from None
            return value
        if share is not None and not 0 < share < 1:
            raise ValueError("should be greater than 0 and less than 1")
        return share

    @field_validator("partition")
    @classmethod
    def _check_partition(cls, value: str | None) -> str | None:
        if value is not None and not PARTITION.fullmatch(value):
            raise ValueError(
                "should be iid, contiguous, sorted, owner, dirichlet:A with a positive number A such as "
                "dirichlet:0.3, or labels:N with a number of classes such as labels:2"
            )
        return value

    @field_validator("loss", "method", "mechanism")
    @classmethod
    def _check_known(cls, value: str | None, info: ValidationInfo) -> str | None:
        known = choices(cls.model_fields[str(info.field_name)]) or ()
        if value is not None and value not in known:
            raise ValueError(f"should be {', '.join(known)}")
        return value

    @field_validator("rho")
    @classmethod
    def _derive_rho(cls, value: float, info: ValidationInfo) -> float:
        """Take rho from epsilon where that is given, rounded down: the largest that keeps to it."""
        epsilon, delta = info.data.get("epsilon"), info.data.get("delta")
        if epsilon is None or delta is None:
            return value
        rounding = Context(prec=RHO_DIGITS, rounding=ROUND_FLOOR)
        exact = rho_exact((1 - RESERVE) * epsilon, (1 - RESERVE) * delta)
        return float(rounding.create_decimal(repr(exact)))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for name in self._inapplicable():
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                sources = " or ".join(source for source, names in SOURCE_OPTIONS.items() if name in names)
                raise ValueError(f"{name} applies to data = {sources} only, and data is {self.data}")
        if self.data == "population" and self.partition is not None:
            raise ValueError("partition deals out given samples, and machines draw their own of a population")
        if (self.normalize == "box") != (self.feature_bound is not None):
            raise ValueError(
                "normalize = box and feature_bound need each other: the bound is what features are divided by"
            )
        if self.noise == "aggregate" and self.server == "trusted":
            raise ValueError(
                "noise = aggregate applies to server = untrusted only: a trusted server draws but one"
            )
        return self

    if not TYPE_CHECKING:  # type checkers know the fields better than this signature tells

        def __init__(self, **settings: Any) -> None:
            own = {name: value for name, value in settings.items() if name in type(self).model_fields}
            others = {name: value for name, value in settings.items() if name not in own}
            if own.get("rho") is not None and own.get("epsilon") is not None:
                raise InputError("rho and epsilon are both given, and either determines the other; give one")
            try:
                super().__init__(**own)
                self._options = _options_of(self._named_method, others)
                self._named_method.check(self, self._options)
            except ValidationError as error:
                raise InputError("\n".join(_explain(problem) for problem in error.errors())) from None
            except ValueError as error:
                raise InputError(str(error)) from None

    def __getattr__(self, name: str) -> Any:
        """Return an option of the method, or None if it is one of another's."""
        if not name.startswith("_"):
            options = self._options
            if name in type(options).model_fields:
                return getattr(options, name)
            if name in option_fields():
                return None
        return super().__getattr__(name)  # type: ignore[misc]

    def __hash__(self) -> int:
        return hash((tuple(self.__dict__.values()), self._options))

    @classmethod
    def make(cls, settings: Mapping[str, Any], where: str = "") -> Self:
        """Build an experiment from settings of which messages say where they come from.

        Parameters
        ----------
        settings : mapping
            Values by option name.
        where : str, optional
            Where they come from, for the message, such as a file's name.

        Raises
        ------
        InputError
            With one line per problem: the option, what is wrong with it, and what is allowed.
        """
        try:
            return cls(**settings)
        except InputError as error:
            prefix = f"{where}: " if where else ""
            raise InputError("\n".join(prefix + line for line in str(error).splitlines())) from None

    def having(self, **changes: Any) -> Self:
        """Return the experiment with some settings changed, or unset where they are None; all are checked.

        Raises
        ------
        InputError
            As when it is made.
        """
        given = {name: getattr(self, name) for name in self.given}
        for name, other in (("rho", "epsilon"), ("epsilon", "rho")):
            if changes.get(name) is not None:
                given.pop(other, None)
        settings = {**given, **changes}
        return type(self)(**{name: value for name, value in settings.items() if value is not None})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, of which changes are checked as those of `having` are."""
        return self.having(**(update or {}))

    @property
    def given(self) -> set[str]:
        """The names of all settings that were given, and not left to their defaults."""
        return self.model_fields_set | self._options.model_fields_set

    @property
    def options(self) -> Options:
        """The options of the method."""
        return self._options

    @property
    def _named_method(self) -> Method:
        method: Method = find("methods", self.method)
        return method

    @property
    def chosen_method(self) -> Method:
        """The method, or what its switches make of it."""
        return self._named_method.chosen(self._options)

    @property
    def chosen_mechanism(self) -> str:
        """The name of the mechanism: the one that is given, or the method's own."""
        return self.mechanism or self.chosen_method.mechanism

    @property
    def target_epsilon(self) -> float:
        """The epsilon that a run is to keep to at its delta: the one that is given, or that of rho."""
        return self.epsilon or epsilon_exact(self.rho, self.delta)

    def task(self, machines: int, classes: int, features: int, samples: int, most: int | None = None) -> Task:
        """Return what the method is to do, once a preset, if any, is filled in.

        Parameters
        ----------
        machines : int
            M.
        classes, features : int
            K and F (with the bias).
        samples : int
            How many each machine has.
        most : int, optional
            How many it can use, if there is a limit.
        """
        from mu2mpi.privacy.guarantee import Budget
        from mu2mpi.problem.scaling import largest_square

        problem, unit_norm = find("problems", self.loss), self.normalize == "unit"
        constants = problem.constants(largest_square(features, unit_norm), self.diameter / 2, classes)
        return Task(
            problem=problem,
            server=self.server,
            machines=machines,
            samples=samples,
            most=most,
            classes=classes,
            features=features,
            diameter=self.diameter,
            unit_norm=unit_norm,
            budget=Budget(self.rho, self.target_epsilon, self.delta),
            mechanism=self.chosen_mechanism,
            G=constants.G,
            L=constants.L,
            clip_norm=self.clip_norm,
            eta_scale=self.eta_scale,
            aggregate_noise=self.noise == "aggregate",
            options=self._options,
        )

    def by_preset(self) -> dict[str, Any]:
        """Return the settings that a preset chooses, as they are where nothing else is given."""
        return self._named_method.preset(self, self._options)

    def to_toml(self) -> str:
        """Return the TOML that repeats this experiment.

        Options left to their meaning "unset" are absent, and so is a rho that follows from epsilon.
        """
        follows = () if self.epsilon is None else ("rho",)
        return tomli_w.dumps({k: v for k, v in self.settings().items() if k not in follows})

    def sent(self) -> Self:
        """Return the experiment without what changes nothing in what a completed run sends.

        With the same seed, runs that agree in this draw the same noise, and on the same data send the same
        messages. Where noise is scaled to rho, that speaks for itself, and without a preset what it chose.
        """
        changes: dict[str, Any] = dict.fromkeys(("seed", "evaluations", *self._named_method.presets))
        if find("mechanisms", self.chosen_mechanism).spends == "rho":
            changes |= {"rho": self.rho, "epsilon": None, "delta": None}
        return self.having(**changes)

    @property
    def tests_on_a_share(self) -> bool:
        """Whether the test set is a share of a file of the user's: people's data, which no noise protects."""
        return is_file(self.data) and not isinstance(self.test, str)

    def settings(self) -> dict[str, Any]:
        """Return every option that has a value and applies to this source and method, by name.

        What a preset is still to choose is not there.
        """
        hidden = self._inapplicable() | (self.by_preset().keys() - self.given)
        named = {name: getattr(self, name) for name in option_fields()}
        return {name: value for name, value in named.items() if value is not None and name not in hidden}

    def _inapplicable(self) -> set[str]:
        """Return the options that apply to other sources of data only."""
        source = FILE if is_file(self.data) else self.data
        return set().union(*SOURCE_OPTIONS.values()) - set(SOURCE_OPTIONS.get(source, ()))

    def difference(self, other: Self) -> str | None:
        """Say in words which setting first differs from `other`, or return None if none does."""
        for name in option_fields():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {_show(mine)} here and {_show(theirs)} there"
        return None


def option_fields() -> dict[str, FieldInfo]:
    """Return all options by name, those of methods where the method is: names, types, defaults and help."""
    for method in names("methods"):
        find("methods", method)
    return _option_fields(changes())


@cache
def _option_fields(known: int) -> dict[str, FieldInfo]:
    fields: dict[str, FieldInfo] = {}
    for name, field in Experiment.model_fields.items():
        fields[name] = field
        if name == "method":
            fields |= {other: _merged(parts) for other, parts in method_options().items()}
    return fields


def _merged(parts: Mapping[str, FieldInfo]) -> FieldInfo:
    """Return the option that several methods have in common, with the help of each."""
    first = next(iter(parts.values()))
    help_text = "; ".join(f"{method}: {field.description}" for method, field in parts.items())
    return FieldInfo(annotation=first.annotation, default=first.default, description=help_text)


def method_options(presets: bool = True) -> dict[str, dict[str, FieldInfo]]:
    """Return the options of methods by name, and of each the methods that have it."""
    found: dict[str, dict[str, FieldInfo]] = {}
    for method in map(partial(find, "methods"), names("methods")):
        for name, field in method.options.model_fields.items():
            if presets or name not in method.presets:
                found.setdefault(name, {})[method.name] = field
    return found


def choices(field: FieldInfo) -> tuple[str, ...] | None:
    """Return the values that an option may have, or None if they are not a short list of names."""
    extra = field.json_schema_extra
    if isinstance(extra, dict):
        return tuple(names(str(extra["kind"])))
    kinds = (field.annotation, *get_args(field.annotation))
    literal = next((kind for kind in kinds if get_origin(kind) is Literal), None)
    return get_args(literal) if literal else None


def _options_of(method: Method, settings: Mapping[str, Any]) -> Options:
    """Return a method's options; raise InputError for those of others, and for unknown ones."""
    known = method_options()
    lines = []
    for name in settings:
        if name not in known:
            lines.append(f"unknown option {name!r}; the options are {', '.join(option_fields())}")
        elif settings[name] is not None and method.name not in known[name]:
            lines.append(
                f"{name} applies to method = {' or '.join(known[name])} only, not to {method.name}; leave "
                f"--{name.replace('_', '-')} out"
            )
    if lines:
        raise InputError("\n".join(lines))
    own = {name: value for name, value in settings.items() if method.name in known[name]}
    for name, value in own.items():
        if isinstance(value, bool):
            raise InputError(f"{name} = {value!r} should be a number or a name, not a boolean")
    return method.options(**own)


def _show(value: object) -> str:
    return "unset" if value is None else str(value)


def _explain(problem: Mapping[str, Any]) -> str:
    """Turn one pydantic error into one line about one option."""
    location = ".".join(str(part) for part in problem["loc"])
    if not location:
        return str(problem["msg"]).removeprefix("Value error, ")
    if isinstance(problem["input"], list):
        return f"{location} is a list; lists of values are for `mu2mpi sweep`"
    message = str(problem["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    return f"{location} = {problem['input']!r} {message}"


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file.

    Raises
    ------
    InputError
        If the file cannot be read or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def result_name(experiment: Experiment, swept: Sequence[str] = ()) -> str:
    """Return a file name such as ``trusted_rho-4_machines-100_seed-1.h5`` made of some settings.

    By default they are those that tell most runs apart.
    """
    parts = []
    for name in swept or _telling(experiment):
        if name == "rho" and experiment.epsilon is not None:
            name = "epsilon"
        value = getattr(experiment, name)
        if isinstance(value, str):
            parts.append(re.sub(r"[^\w.+-]+", "-", value).strip("-."))
        elif value is not None:
            parts.append(f"{name.replace('_', '-')}-{repr(value).removesuffix('.0')}")
    return "_".join(parts) + ".h5"


def _telling(experiment: Experiment) -> Iterator[str]:
    """Yield the settings that name a result where no sweep says which ones vary."""
    yield "data"
    fields = option_fields()
    for name in ("loss", "method", "mechanism", *type(experiment.options).model_fields):
        if getattr(experiment, name) != fields[name].default:
            yield name
    yield from ("server", "machines", "rho", "seed")
