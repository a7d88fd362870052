"""What the user asks for: every setting that determines a run, in one validated, immutable object."""

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Self

import tomli_w
from pydantic import BaseModel, ValidationError

from mu2mpi.config.experiment_options import (
    OF_MACHINES,
    ExperimentOptions,
    explained,
    implied_mechanism,
    option_fields,
    options_for,
    own_options,
    preset_method,
)
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.data.source import PublicFacts, Source, find_source
from mu2mpi.federation.trust_mode import TrustMode
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact


def _options_of(kind: str) -> Any:
    """Declare a property of an experiment: the options of its source, method, mechanism or server."""
    return property(lambda experiment: experiment._parts[kind], doc=f"The options of the {kind}.")


class Experiment(ExperimentOptions):
    """One run of a method: by default of Algorithm 1 (untrusted) or Algorithm 2 (trusted) of the paper.

    Command line, configuration files, messages and help follow from these options and those of a source,
    method, mechanism or server: one flat list, in which options of others are None. It cannot be changed.

    Parameters
    ----------
    **settings
        Options by name, as ``mu2mpi run --help`` lists them.

    Raises
    ------
    InputError
        If options cannot be used: a line for each, with what is wrong with it, and what is allowed.

    Examples
    --------
    >>> experiment = mu2mpi.Experiment(data="digits", machines=4, epsilon=2.0, seed=1)
    >>> experiment.server, round(experiment.rho, 2)
    ('untrusted', 0.5)
    >>> experiment.having(server="trusted").settings()["server"]
    'trusted'
    >>> mu2mpi.Experiment(machines=0)
    Traceback (most recent call last):
    mu2mpi.core.errors.InputError: machines = 0 should be greater than or equal to 1
    """

    _parts: dict[str, BaseModel] = {}  # noqa: RUF012 - pydantic copies it
    _implied_mechanism: str | None = None

    if not TYPE_CHECKING:  # type checkers know the fields better than this signature tells

        def __init__(self, **settings: Any) -> None:
            chosen = {**preset_method(settings), **settings}
            own = {name: value for name, value in chosen.items() if name in type(self).model_fields}
            others = {name: value for name, value in settings.items() if name not in own}
            if own.get("rho") is not None and own.get("epsilon") is not None:
                raise InputError("rho and epsilon are both given, and either determines the other; give one")
            try:
                # None leaves an option to its default, as if it were not given.
                super().__init__(**{name: value for name, value in own.items() if value is not None})
                chosen = {"data": self.source.form, "method": self.method, "server": self.server}
                self._implied_mechanism = implied_mechanism(others)
                # A method with switches is chosen by options of its own, so that mechanisms come after it.
                mechanisms = own_options("mechanism")
                own_ones = {name: others.pop(name) for name in list(others) if name in mechanisms}
                self._parts = options_for(chosen, others)
                self._parts |= options_for({"mechanism": self.chosen_mechanism}, own_ones)
                check_together(self)
                self.chosen_method.check(self, self.options)
            except ValidationError as error:
                raise InputError(explained(error)) from None
            except ValueError as error:
                raise InputError(str(error)) from None

    def __getattr__(self, name: str) -> Any:
        """Return an option of the method or the source, or None if it is of another one."""
        if not name.startswith("_"):
            for part in self._parts.values():
                if name in type(part).model_fields:
                    return getattr(part, name)
            if name in option_fields():
                return None
        return super().__getattr__(name)  # type: ignore[misc]

    @property
    def schema(self) -> str | None:  # type: ignore[override]
        """The option of this name, which pydantic has an attribute for, too."""
        value: str | None = self.__getattr__("schema")
        return value

    def __repr_args__(self) -> Any:
        return self.settings().items()

    def __hash__(self) -> int:
        return hash((*self.__dict__.values(), *self._parts.values()))

    @classmethod
    def make(cls, settings: Mapping[str, Any], where: str = "") -> Self:
        """Build an experiment from settings; messages say where these come from, such as a file's name."""
        try:
            return cls(**settings)
        except InputError as error:
            prefix = f"{where}: " if where else ""
            raise InputError("\n".join(prefix + line for line in str(error).splitlines())) from None

    def having(self, **changes: Any) -> Self:
        """Return the experiment with some settings changed, or unset where they are None; all are checked."""
        given = {name: getattr(self, name) for name in self.given}
        if all(given.get(name) == value for name, value in changes.items()):
            return self
        for name, other in (("rho", "epsilon"), ("epsilon", "rho")):
            if changes.get(name) is not None:
                given.pop(other, None)
        settings = {**given, **changes}
        return type(self)(**{name: value for name, value in settings.items() if value is not None})

    def derived(self, **values: Any) -> Self:
        """Return a copy with values that follow from validated ones, unchecked; None is the default."""

        def changed(part: BaseModel) -> dict[str, Any]:
            fields = type(part).model_fields
            known = {name: value for name, value in values.items() if name in fields}
            return {name: fields[name].default if v is None else v for name, v in known.items()}

        copy = super().model_copy(update=changed(self))
        copy._parts = {kind: part.model_copy(update=changed(part)) for kind, part in self._parts.items()}
        return copy

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, of which changes are checked as those of `having` are."""
        return self.having(**(update or {}))

    @property
    def given(self) -> set[str]:
        """The names of all settings that were given, and not left to their defaults."""
        return self.model_fields_set.union(*(part.model_fields_set for part in self._parts.values()))

    @property
    def defaults(self) -> dict[str, Any]:
        """What each option that applies to this source and method is if it is not given."""
        parts = (self, *self._parts.values())
        return {name: field.default for part in parts for name, field in type(part).model_fields.items()}

    options, mechanism_options = _options_of("method"), _options_of("mechanism")
    source_options, server_options = _options_of("data"), _options_of("server")

    @property
    def source(self) -> type[Source]:
        """The source of data."""
        return find_source(self.data)

    @property
    def trust(self) -> type[TrustMode]:
        """The trust mode."""
        trust: type[TrustMode] = find("servers", self.server)
        return trust

    @property
    def data_key(self) -> tuple[object, ...]:
        """What tells the data set from others."""
        return self.data, self.source_options, self.scaling, find("losses", self.loss).labels

    @property
    def chosen_method(self) -> Any:
        """The method, or what its switches make of it."""
        return find("methods", self.method).chosen(self.options)

    @property
    def chosen_mechanism(self) -> str:
        """Name of the mechanism: as given, implied by its options, or the default of server or method."""
        own = self.trust.mechanism or self._implied_mechanism or self.chosen_method.mechanism
        return self.mechanism or own

    @property
    def target_epsilon(self) -> float:
        """The epsilon that a run is to keep to at its delta: the one that is given, or that of rho."""
        return self.epsilon or epsilon_exact(self.rho, self.delta)

    @property
    def promised_epsilon(self) -> float:
        """The epsilon that no run may pass, however its noise is drawn; infinite if it keeps to rho alone."""
        by_rho = find("mechanisms", self.chosen_mechanism).spends == "rho"
        return self.epsilon or (math.inf if by_rho else self.target_epsilon * (1 + 1e-9))

    def by_preset(self, facts: PublicFacts | None = None) -> dict[str, Any]:
        """Return the settings that the preset, if any, chooses where the user gives none."""
        if self.preset is None:
            return {}
        chosen: dict[str, Any] = find("presets", self.preset).settings(self.chosen_method, self, facts)
        return chosen

    @property
    def scaling(self) -> str:
        """How samples are scaled: `normalize`, or what a preset is to choose for it."""
        chosen = {} if "normalize" in self.given else self.by_preset()
        return str(chosen.get("normalize", self.normalize))

    def to_toml(self) -> str:
        """Return the TOML that repeats this experiment, without what is unset and a rho that follows."""
        follows = () if self.epsilon is None else ("rho",)
        return tomli_w.dumps({k: v for k, v in self.settings().items() if k not in follows})

    @property
    def tests_on_a_share(self) -> bool:
        """Whether the test set is a share of a file of the user's: people's data, which no noise protects."""
        return self.source.is_user_data and not isinstance(self.test, str)

    def settings(self) -> dict[str, Any]:
        """Return every option that has a value, but for what a preset is still to choose, by name."""
        open_ones = self.by_preset().keys() - self.given
        return {name: value for name, value in self.values().items() if name not in open_ones}

    def values(self) -> dict[str, Any]:
        """Return every option that has a value, by name, in the order of all options."""
        values = {name: value for part in (self, *self._parts.values()) for name, value in part}
        return {name: values[name] for name in option_fields() if values.get(name) is not None}


def check_together(asked: Experiment) -> None:
    """Raise InputError for settings that do not go together; the message says what would."""
    asked.source.check(asked, asked.source_options)
    if asked.norm_bound is not None and asked.normalize == "unit":
        raise InputError("norm_bound bounds samples of which normalize = unit makes the norm 1; give one")
    if asked.noise == "aggregate" and asked.trust.hides_sums:
        raise InputError("noise = aggregate is for server = untrusted: others have noise for sums already")
    if asked.trust.mechanism not in (None, asked.chosen_mechanism):
        raise InputError(
            f"mechanism = {asked.chosen_mechanism} is not for server = {asked.server}, which has "
            f"{asked.trust.mechanism} noise; leave --mechanism out, or choose another server"
        )
    if find("mechanisms", asked.chosen_mechanism).belongs and asked.trust.mechanism is None:
        having = [name for name in names("servers") if find("servers", name).mechanism == asked.mechanism]
        raise InputError(
            f"mechanism = {asked.mechanism} belongs to server = {' or '.join(having)}, and the server is "
            f"{asked.server}; leave it out, or choose another server"
        )
    if given := [name for name in OF_MACHINES if getattr(asked, name) is not None]:
        _check_machines(asked, given[0])
    elif asked.participation_seed is not None:
        raise InputError("participation_seed decides which machines are away; give it with --participation")


def _check_machines(asked: Experiment, name: str) -> None:
    """Refuse what machines that differ, by one of the options, cannot have."""
    what = f"{name} = {getattr(asked, name)}"
    method, kind = asked.chosen_method, find("mechanisms", asked.chosen_mechanism)
    for chooser, chosen in {"server": asked.trust, "method": method}.items():
        if not chosen.takes_absence:
            raise InputError(
                f"{what}: {chooser} = {chosen.name} is for machines that are alike and all there; choose "
                f"another {chooser} (docs/guides/federations.md), or leave it out"
            )
    if asked.noise == "aggregate":
        raise InputError(f"{what} and noise = aggregate: one draw for all is for machines that are the same")
    if asked.preset is not None and not method.preset_knows_absence:
        raise InputError(
            f"{what} and preset = {asked.preset}: the steps of method = {method.name} would be for machines "
            "that are all there; take method = mu2-sgd, or give --clip-norm, --diameter and --eta-scale"
        )
    if asked.budgets is not None and (kind.spends != "rho" or not kind.shows_messages):
        raise InputError(
            f"{what}: mechanism = {kind.name} has one account for all machines; leave budgets out, or choose "
            "a method with gaussian or correlated noise"
        )


def sent(experiment: Experiment) -> Experiment:
    """Return an experiment without the settings that change no message and no noise."""
    presets = find("methods", experiment.method).presets
    unsent = "seed", "evaluations", "strict", "data_is_public", *presets, *experiment.trust.unsent
    changes: dict[str, Any] = dict.fromkeys(unsent)
    if find("mechanisms", experiment.chosen_mechanism).spends == "rho":
        changes |= {"rho": experiment.rho, "epsilon": None}
        # Budgets may be stated as epsilons, of which delta makes rhos.
        changes |= {"delta": None} if experiment.budgets is None else {}
    return experiment.derived(**changes)


def simulated(experiment: Experiment) -> str:
    """Say what is sent: the protocol, or what stands for it."""
    return experiment.noise or experiment.trust.simulates(experiment.server_options)


def following(experiment: Experiment, facts: PublicFacts | None) -> dict[str, Any]:
    """Return the settings that a preset or the server chooses where nothing else is given."""
    usual = type(experiment.server_options)()
    by_server = {**usual.model_dump(), **experiment.trust.complete(usual, experiment.machines or 1)}
    return {**experiment.by_preset(facts), **by_server}


def filled(experiment: Experiment, facts: PublicFacts | None = None, **sizes: Any) -> Experiment:
    """Return an experiment with sizes, and with what its preset chooses but for what was set explicitly."""
    sizes = {name: value for name, value in sizes.items() if value is not None}
    sized = experiment.derived(**sizes)
    chosen = {name: value for name, value in sized.by_preset(facts).items() if name not in sized.given}
    return experiment.having(**chosen, **sizes)


def difference(one: Experiment, other: Experiment, but: Collection[str] = ()) -> str | None:
    """Say in words which setting differs first, but for some, or return None if none does."""
    for name in (name for name in option_fields() if name not in but):
        values = getattr(one, name), getattr(other, name)
        if values[0] != values[1]:
            mine, theirs = ("unset" if value is None else value for value in values)
            return f"{name} is {mine} here and {theirs} there"
    return None
