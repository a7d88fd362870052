"""What a run claims of its privacy, with all that is needed to compute the claims again, and doing so."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, Self, get_type_hints

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names
from mu2mpi.privacy.accounting.gaussian_dp import SMALLEST_DELTA
from mu2mpi.privacy.accounting.guarantee import Guarantee
from mu2mpi.privacy.accounting.per_machine import Accounts
from mu2mpi.privacy.mechanisms.mechanism import NONSENSE, Concern, Mechanism, agree
from mu2mpi.privacy.noise.sampler_error import is_negligible

ADJACENCY, UNIT = "replace-one", "one sample of one machine"  # how neighbours differ, and what is replaced
# What a statement can say, but for the server
_KNOWN = {"noise": ["protocol", "aggregate", "unmasked"], "adjacency": [ADJACENCY], "unit": [UNIT]}
# What is sent in place of what the protocol sends
_SHORTCUTS = {
    "aggregate": Concern("noise = aggregate", "The noise of all machines is drawn as one"),
    "unmasked": Concern("masks = none", "No masks hide single messages"),
}
# Beyond it a guarantee says little: what is seen may be e^10 = 22,026 times as likely with one sample
LARGE_EPSILON = 10.0
# As what a file keeps attributes of each type, and what they are called
_KINDS = {str: (str, "text"), float: (Real, "number"), int: (Integral, "integer"), bool: (Integral, "0 or 1")}


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The guarantee of one run: neighbours differ in one sample of one machine, which is replaced."""

    mechanism: Mechanism
    server: str  # the trust mode, which says who sees what; but see what the mechanism protects
    delta: float
    epsilon: float  # (epsilon, delta)-DP by the paper's lemma
    epsilon_exact: float  # the smallest that holds; where no rho describes the releases, both are this one
    epsilon_sampler: float  # what of this is due to noise that is drawn, in place of exact rounded normals
    S: float  # the bound on the norm of what a sample adds, such as G + 2LD
    # Or aggregate, if the noise of all machines was drawn as one, or unmasked, if no masks hid messages: the
    # guarantee is then that of the protocol, and not of what was sent
    noise: str = "protocol"
    noise_recomputable: bool = False  # whether the noise follows from a seed that is written down
    adjacency: str = ADJACENCY
    unit: str = UNIT

    @classmethod
    def of(cls, mechanism: Mechanism, delta: float, **stated: Any) -> Self:
        """Return the statement with its epsilons computed; InputError if a library is missing for that."""
        unknown: dict[str, Any] = dict.fromkeys(("epsilon", "epsilon_exact", "epsilon_sampler"), math.nan)
        statement = cls(mechanism=mechanism, delta=delta, **unknown, **stated)
        return replace(statement, **_epsilons(statement.guarantee, delta))

    @property
    def draws(self) -> int:
        """Number of machines whose noise is drawn as one."""
        return self.mechanism.machines if self.noise == "aggregate" else 1

    @property
    def guarantee(self) -> Guarantee:
        """What everything that is seen reveals at most."""
        return self.mechanism.guarantee(draws=self.draws)

    def __getattr__(self, name: str) -> Any:
        """Return what the mechanism states: to who reads a file, both are one list."""
        if name.startswith("_") or name == "mechanism":
            raise AttributeError(name)
        return getattr(self.mechanism, name)

    @property
    def who(self) -> str:
        """Who learns no more than is claimed, as the subject of a sentence."""
        known = self.mechanism.machines - self.mechanism.parts
        return self.mechanism.who_sees(self.server, f"up to {known:,}" if known else "no")

    @property
    def colluders(self) -> int | None:
        """How many machines may help whoever is to learn no more, where the trust mode counts them."""
        counts = "{c}" in self.mechanism.who_sees(self.server, "{c}")
        return self.mechanism.machines - self.mechanism.parts if counts else None

    @property
    def has_lost_key(self) -> bool:
        """Whether the noise came from a secret key, which is in no file once the run is over."""
        return self.mechanism.is_noisy and not self.noise_recomputable

    @property
    def rho(self) -> float | None:
        """The rho of all that is seen, as it was asked for, or None where none describes it."""
        return self.mechanism.stated_rho

    def attributes(self) -> dict[str, Any]:
        """Return what a file states, by name: plain texts and numbers."""
        rho = {} if self.rho is None else {"rho": self.rho}
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "mechanism"}
        return own | rho | self.mechanism.attributes()

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """Return the statement that a file holds; InputError if anything is absent, or not known."""
        kind: type[Mechanism] = find("mechanisms", _value("mechanism", str, attributes))
        if (protects := _value("protects", str, attributes)) != kind.protects:
            raise InputError(f"the mechanism {kind.name!r} does not protect {protects!r}")
        made = cls(mechanism=kind(**_values(kind, attributes)), **_values(cls, attributes))
        if "rho" in attributes and kind.spends != "rho":
            raise InputError(f"rho = {attributes['rho']!r} is claimed, and no rho describes {kind.name!r}")
        return made

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed; empty if all can be."""
        found = [] if SMALLEST_DELTA <= self.delta < 1 else [f"delta = {self.delta!r} is out of range"]
        return [*found, *self.mechanism.out_of_range()]

    def mismatches(self) -> list[str]:
        """Say what is claimed that does not follow from the statement's own numbers; empty if all does."""
        mechanism = self.mechanism
        found = [
            f"{name} is {getattr(self, name)!r}, and there is only {' and '.join(map(repr, known))}"
            for name, known in {"server": names("servers"), **_KNOWN}.items()
            if getattr(self, name) not in known
        ]
        if wrong := self.out_of_range():
            return [*found, *wrong]
        found += mechanism.faults(self.delta)
        guarantee = self.guarantee
        truth = {"rho": guarantee.rho, **_epsilons(guarantee, self.delta)}
        return found + [
            f"{name} = {_text(getattr(self, name))} is claimed, but {mechanism.rounds:,} rounds with sigma = "
            f"{mechanism.sigma:.10g} and clip_norm = {mechanism.clip_norm:.10g} give {_text(value)}"
            for name, value in truth.items()
            if not agree(getattr(self, name), value)
        ]

    def check_sampler(self, promised: float) -> None:
        """Raise InputError if draws cost more epsilon than is left to them, or than was promised."""
        exact, kind = self.guarantee.exact(self.delta), self.mechanism.name
        if not exact >= 0:
            raise InputError(f"mechanism = {kind} states epsilon = {exact:g} as its guarantee; {NONSENSE}")
        if not is_negligible(self.epsilon_exact, exact, self.delta):
            raise InputError(
                f"{self.rounds:,} rounds of {self.parameters:,} coordinates take more draws of noise than "
                "are known to be as good as exact ones; give fewer rounds, or a larger rho"
            )
        if self.epsilon_exact > promised:
            side = "larger" if math.isfinite(self.epsilon_exact) else "smaller"
            raise InputError(
                f"epsilon = {promised:.6g} at delta = {self.delta:g} is not known to hold of noise as it is "
                f"drawn, but {self.epsilon_exact:.6g}; give a {side} epsilon or rho, or a larger delta"
            )

    def concerns(self, accounts: Accounts | None = None) -> list[Concern]:
        """Say what is not private about a run, whose machines have these accounts if they differ."""
        mechanism = self.mechanism
        if not mechanism.is_noisy:
            return [Concern("no noise", "No noise was added: there is no privacy guarantee at all.")]
        seed = Concern(
            "its seed is written down",
            "The noise follows from the seed, which is written down: against anyone who knows it there is no "
            "guarantee. Leave the seed out for data that are private.",
        )
        found = [*([seed] if self.noise_recomputable else []), *mechanism.concerns()]
        if (short := _SHORTCUTS.get(self.noise)) is not None:
            found.append(
                Concern(
                    short.brief,
                    f"{short.full} ({short.brief}): this is the guarantee of the protocol that is simulated, "
                    "and not of the messages that are sent.",
                )
            )
        samples = accounts.all_samples if accounts else mechanism.machines * mechanism.samples
        return found + size_concerns(self.epsilon_exact, self.delta, samples)


def _epsilons(guarantee: Guarantee, delta: float) -> dict[str, Any]:
    epsilon, exact = guarantee.epsilon(delta), guarantee.exact(delta)
    return {
        "epsilon": guarantee.lemma(delta),
        "epsilon_exact": epsilon,
        "epsilon_sampler": epsilon - exact if math.isfinite(exact) else 0.0,
    }


def _values(kind: type, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a dataclass of plain values, in Python's own types rather than numpy's."""
    types = get_type_hints(kind)
    return {f.name: _value(f.name, types[f.name], attributes) for f in fields(kind) if f.name != "mechanism"}


def _value(name: str, kind: type, attributes: Mapping[str, Any]) -> Any:
    """Return one of some attributes, or raise InputError if it is not there or not of its type."""
    if name not in attributes:
        raise InputError(f"its privacy statement lacks {name!r}")
    value, (wanted, words) = attributes[name], _KINDS[kind]
    if not isinstance(value, wanted) or (kind is bool and value not in (0, 1)):
        raise InputError(f"{name} = {value!r} in its privacy statement is no {words}")
    return kind(value)


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:.10g}"


def size_concerns(epsilon: float, delta: float, samples: int | None) -> list[Concern]:
    """Say whether epsilon or delta is so large that it protects little; `samples` is n, if it is known."""
    found = []
    if samples is not None and delta * samples >= 1:
        full = (
            f"delta = {delta:g} is not below 1/n for n = {samples:,} samples: to publish one of them, "
            "chosen at random, has no larger a delta."
        )
        found.append(Concern(f"delta is not below 1/n = {1 / samples:.2g}", full))
    if epsilon > LARGE_EPSILON:
        brief = f"epsilon is beyond {LARGE_EPSILON:g}"
        full = (
            f"{brief}, which protects little: what is seen may be more than e^{LARGE_EPSILON:g} = "
            f"{math.exp(LARGE_EPSILON):,.0f} times as likely with one sample as with another."
        )
        found.append(Concern(brief, full))
    return found
