"""Experiment: all settings that determine a run, validated and immutable."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from mu2mpi.config.experiment_options import (
    PER_MACHINE_OPTIONS,
    ExperimentOptions,
    build_component_options,
    format_validation_errors,
    implied_mechanism,
    option_fields,
    own_option_fields,
    preset_method,
)
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.data.source import DataSource, PublicFacts, find_source
from mu2mpi.federation.trust_mode import TrustMode
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact


def _options_property(option: str) -> Any:
    return property(lambda self: self._component_options[option], doc=f"Own options of the {option}.")


class Experiment(ExperimentOptions):
    """Settings of one run, by default of Algorithm 1 (untrusted) or Algorithm 2 (trusted) of the paper.

    Attributes are the options of every experiment, and the own options of its source, method, mechanism and
    server; own options of other components are None. Command line and TOML files have the same options.

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

    _component_options: dict[str, BaseModel] = {}  # noqa: RUF012 - pydantic copies it
    _implied_mechanism: str | None = None

    if not TYPE_CHECKING:  # type checkers use the fields instead of this signature

        def __init__(self, **settings: Any) -> None:
            chosen = {**settings, **preset_method(settings)}  # where method is None, the preset chooses it
            common = {name: value for name, value in chosen.items() if name in type(self).model_fields}
            own = {name: value for name, value in settings.items() if name not in common}
            if common.get("rho") is not None and common.get("epsilon") is not None:
                message = "rho and epsilon are both given, but each determines the other. Give only one"
                raise InputError(message)
            try:
                # None means the default, as if the option were not given.
                super().__init__(**{name: value for name, value in common.items() if value is not None})
                chosen = {"data": self.source.option_syntax, "method": self.method, "server": self.server}
                self._implied_mechanism = implied_mechanism(own)
                # The default mechanism depends on own options of the method, so these are validated first.
                mechanisms = own_option_fields("mechanism")
                mechanism_options = {name: own.pop(name) for name in list(own) if name in mechanisms}
                self._component_options = build_component_options(chosen, own)
                chosen = {"mechanism": self.chosen_mechanism}
                self._component_options |= build_component_options(chosen, mechanism_options)
                check_compatibility(self)
                self.chosen_method.check_experiment(self, self.method_options)
            except ValidationError as error:
                raise InputError(format_validation_errors(error)) from None
            except ValueError as error:
                raise InputError(str(error)) from None

    def __getattr__(self, name: str) -> Any:
        """Own option of the source, method, mechanism or server; None for an option of other components."""
        if not name.startswith("_"):
            for options in self._component_options.values():
                if name in type(options).model_fields:
                    return getattr(options, name)
            if name in option_fields():
                return None
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def schema(self) -> str | None:  # type: ignore[override]
        """File with the schema of the data, an option that shadows the attribute `schema` of pydantic."""
        return self.__getattr__("schema")  # type: ignore[no-any-return]

    def __repr_args__(self) -> Any:
        return self.settings().items()

    def __hash__(self) -> int:
        return hash((*self.__dict__.values(), *self._component_options.values()))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], settings_file: str = "") -> Self:
        """Build an experiment from settings; error messages begin with the name of their file, if any."""
        try:
            return cls(**settings)
        except InputError as error:
            prefix = f"{settings_file}: " if settings_file else ""
            raise InputError("\n".join(prefix + line for line in str(error).splitlines())) from None

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with changed settings; None resets a setting to its default."""
        settings = {name: getattr(self, name) for name in self.explicit_settings}
        if all(settings.get(name) == value for name, value in changes.items()):
            return self
        for name, equivalent in (("rho", "epsilon"), ("epsilon", "rho")):
            if changes.get(name) is not None:
                settings.pop(equivalent, None)
        settings |= changes
        return type(self)(**{name: value for name, value in settings.items() if value is not None})

    def replace_unvalidated(self, **values: Any) -> Self:
        """Return a copy of the experiment with changed settings, unvalidated; None resets to the default."""

        def updates(options: BaseModel) -> dict[str, Any]:
            fields = type(options).model_fields
            known = {name: value for name, value in values.items() if name in fields}
            return {name: fields[name].default if v is None else v for name, v in known.items()}

        copy, own = super().model_copy(update=updates(self)), self._component_options.items()
        changed = {key: options.model_copy(update=new) for key, options in own if (new := updates(options))}
        copy._component_options = self._component_options | changed
        return copy

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a validated copy of the experiment with the settings in `update`, by `replace`."""
        return self.replace(**(update or {}))

    @property
    def explicit_settings(self) -> set[str]:
        """Names of the settings that were given explicitly."""
        own_names = (options.model_fields_set for options in self._component_options.values())
        return self.model_fields_set.union(*own_names)

    @property
    def declarations(self) -> dict[str, FieldInfo]:
        """Declaration of each option of this experiment, by name."""
        models = (self, *self._component_options.values())
        return {name: field for model in models for name, field in type(model).model_fields.items()}

    @property
    def defaults(self) -> dict[str, Any]:
        """Default of each option of this experiment, by name."""
        return {name: field.default for name, field in self.declarations.items()}

    method_options, mechanism_options = _options_property("method"), _options_property("mechanism")
    source_options, server_options = _options_property("data"), _options_property("server")

    @property
    def source(self) -> type[DataSource]:
        """Class of the data source."""
        return find_source(self.data)

    @property
    def trust_mode(self) -> type[TrustMode]:
        """Class of the trust mode."""
        return lookup("servers", self.server)  # type: ignore[no-any-return]

    @property
    def data_set_identity(self) -> tuple[object, ...]:
        """Settings (source, its options, scaling, label kind) that identify the data set in a cache."""
        return self.data, self.source_options, self.sample_scaling, lookup("losses", self.loss).label_kind

    @property
    def chosen_method(self) -> Any:
        """Method object: the variant of --method that its own options, such as --estimator, select."""
        return lookup("methods", self.method).select_variant(self.method_options)

    @property
    def chosen_mechanism(self) -> str:
        """Name of the noise mechanism: --mechanism, or else implied by the server, own options or method."""
        default = self.trust_mode.mechanism or self._implied_mechanism or self.chosen_method.mechanism
        return self.mechanism or default

    @property
    def target_epsilon(self) -> float:
        """Privacy budget epsilon at `delta`: --epsilon if given, else the exact epsilon of `rho`."""
        return self.epsilon or epsilon_exact(self.rho, self.delta)

    @property
    def max_claimed_epsilon(self) -> float:
        """Largest epsilon that a run may claim; infinite if its mechanism is calibrated by rho alone."""
        by_rho = lookup("mechanisms", self.chosen_mechanism).budget_parameter == "rho"
        return self.epsilon or (math.inf if by_rho else self.target_epsilon * (1 + 1e-9))

    def preset_settings(self, public_facts: PublicFacts | None = None) -> dict[str, Any]:
        """Return the settings that --preset chooses, which explicit settings override, or {} without it."""
        if self.preset is None:
            return {}
        preset: Any = lookup("presets", self.preset)
        return dict(preset.settings(self.chosen_method, self, public_facts))

    @property
    def sample_scaling(self) -> str:
        """Scaling of samples (none, unit or box): --normalize if given, else the choice of the preset."""
        chosen = {} if "normalize" in self.explicit_settings else self.preset_settings()
        return str(chosen.get("normalize", self.normalize))

    def to_toml(self) -> str:
        """Return this experiment's settings as TOML, without unset ones and a rho derived from epsilon."""
        derived = () if self.epsilon is None else ("rho",)
        return tomli_w.dumps({name: v for name, v in self.settings().items() if name not in derived})

    @property
    def has_unprotected_test_set(self) -> bool:
        """Whether the test set is a share of a user's data file, which no noise protects."""
        return self.source.is_user_data and not isinstance(self.test, str)

    def settings(self) -> dict[str, Any]:
        """Return the settings that are not None by name, without defaults that the preset replaces."""
        from_preset = self.preset_settings().keys() - self.explicit_settings
        return {name: v for name, v in self.settings_with_defaults().items() if name not in from_preset}

    def settings_with_defaults(self) -> dict[str, Any]:
        """Return all settings that are not None by name, in the order of `option_fields`."""
        values = {name: v for options in (self, *self._component_options.values()) for name, v in options}
        return {name: values[name] for name in option_fields() if values.get(name) is not None}


def check_compatibility(experiment: Experiment) -> None:
    """Raise InputError if settings of an experiment contradict each other."""
    trust_mode, mechanism = experiment.trust_mode, experiment.chosen_mechanism
    experiment.source.check_experiment(experiment, experiment.source_options)
    if experiment.norm_bound is not None and experiment.normalize == "unit":
        message = "--norm-bound has no effect with --normalize unit, which makes norms 1. Give only one"
        raise InputError(message)
    if experiment.noise == "aggregate" and trust_mode.protects_sum_only:
        raise InputError("--noise aggregate needs --server untrusted, since others add noise to sums anyway")
    if trust_mode.mechanism not in (None, mechanism):
        raise InputError(
            f"--mechanism {mechanism} does not work with --server {experiment.server}, which uses "
            f"{trust_mode.mechanism} noise. Leave out --mechanism, or choose another server"
        )
    servers = [name for name in known_names("servers") if lookup("servers", name).mechanism == mechanism]
    if servers and trust_mode.mechanism is None:
        raise InputError(
            f"--mechanism {mechanism} needs --server {' or '.join(servers)}, got {experiment.server}. "
            "Leave out --mechanism, or choose another server"
        )
    if explicit := [name for name in PER_MACHINE_OPTIONS if getattr(experiment, name) is not None]:
        _check_per_machine_option(experiment, explicit[0])
    elif experiment.participation_seed is not None:
        raise InputError("--participation-seed needs --participation. Give both, or leave it out")


def _check_per_machine_option(experiment: Experiment, option_name: str) -> None:
    """Raise InputError if settings contradict the named option, one of PER_MACHINE_OPTIONS."""
    option = f"--{option_name} {getattr(experiment, option_name)}"
    method, mechanism = experiment.chosen_method, lookup("mechanisms", experiment.chosen_mechanism)
    for choice, component in {"server": experiment.trust_mode, "method": method}.items():
        if not component.supports_partial_participation:
            raise InputError(
                f"{option} does not work with --{choice} {component.name}, which needs equal machines in "
                f"every round. Choose another {choice} (docs/guides/federations.md), or leave it out"
            )
    if experiment.noise == "aggregate":
        raise InputError(f"{option} does not work with --noise aggregate, which needs equal machines")
    if experiment.preset is not None and not method.preset_supports_partial_participation:
        raise InputError(
            f"{option} does not work with --preset {experiment.preset} and --method {method.name}, whose "
            "steps assume all machines. Use --method mu2-sgd, or give --clip-norm, --diameter and --eta-scale"
        )
    has_machine_accounts = mechanism.budget_parameter == "rho" and mechanism.reveals_messages
    if experiment.budgets is not None and not has_machine_accounts:
        raise InputError(
            f"{option} does not work with --mechanism {mechanism.name}, which has one account for all "
            "machines. Choose a method with gaussian or correlated noise, or leave it out"
        )


def message_settings(experiment: Experiment) -> Experiment:
    """Return the experiment without settings, such as --seed, that change neither messages nor sigma."""
    without_effect = ("seed", "evaluations", "data_is_public", "preset")
    changes: dict[str, Any] = dict.fromkeys((*without_effect, *experiment.trust_mode.simulation_options))
    if lookup("mechanisms", experiment.chosen_mechanism).budget_parameter == "rho":
        changes |= {"rho": experiment.rho, "epsilon": None}
        # A file of budgets may state epsilons, which are converted to rho at delta.
        changes |= {"delta": None} if experiment.budgets is None else {}
    return experiment.replace_unvalidated(**changes)


def simulated_protocol_name(experiment: Experiment) -> str:
    """Name of the simulated protocol: "aggregate" (noise of the sum alone), or that of the trust mode."""
    return experiment.noise or experiment.trust_mode.simulation_label(experiment.server_options)


def preset_and_server_settings(experiment: Experiment, public_facts: PublicFacts | None) -> dict[str, Any]:
    """Return the settings that the preset and the server choose in place of unset ones, by name."""
    defaults = type(experiment.server_options)()
    resolved = experiment.trust_mode.resolve_options(defaults, experiment.machines or 1)
    return {**experiment.preset_settings(public_facts), **defaults.model_dump(), **resolved}


def complete_experiment(
    experiment: Experiment, public_facts: PublicFacts | None = None, **resolved: Any
) -> Experiment:
    """Return the experiment with `resolved` settings and, where unset, those that the preset chooses."""
    resolved = {name: value for name, value in resolved.items() if value is not None}
    updated = experiment.replace_unvalidated(**resolved)
    preset, explicit = updated.preset_settings(public_facts), updated.explicit_settings
    chosen = {name: value for name, value in preset.items() if name not in explicit}
    return experiment.replace(**chosen, **resolved)


def first_different_setting(here: Experiment, there: Experiment) -> str | None:
    """Describe the first setting in which two experiments differ; None if they are the same."""
    for name in option_fields():
        values = getattr(here, name), getattr(there, name)
        if values[0] != values[1]:
            here_text, there_text = ("unset" if value is None else value for value in values)
            return f"{name} is {here_text} here and {there_text} there"
    return None
