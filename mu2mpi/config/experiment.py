"""Experiment: all settings that determine a run, validated and immutable."""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self

import tomli_w
from pydantic import BaseModel, ValidationError

from mu2mpi.config.experiment_options import (
    PER_MACHINE_OPTIONS,
    ExperimentOptions,
    build_options,
    format_validation_errors,
    implied_mechanism,
    option_fields,
    own_options,
    preferred_method,
)
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.data.source import PublicFacts, Source, find_source
from mu2mpi.federation.trust_mode import TrustMode
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact


def _options_of(kind: str) -> Any:
    """Declare a property of an experiment: the own options of its source, method, mechanism or server."""
    return property(lambda experiment: experiment._own_options[kind], doc=f"Own options of the {kind}.")


class Experiment(ExperimentOptions):
    """Settings of one run, by default of Algorithm 1 (untrusted) or Algorithm 2 (trusted) of the paper.

    Its attributes are the options of every experiment, and own options of its source, method, mechanism and
    server; those of others are None. Command line, configuration files and help have the same options.

    Parameters
    ----------
    **settings
        Options by name, as ``mu2mpi run --help all`` lists them.

    Raises
    ------
    InputError
        For invalid settings, with one line per setting: its value, and the values allowed.

    Examples
    --------
    >>> experiment = mu2mpi.Experiment(data="digits", machines=4, epsilon=2.0, seed=1)
    >>> experiment.server, round(experiment.rho, 2)
    ('untrusted', 0.5)
    >>> experiment.replace(server="trusted").settings()["server"]
    'trusted'
    >>> mu2mpi.Experiment(machines=0)
    Traceback (most recent call last):
    mu2mpi.core.errors.InputError: machines = 0 should be greater than or equal to 1
    """

    _own_options: dict[str, BaseModel] = {}  # noqa: RUF012 - pydantic copies it
    _implied_mechanism: str | None = None

    if not TYPE_CHECKING:  # type checkers use the fields instead of this signature

        def __init__(self, **settings: Any) -> None:
            chosen = {**preferred_method(settings), **settings}
            own = {name: value for name, value in chosen.items() if name in type(self).model_fields}
            others = {name: value for name, value in settings.items() if name not in own}
            if own.get("rho") is not None and own.get("epsilon") is not None:
                raise InputError(
                    "rho and epsilon are both given, but each determines the other. Give only one"
                )
            try:
                # None means the default, as if the option were not given.
                super().__init__(**{name: value for name, value in own.items() if value is not None})
                chosen = {"data": self.source.form, "method": self.method, "server": self.server}
                self._implied_mechanism = implied_mechanism(others)
                # The default mechanism depends on own options of the method, so these are validated first.
                mechanisms = own_options("mechanism")
                mechanism_options = {name: others.pop(name) for name in list(others) if name in mechanisms}
                self._own_options = build_options(chosen, others)
                self._own_options |= build_options({"mechanism": self.chosen_mechanism}, mechanism_options)
                check_compatibility(self)
                self.chosen_method.check(self, self.options)
            except ValidationError as error:
                raise InputError(format_validation_errors(error)) from None
            except ValueError as error:
                raise InputError(str(error)) from None

    def __getattr__(self, name: str) -> Any:
        """Own option of the source, method, mechanism or server; None for an option of others."""
        if not name.startswith("_"):
            for part in self._own_options.values():
                if name in type(part).model_fields:
                    return getattr(part, name)
            if name in option_fields():
                return None
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def schema(self) -> str | None:  # type: ignore[override]
        """The option `schema`, which shadows an attribute of pydantic."""
        value: str | None = self.__getattr__("schema")
        return value

    def __repr_args__(self) -> Any:
        return self.settings().items()

    def __hash__(self) -> int:
        return hash((*self.__dict__.values(), *self._own_options.values()))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], where: str = "") -> Self:
        """Build an experiment from settings; error messages begin with their origin, such as a file name."""
        try:
            return cls(**settings)
        except InputError as error:
            prefix = f"{where}: " if where else ""
            raise InputError("\n".join(prefix + line for line in str(error).splitlines())) from None

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with changed settings; None resets a setting to its default."""
        given = {name: getattr(self, name) for name in self.explicit_settings}
        if all(given.get(name) == value for name, value in changes.items()):
            return self
        for name, other in (("rho", "epsilon"), ("epsilon", "rho")):
            if changes.get(name) is not None:
                given.pop(other, None)
        settings = {**given, **changes}
        return type(self)(**{name: value for name, value in settings.items() if value is not None})

    def replace_unchecked(self, **values: Any) -> Self:
        """Return a copy with changed values, without validation; None resets a value to its default."""

        def changed(part: BaseModel) -> dict[str, Any]:
            fields = type(part).model_fields
            known = {name: value for name, value in values.items() if name in fields}
            return {name: fields[name].default if v is None else v for name, v in known.items()}

        copy = super().model_copy(update=changed(self))
        copy._own_options = {
            kind: part.model_copy(update=changed(part)) for kind, part in self._own_options.items()
        }
        return copy

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a validated copy, as `replace` does."""
        return self.replace(**(update or {}))

    @property
    def explicit_settings(self) -> set[str]:
        """Names of the settings that were given explicitly."""
        return self.model_fields_set.union(*(part.model_fields_set for part in self._own_options.values()))

    @property
    def defaults(self) -> dict[str, Any]:
        """Default of each option of this experiment, by name."""
        parts = (self, *self._own_options.values())
        return {name: field.default for part in parts for name, field in type(part).model_fields.items()}

    options, mechanism_options = _options_of("method"), _options_of("mechanism")
    source_options, server_options = _options_of("data"), _options_of("server")

    @property
    def source(self) -> type[Source]:
        """Class of the data source."""
        return find_source(self.data)

    @property
    def trust(self) -> type[TrustMode]:
        """Class of the trust mode."""
        trust_mode: type[TrustMode] = lookup("servers", self.server)
        return trust_mode

    @property
    def data_set_key(self) -> tuple[object, ...]:
        """Settings that identify the data set, for a cache of opened sources."""
        return self.data, self.source_options, self.scaling, lookup("losses", self.loss).label_kind

    @property
    def chosen_method(self) -> Any:
        """Method after its switches, such as --estimator, are applied."""
        return lookup("methods", self.method).select_variant(self.options)

    @property
    def chosen_mechanism(self) -> str:
        """Name of the mechanism: as given, implied by its options, or the default of server or method."""
        own = self.trust.mechanism or self._implied_mechanism or self.chosen_method.mechanism
        return self.mechanism or own

    @property
    def target_epsilon(self) -> float:
        """Epsilon to reach at `delta`: as given, or the exact epsilon of `rho`."""
        return self.epsilon or epsilon_exact(self.rho, self.delta)

    @property
    def epsilon_limit(self) -> float:
        """Upper limit of the epsilon of a run; infinite if its mechanism is calibrated by rho alone."""
        by_rho = lookup("mechanisms", self.chosen_mechanism).budget_parameter == "rho"
        return self.epsilon or (math.inf if by_rho else self.target_epsilon * (1 + 1e-9))

    def preset_settings(self, facts: PublicFacts | None = None) -> dict[str, Any]:
        """Return the settings of the preset, over which explicit ones take precedence; empty without one."""
        if self.preset is None:
            return {}
        chosen: dict[str, Any] = lookup("presets", self.preset).settings(self.chosen_method, self, facts)
        return chosen

    @property
    def scaling(self) -> str:
        """Scaling of samples: `normalize` if explicit, else the choice of the preset, if any."""
        chosen = {} if "normalize" in self.explicit_settings else self.preset_settings()
        return str(chosen.get("normalize", self.normalize))

    def to_toml(self) -> str:
        """Return TOML that repeats this experiment, without unset options and a rho derived from epsilon."""
        follows = () if self.epsilon is None else ("rho",)
        return tomli_w.dumps({k: v for k, v in self.settings().items() if k not in follows})

    @property
    def has_unprotected_test_set(self) -> bool:
        """Whether the test set is a share of a user's data file, which no noise protects."""
        return self.source.is_user_data and not isinstance(self.test, str)

    def settings(self) -> dict[str, Any]:
        """Return set options by name, without defaults that the preset will replace."""
        from_preset = self.preset_settings().keys() - self.explicit_settings
        return {name: value for name, value in self.values().items() if name not in from_preset}

    def values(self) -> dict[str, Any]:
        """Return set options by name, in the order of `option_fields`."""
        values = {name: value for part in (self, *self._own_options.values()) for name, value in part}
        return {name: values[name] for name in option_fields() if values.get(name) is not None}


def check_compatibility(experiment: Experiment) -> None:
    """Raise InputError for settings that exclude each other."""
    trust_mode, mechanism = experiment.trust, experiment.chosen_mechanism
    experiment.source.check(experiment, experiment.source_options)
    if experiment.norm_bound is not None and experiment.normalize == "unit":
        raise InputError(
            "--norm-bound has no effect with --normalize unit, which makes norms 1. Give only one"
        )
    if experiment.noise == "aggregate" and trust_mode.protects_sum_only:
        raise InputError("--noise aggregate needs --server untrusted, since others add noise to sums anyway")
    if trust_mode.mechanism not in (None, mechanism):
        raise InputError(
            f"--mechanism {mechanism} does not work with --server {experiment.server}, which uses "
            f"{trust_mode.mechanism} noise. Leave out --mechanism, or choose another server"
        )
    if lookup("mechanisms", mechanism).is_server_specific and trust_mode.mechanism is None:
        servers = [name for name in known_names("servers") if lookup("servers", name).mechanism == mechanism]
        raise InputError(
            f"--mechanism {mechanism} needs --server {' or '.join(servers)}, got {experiment.server}. "
            "Leave out --mechanism, or choose another server"
        )
    if given := [name for name in PER_MACHINE_OPTIONS if getattr(experiment, name) is not None]:
        _check_unequal_machines(experiment, given[0])
    elif experiment.participation_seed is not None:
        raise InputError("--participation-seed needs --participation. Give both, or leave it out")


def _check_unequal_machines(experiment: Experiment, name: str) -> None:
    """Raise InputError for settings that exclude one of the options PER_MACHINE_OPTIONS, which was given."""
    option = f"--{name} {getattr(experiment, name)}"
    method, mechanism = experiment.chosen_method, lookup("mechanisms", experiment.chosen_mechanism)
    for selector, chosen in {"server": experiment.trust, "method": method}.items():
        if not chosen.supports_partial_participation:
            raise InputError(
                f"{option} does not work with --{selector} {chosen.name}, which needs equal machines in "
                f"every round. Choose another {selector} (docs/guides/federations.md), or leave it out"
            )
    if experiment.noise == "aggregate":
        raise InputError(f"{option} does not work with --noise aggregate, which needs equal machines")
    if experiment.preset is not None and not method.preset_supports_partial_participation:
        raise InputError(
            f"{option} does not work with --preset {experiment.preset} and --method {method.name}, whose "
            "steps assume all machines. Use --method mu2-sgd, or give --clip-norm, --diameter and --eta-scale"
        )
    if experiment.budgets is not None and (
        mechanism.budget_parameter != "rho" or not mechanism.shows_messages
    ):
        raise InputError(
            f"{option} does not work with --mechanism {mechanism.name}, which has one account for all "
            "machines. Choose a method with gaussian or correlated noise, or leave it out"
        )


def sent_settings(experiment: Experiment) -> Experiment:
    """Return the experiment without the settings that change neither messages nor noise."""
    presets = lookup("methods", experiment.method).presets
    unsent = "seed", "evaluations", "strict", "data_is_public", *presets, *experiment.trust.simulation_options
    changes: dict[str, Any] = dict.fromkeys(unsent)
    if lookup("mechanisms", experiment.chosen_mechanism).budget_parameter == "rho":
        changes |= {"rho": experiment.rho, "epsilon": None}
        # A file of budgets may state epsilons, which are converted to rho at delta.
        changes |= {"delta": None} if experiment.budgets is None else {}
    return experiment.replace_unchecked(**changes)


def simulated_protocol(experiment: Experiment) -> str:
    """Describe what is simulated: "aggregate", or the protocol of the trust mode."""
    return experiment.noise or experiment.trust.simulation_fidelity(experiment.server_options)


def automatic_settings(experiment: Experiment, facts: PublicFacts | None) -> dict[str, Any]:
    """Return the settings that the preset or the server chooses unless they are explicit."""
    options = type(experiment.server_options)()
    chosen = {**options.model_dump(), **experiment.trust.resolve_options(options, experiment.machines or 1)}
    return {**experiment.preset_settings(facts), **chosen}


def complete_experiment(experiment: Experiment, facts: PublicFacts | None = None, **sizes: Any) -> Experiment:
    """Return the experiment with sizes, such as machines, and the preset's choices of other settings."""
    sizes = {name: value for name, value in sizes.items() if value is not None}
    sized = experiment.replace_unchecked(**sizes)
    chosen = {
        name: value
        for name, value in sized.preset_settings(facts).items()
        if name not in sized.explicit_settings
    }
    return experiment.replace(**chosen, **sizes)


def first_difference(first: Experiment, other: Experiment, but: Collection[str] = ()) -> str | None:
    """Describe the first setting, except those of `but`, that differs between two experiments, or None."""
    for name in (name for name in option_fields() if name not in but):
        values = getattr(first, name), getattr(other, name)
        if values[0] != values[1]:
            mine, theirs = ("unset" if value is None else value for value in values)
            return f"{name} is {mine} here and {theirs} there"
    return None
