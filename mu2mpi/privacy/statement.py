"""Privacy statement of a run: its claims, the numbers they follow from, and their recomputation."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Self, get_type_hints

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.core.text import html_table, rounded_up
from mu2mpi.privacy.accounting.gaussian_dp import MIN_DELTA
from mu2mpi.privacy.accounting.guarantee import Guarantee
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts
from mu2mpi.privacy.accounting.selection import Selection
from mu2mpi.privacy.accounting.tradeoff import TRADEOFF_CLAIMS, TradeoffCurve
from mu2mpi.privacy.mechanisms.mechanism import INVALID_GUARANTEE_MESSAGE, Concern, Mechanism, approx_equal
from mu2mpi.privacy.noise.sampler_error import is_sampler_negligible
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES

# Concerns about runs whose messages differ from those of the protocol, by value of `noise`
_SIMULATION_SIMPLIFICATIONS = {
    "aggregate": ("noise = aggregate", "The noise of all machines is drawn as one"),
    "unmasked": ("masks = none", "No masks hide single messages"),
}
# Claims for comparisons: epsilon of the noise for each neighbouring relation, mu and rates of an attacker
RELATION_EPSILONS = {relation: f"epsilon_{relation.replace('-', '_')}" for relation in UNIT_SENSITIVITIES}
COMPARISONS = (*RELATION_EPSILONS.values(), *TRADEOFF_CLAIMS)
_GROUPED_FIELDS = ("mechanism", "selection", "comparisons")  # fields whose members are HDF5 attributes
LARGE_EPSILON = 10.0  # above it a guarantee means little: likelihood ratios up to e^10 = 22,026
_FILE_TYPES = {str: str, float: Real, int: Integral, bool: Integral}  # of HDF5 attributes, by field type


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """Guarantee of one run for single samples; written to `/privacy`."""

    mechanism: Mechanism
    server: str  # trust mode, which determines the adversary
    delta: float
    epsilon: float  # (epsilon, delta)-DP by Lemma 2.5 of the paper, or as `epsilon_exact` without a rho
    epsilon_exact: float  # smallest known epsilon at delta, for the relation `neighbours` of the mechanism
    epsilon_sampler: float  # part of `epsilon_exact` that covers the error of the noise sampler
    S: float  # L2 bound on one sample's increment before clipping, such as G + 2LD
    # "protocol"; or if the guarantee is that of the protocol but not of what was sent, "aggregate" (noise of
    # all machines drawn as one) or "unmasked" (no secure aggregation)
    noise: str = "protocol"
    noise_recomputable: bool = False  # whether the noise key follows from the recorded seed
    selection: Selection | None = None  # how the run was chosen, if it is the best of several
    comparisons: Mapping[str, float] = field(default_factory=dict)  # `COMPARISONS`; empty in earlier files

    @classmethod
    def of(cls, mechanism: Mechanism, delta: float, **claims: Any) -> Self:
        """Build a mechanism's privacy statement, with epsilons; InputError if a library is missing."""
        epsilons: dict[str, Any] = dict.fromkeys(("epsilon", "epsilon_exact", "epsilon_sampler"), math.nan)
        return cls(mechanism=mechanism, delta=delta, **epsilons, **claims)._with_claims()

    def of_selection(self, selection: Selection) -> Self:
        """Privacy statement of a selection, from that of the selected run."""
        return replace(self, selection=selection)._with_claims()

    def _with_claims(self) -> Self:
        return replace(self, **self._compute_epsilons(), comparisons=self._compute_comparisons())

    @property
    def aggregated_machines(self) -> int:
        """Number of machines represented by one noise draw."""
        return self.mechanism.machines if self.noise == "aggregate" else 1

    @property
    def guarantee(self) -> Guarantee:
        """Privacy guarantee of one sample for all values that the adversary observes."""
        return self._guarantee_of(self.mechanism)

    def _guarantee_of(self, mechanism: Mechanism) -> Guarantee:
        guarantee = mechanism.guarantee(aggregated_machines=self.aggregated_machines)
        return guarantee if self.selection is None else self.selection.guarantee(guarantee)

    def __getattr__(self, name: str) -> Any:
        """Forward attribute access to the comparisons and the mechanism, in the same HDF5 group."""
        if name.startswith("_") or name in _GROUPED_FIELDS:
            raise AttributeError(name)
        return self.comparisons[name] if name in self.comparisons else getattr(self.mechanism, name)

    @property
    def adversary(self) -> str:
        """Subject of a sentence on the adversary of the privacy guarantee."""
        if self.selection is not None:
            return "Whoever sees the selected result alone, and nothing else of any run,"
        count = self.mechanism.machines - self.mechanism.noise_shares
        return self.mechanism.adversary(self.server, f"up to {count:,}" if count else "no")

    @property
    def colluders(self) -> int | None:
        """Number of machines that may collude with the adversary; None in trust modes without colluders."""
        has_colluders = "{c}" in self.mechanism.adversary(self.server, "{c}")
        return self.mechanism.machines - self.mechanism.noise_shares if has_colluders else None

    @property
    def is_key_discarded(self) -> bool:
        """Whether a secret noise key was in a checkpoint and discarded; a selection has no checkpoints."""
        return self.mechanism.is_noisy and not self.noise_recomputable and self.selection is None

    @property
    def rho(self) -> float | None:
        """GDP parameter rho that the noise was calibrated to; None if the accountant uses no rho."""
        return self.mechanism.stated_rho if self.selection is None else None

    def file_attributes(self) -> dict[str, Any]:
        """HDF5 attributes of `/privacy`: fields of the statement and of its mechanism, by name."""
        rho = {} if self.rho is None else {"rho": self.rho}
        claims = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _GROUPED_FIELDS}
        selection = {} if self.selection is None else asdict(self.selection)
        return {**claims, **rho, **selection, **self.comparisons, **self.mechanism.file_attributes()}

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> Self:
        """Build a privacy statement from the HDF5 attributes of `/privacy`; InputError if any is invalid."""
        stated = () if attributes.keys().isdisjoint(COMPARISONS) else COMPARISONS
        if not stated:  # Files without the relation are from before there was another one.
            attributes = {"neighbours": "replace", **attributes}
        names = "mechanism", "protects", "privacy_unit"
        name, *protected = (_read_attribute(key, str, attributes) for key in names)
        mechanism_type: type[Mechanism] = lookup("mechanisms", name)
        if protected != [mechanism_type.protected_outputs, mechanism_type.privacy_unit]:
            raise InputError(f"the mechanism {name!r} does not protect {' of '.join(protected)!r}")
        mechanism = mechanism_type(**_read_dataclass_fields(mechanism_type, attributes))
        has_selection = "select" in attributes
        selection = Selection(**_read_dataclass_fields(Selection, attributes)) if has_selection else None
        comparisons = {name: _read_attribute(name, float, attributes) for name in stated}
        own = _read_dataclass_fields(cls, attributes)
        statement = cls(mechanism=mechanism, selection=selection, comparisons=comparisons, **own)
        if "rho" in attributes and mechanism_type.budget_parameter != "rho":
            raise InputError(f"rho = {attributes['rho']!r} is claimed, but {name!r} has no rho")
        return statement

    def range_errors(self) -> list[str]:
        """Error messages on statement fields out of the range for which a guarantee can be computed."""
        errors = [] if MIN_DELTA <= self.delta < 1 else [f"delta = {self.delta!r} is out of range"]
        errors += [] if self.selection is None else self.selection.errors()
        return [*errors, *self.mechanism.range_errors()]

    def mismatches(self) -> list[str]:
        """Error messages on claims, such as epsilon, that do not follow from the statement's own numbers."""
        mechanism = self.mechanism
        allowed = {"server": known_names("servers"), "noise": ["protocol", *_SIMULATION_SIMPLIFICATIONS]}
        messages = [
            f"{name} is {getattr(self, name)!r}, but must be {' or '.join(map(repr, choices))}"
            for name, choices in allowed.items()
            if getattr(self, name) not in choices
        ]
        if errors := self.range_errors():
            return [*messages, *errors]
        messages += mechanism.consistency_errors(self.delta)
        if self.selection and not approx_equal(mechanism.stated_rho, rho := mechanism.guarantee().rho):
            messages.append(f"rho = {mechanism.stated_rho} of the selected run is claimed, not {rho}")
        computed = {"rho": self.guarantee.rho, **self._compute_epsilons()}
        if self.comparisons:
            computed |= self._compute_comparisons()
        return messages + [
            f"{name} = {_format_decimal(getattr(self, name))} is claimed, but {mechanism.rounds:,} rounds"
            f" with sigma = {mechanism.sigma:.10g} and clip_norm = {mechanism.clip_norm:.10g} give "
            f"{_format_decimal(value)}"
            for name, value in computed.items()
            # Mu follows from differences of epsilons, in which rounding errors are larger.
            if not approx_equal(getattr(self, name), value, 1e-6 if name in TRADEOFF_CLAIMS else 1e-9)
        ]

    def _compute_epsilons(self) -> dict[str, Any]:
        guarantee, delta = self.guarantee, self.delta
        epsilon, exact = guarantee.epsilon(delta), guarantee.epsilon_exact_noise(delta)
        return {
            "epsilon": guarantee.epsilon_paper(delta),
            "epsilon_exact": epsilon,
            "epsilon_sampler": epsilon - exact if math.isfinite(exact) else 0.0,
        }

    def _compute_comparisons(self) -> dict[str, float]:
        mechanisms = {name: self.mechanism.with_neighbours(r) for r, name in RELATION_EPSILONS.items()}
        epsilons = {name: self._guarantee_of(m).epsilon(self.delta) for name, m in mechanisms.items()}
        return epsilons | TradeoffCurve(self.guarantee, self.delta).claims()

    def _repr_html_(self) -> str:
        rows = [
            ("protects", f"{self.privacy_unit} (neighbours = {self.neighbours})"),
            ("against", self.adversary.rstrip(",")),
            ("epsilon", f"{rounded_up(self.epsilon_exact)} at delta = {self.delta:g}"),
            ("rho", "none" if self.rho is None else rounded_up(self.rho)),
            ("noise", f"{self.mechanism.name}, sigma = {self.sigma:.6g}"),
        ]
        limits = [("but", concern.full) for concern in self.concerns()]
        return html_table([*rows, *limits] if self.mechanism.is_noisy else limits)

    def check_sampler(self, epsilon_limit: float) -> None:
        """Raise InputError if the noise sampler exceeds its reserve, or epsilon exceeds `epsilon_limit`."""
        exact, name = self.guarantee.epsilon_exact_noise(self.delta), self.mechanism.name
        if not exact >= 0:
            raise InputError(f"mechanism = {name} states epsilon = {exact:g}. {INVALID_GUARANTEE_MESSAGE}")
        if not is_sampler_negligible(self.epsilon_exact, exact, self.delta):
            raise InputError(
                f"The noise sampler is not exact enough for {self.rounds:,} rounds of {self.parameters:,} "
                "parameters. Use fewer --rounds or a larger --rho."
            )
        if self.epsilon_exact > epsilon_limit:
            side = "larger" if math.isfinite(self.epsilon_exact) else "smaller"
            raise InputError(
                f"epsilon = {epsilon_limit:.6g} at delta = {self.delta:g} cannot be guaranteed with "
                f"sampled noise, only {self.epsilon_exact:.6g}. Use a {side} --epsilon or --rho, or a larger "
                "--delta."
            )

    def concerns(self, accounts: PerMachineAccounts | None = None) -> list[Concern]:
        """Limitations of the run's privacy guarantee; `accounts` are those of unequal machines, or None."""
        mechanism = self.mechanism
        if not mechanism.is_noisy:
            return [Concern("no noise", "No noise was added: there is no privacy guarantee at all.")]
        seed = Concern(
            "its seed is written down",
            "The noise follows from the seed, which is written down: against anyone who knows it there is no "
            "guarantee. Leave the seed out for data that are private.",
        )
        concerns = [*([seed] if self.noise_recomputable else []), *mechanism.concerns()]
        concerns += [] if self.selection is None else self.selection.concerns()
        if self.noise in _SIMULATION_SIMPLIFICATIONS:
            brief, fact = _SIMULATION_SIMPLIFICATIONS[self.noise]
            protocol = "this is the guarantee of the protocol that is simulated"
            text = f"{fact} ({brief}): {protocol}, and not of the messages that are sent."
            concerns.append(Concern(brief, text))
        units = mechanism.machines * (mechanism.samples if mechanism.unit == "sample" else 1)
        units = int(accounts.samples.sum()) if accounts else units
        return concerns + budget_concerns(self.epsilon_exact, self.delta, units, mechanism.unit)


def _read_dataclass_fields(dataclass_type: type, attributes: Mapping[str, Any]) -> dict[str, Any]:
    types = get_type_hints(dataclass_type)
    field_names = (f.name for f in fields(dataclass_type) if f.name not in _GROUPED_FIELDS)
    return {name: _read_attribute(name, types[name], attributes) for name in field_names}


def _read_attribute(name: str, value_type: type, attributes: Mapping[str, Any]) -> Any:
    if name not in attributes:
        raise InputError(f"its privacy statement lacks {name!r}")
    value = attributes[name]
    if not isinstance(value, _FILE_TYPES[value_type]) or (value_type is bool and value not in (0, 1)):
        raise InputError(f"{name} = {value!r} in its privacy statement is no {value_type.__name__}")
    return value_type(value)


def _format_decimal(value: float | None) -> str:
    return "none" if value is None else f"{value:.10g}"


def budget_concerns(epsilon: float, delta: float, units: int | None, unit: str = "sample") -> list[Concern]:
    """Concerns about a too large epsilon or delta; `units` is the number of privacy units, or None."""
    concerns = []
    if units is not None and delta * units >= 1:
        full = (
            f"delta = {delta:g} is not below 1/n for n = {units:,} {unit}s: to publish one of them, "
            "chosen at random, has no larger a delta."
        )
        concerns.append(Concern(f"delta is not below 1/n = {1 / units:.2g}", full))
    if epsilon > LARGE_EPSILON:
        brief = f"epsilon is beyond {LARGE_EPSILON:g}"
        full = (
            f"{brief}, which protects little: what is seen may be more than e^{LARGE_EPSILON:g} = "
            f"{math.exp(LARGE_EPSILON):,.0f} times as likely with one {unit} as with another."
        )
        concerns.append(Concern(brief, full))
    return concerns
