"""Every choice that determines a run, in one validated, immutable object."""

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mu2mpi.errors import InputError
from mu2mpi.methods.pieces import METHODS, Method, method_of
from mu2mpi.privacy.accountant import epsilon_exact, rho_exact
from mu2mpi.privacy.sampler import RESERVE

__all__ = [
    "FILE",
    "MADE_UP_DATA",
    "SOURCE_OPTIONS",
    "Experiment",
    "Sweep",
    "is_file",
    "read_toml",
    "result_name",
]

NAMED = ("data", "preset", "method", "estimator", "query", "server", "machines", "rho", "seed")
"""Settings that name a result where no sweep says which ones vary; later ones do where they are used."""

RHO_DIGITS = 8
"""Of a rho that follows from epsilon, rounded down: fewer than those in which processors and their
mathematical libraries differ, so that the same experiment has the same rho, and thus noise, everywhere."""

LATER: Mapping[str, object] = {
    "normalize": "none",
    "method": "mu2-sgd",
    "estimator": "corrected-momentum",
    "query": "average",
}
"""Options that were not there from the start, and what they are in files without them. The TOML leaves them
out at these values, so that whatever follows from it, such as the noise of a seeded run, stays as it was."""

BY_PRESET = ("normalize", "clip_norm", "diameter", "eta_scale")
"""What a preset chooses where it is not set explicitly, once M is known."""

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
    """One run of Algorithm 1 (untrusted server) or Algorithm 2 (trusted server) of the paper.

    Or of a method beside them, by `method`, or by `estimator` and `query`.

    Options are defined here and nowhere else: the command line, the keys of a configuration file,
    the messages for bad values and the help all come from these fields.

    Raises
    ------
    InputError
        With one line per problem: the option, what is wrong with it, and what is allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

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
    method: Literal["mu2-sgd", "noisy-minibatch-sgd", "dp-sgd", "snowball-sgd"] = Field(
        "mu2-sgd",
        description="the paper's mu^2-SGD, of which --estimator and --query switch a part off each, "
        "or a method that it is compared with (docs/methods.md)",
    )
    estimator: Literal["corrected-momentum", "gradient"] | None = Field(
        None,
        description="mu2-sgd only: what machines send: corrected momentum, or the gradient of a fresh sample "
        "alone [default: corrected-momentum]",
    )
    query: Literal["average", "iterate"] | None = Field(
        None,
        description="mu2-sgd only: where gradients are taken: at the weighted average of the iterates, or at "
        "the last one [default: average]",
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
        description="number of rounds T [default: as many as the samples allow; noisy-minibatch-sgd: that of "
        "its theorem; dp-sgd: 20 passes]",
    )
    batch: int | None = Field(
        None,
        ge=1,
        lt=2**32,
        description="noisy-minibatch-sgd: samples K that each machine draws in a round [default: that of its "
        "theorem]; dp-sgd: samples that are expected in a round of all machines [default: a hundredth of "
        "all, but at least 256]",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="privacy, instead of rho: takes the largest rho that is exactly (epsilon, delta)-private",
    )
    rho: float = Field(
        4.0, gt=0, description="privacy: every order a has Renyi divergence a*rho^2/2; inf for no noise"
    )
    noise: Literal["aggregate"] | None = Field(
        None,
        description="untrusted server only: aggregate draws one N(0, M sigma^2) a round for all machines, "
        "a shortcut to simulate many: results have the same distribution, but single messages are not "
        "protected [default: every machine draws its own, as the protocol says]",
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="the delta of epsilon, be it given or reported; well below 1 / samples"
    )
    preset: Literal["practical"] | None = Field(
        None,
        description="practical chooses normalize, clip-norm, diameter and eta-scale from M, rho and server "
        "alone, but for those that are given [default: the paper's settings]",
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
        for name in ("estimator", "query"):
            if self.method == "mu2-sgd":
                self.__dict__[name] = getattr(self, name) or LATER[name]
            elif getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is a switch of method = mu2-sgd only, and method = {self.method} has its own; "
                    f"leave --{name} out"
                )
        if self.batch is not None and not self.pieces.draws:
            drawing = " or ".join(name for name, method in METHODS.items() if method.draws)
            raise ValueError(f"batch applies to method = {drawing} only, not to {self.method}")
        if self.method == "dp-sgd" and self.server != "trusted":
            raise ValueError(
                "method = dp-sgd needs server = trusted: its noise is drawn once for the sum over "
                "all machines; give --server trusted"
            )
        if self.estimator == "corrected-momentum" and self.query == "iterate" and self.clip_norm is None:
            raise ValueError(
                "estimator = corrected-momentum at query = iterate needs a clip_norm: iterates may lie a "
                "diameter apart in any round, so increments have no bound that noise could be scaled to; "
                "give --clip-norm, or query = average, where none passes G + 2LD"
            )
        if self.preset is not None and not self.pieces.is_mu2:
            raise ValueError(
                "preset chooses settings of mu^2-SGD alone: method = mu2-sgd, estimator = "
                "corrected-momentum, query = average"
            )
        self._check_viewers()
        if self.pieces.hides_iterates:
            self._check_contraction()
        if self.noise == "aggregate" and self.server == "trusted":
            raise ValueError(
                "noise = aggregate applies to server = untrusted only: a trusted server draws but one"
            )
        return self

    @property
    def pieces(self) -> Method:
        """What the method is made of."""
        return method_of(self.method, self.estimator, self.query)

    @property
    def target_epsilon(self) -> float:
        """The epsilon that a run is to keep to at its delta: the one that is given, or that of rho."""
        return self.epsilon or epsilon_exact(self.rho, self.delta)

    def with_size(self, machines: int, rounds: int) -> Self:
        """Return the experiment with M and T filled in.

        Raises
        ------
        InputError
            If the method cannot have so many machines.
        """
        try:
            sized = self.model_copy(update={"machines": machines, "rounds": rounds})
            sized._check_viewers()
        except ValueError as error:
            raise InputError(str(error)) from None
        return sized

    def _check_viewers(self) -> None:
        """Make sure that nobody sees an iterate who must not."""
        if self.pieces.hides_iterates and self.server == "untrusted" and (self.machines or 1) > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, from whoever sees no other, and with "
                "an untrusted server that server and all machines see the others; give --server trusted, or "
                "--machines 1"
            )

    def _check_contraction(self) -> None:
        """Make sure that steps contract, and that what is measured is protected."""
        if self.clip_norm is not None:
            raise ValueError(
                "method = snowball-sgd takes gradients as they are: its privacy needs steps that contract, "
                "and those with clipped gradients need not; leave --clip-norm out"
            )
        if self.eta_scale is not None and self.eta_scale > 1:
            raise ValueError(
                f"eta_scale = {self.eta_scale:g} is in units of 2/L, and steps of method = snowball-sgd that "
                "are longer do not contract, so that nothing is known of its privacy; give at most 1"
            )
        if self.evaluations is not None and self.evaluations > 1:
            raise ValueError(
                "method = snowball-sgd protects the last iterate alone, so that is where loss and accuracy "
                "are measured; give --evaluations 1, or leave it out"
            )

    @model_validator(mode="after")
    def _calibrate(self) -> Self:
        if self.epsilon is not None:
            if "rho" in self.model_fields_set:
                raise ValueError("rho and epsilon are both given, and either determines the other; give one")
            rounding = Context(prec=RHO_DIGITS, rounding=ROUND_FLOOR)
            exact = rho_exact((1 - RESERVE) * self.epsilon, (1 - RESERVE) * self.delta)
            rho = rounding.create_decimal(repr(exact))
            self.__dict__["rho"] = float(rho)
        return self

    if not TYPE_CHECKING:  # type checkers know the fields better than this signature tells

        def __init__(self, **settings: Any) -> None:
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise InputError("\n".join(_explain(problem) for problem in error.errors())) from None

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

    def to_toml(self) -> str:
        """Return the TOML that repeats this experiment.

        Options left to their meaning "unset" are absent, and so is a rho that follows from epsilon.
        """
        follows = () if self.epsilon is None else ("rho",)
        return tomli_w.dumps({k: v for k, v in self.settings().items() if k not in follows})

    def sent(self) -> Self:
        """Return the experiment without what changes nothing in what a completed run sends.

        With the same seed, runs that agree in this draw the same noise, and on the same data send the same
        messages. With epsilon unset, rho speaks for itself, and without the preset what it chose. Where
        samples are drawn at random, the noise follows from epsilon and delta instead.
        """
        unset: dict[str, Any] = {"seed": None, "evaluations": None}
        if not self.pieces.draws:
            unset |= {"epsilon": None, "delta": type(self).model_fields["delta"].default, "preset": None}
        return self.model_copy(update=unset)

    @property
    def tests_on_a_share(self) -> bool:
        """Whether the test set is a share of a file of the user's: people's data, which no noise protects."""
        return is_file(self.data) and not isinstance(self.test, str)

    def settings(self) -> dict[str, Any]:
        """Return every option that has a value and applies to this data source.

        Later options are there only if used, and what a preset is still to choose is not.
        """
        hidden = self._inapplicable() | {k for k, default in LATER.items() if getattr(self, k) == default}
        if self.preset is not None:
            hidden = (hidden | set(BY_PRESET)) - (self.model_fields_set & set(BY_PRESET))
        return {k: v for k, v in self.model_dump().items() if v is not None and k not in hidden}

    def _inapplicable(self) -> set[str]:
        """Return the options that apply to other sources of data only."""
        source = FILE if is_file(self.data) else self.data
        return set().union(*SOURCE_OPTIONS.values()) - set(SOURCE_OPTIONS.get(source, ()))

    def difference(self, other: Self) -> str | None:
        """Say in words which setting first differs from `other`, or return None if none does."""
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {_show(mine)} here and {_show(theirs)} there"
        return None


def _show(value: object) -> str:
    return "unset" if value is None else str(value)


def _explain(problem: Mapping[str, Any]) -> str:
    """Turn one pydantic error into one line about one option."""
    location = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown option {location!r}; the options are {', '.join(Experiment.model_fields)}"
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


class Sweep:
    """Every combination of settings of which some are lists.

    Parameters
    ----------
    settings : mapping
        Values by option name; a list stands for one run for each of its values. Under the name ``part`` there
        may be several such mappings: each is a sweep of its own, with what it does not name from outside.
    where : str, optional
        Where they come from, for messages.
    overrides : mapping, optional
        Values that replace those of the settings, in every part.

    Attributes
    ----------
    swept : list of str
        The options that were given as lists or in parts, in their order.
    experiments : list of Experiment
        All combinations of one part after the other, none twice; the last list varies fastest.

    Raises
    ------
    InputError
        If any combination is not a valid experiment, or a list is empty or repeats a value.
    """

    def __init__(
        self, settings: Mapping[str, Any], where: str = "", overrides: Mapping[str, Any] | None = None
    ) -> None:
        overrides = overrides or {}
        common = {name: value for name, value in settings.items() if name != "part"}
        parts = settings.get("part", [{}])
        if not (isinstance(parts, list) and parts and all(isinstance(part, dict) for part in parts)):
            raise InputError(f"{where}: parts of a sweep are tables that begin with [[part]]")
        varying = [name for name, value in common.items() if isinstance(value, list)]
        varying += [name for part in parts for name in part]
        self.swept = [name for name in dict.fromkeys(varying) if name not in overrides]
        products = [_product({**common, **part, **overrides}, where) for part in parts]
        self.experiments = list(dict.fromkeys(itertools.chain(*products)))

    def choose(self, index: int | None) -> list[tuple[int, Experiment]]:
        """Return the experiments with their indices: all, or the one with this index.

        Raises
        ------
        InputError
            If there is no such index.
        """
        numbered = list(enumerate(self.experiments))
        if index is None:
            return numbered
        if not 0 <= index < len(numbered):
            raise InputError(
                f"the sweep has {len(numbered)} runs, so --index must lie in 0 .. {len(numbered) - 1}"
            )
        return [numbered[index]]

    def file_name(self, experiment: Experiment) -> str:
        """Return the name of an experiment's result, made of the settings that the sweep varies."""
        return result_name(experiment, self.swept)


def _product(settings: Mapping[str, Any], where: str) -> list[Experiment]:
    """Return every combination of the lists among some settings."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    for name, values in lists.items():
        if not values or any(values.count(value) > 1 for value in values):
            raise InputError(f"{where}: the list of {name} is empty or repeats a value: {values}")
    experiments = [
        Experiment.make(dict(zip(lists, values, strict=True)), where)
        for values in itertools.product(*lists.values())
    ]
    if len(set(experiments)) < len(experiments):
        raise InputError(f"{where}: two combinations of the lists are the same experiment")
    return experiments


def result_name(experiment: Experiment, names: Sequence[str] = ()) -> str:
    """Return a file name such as ``trusted_rho-4_machines-100_seed-1.h5`` made of some settings.

    By default they are those that tell most runs apart.
    """
    parts = []
    used = experiment.settings()
    for name in names or [name for name in NAMED if name not in LATER or name in used]:
        if name == "rho" and experiment.epsilon is not None:
            name = "epsilon"
        value = getattr(experiment, name)
        if isinstance(value, str):
            parts.append(re.sub(r"[^\w.+-]+", "-", value).strip("-."))
        elif value is not None:
            parts.append(f"{name.replace('_', '-')}-{repr(value).removesuffix('.0')}")
    return "_".join(parts) + ".h5"
