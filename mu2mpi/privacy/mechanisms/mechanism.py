"""Interface of privacy mechanisms: calibration of noise to a privacy budget, noise sources, accounting."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import known_names, lookup
from mu2mpi.privacy.accounting.guarantee import Budget, GaussianGuarantee, GroupGuarantee, Guarantee
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.grid import choose_grid_spacing
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD, SamplerError, rounding_error, sampler_error
from mu2mpi.privacy.released_sums import UNIT_SENSITIVITIES, ReleasedSums

if TYPE_CHECKING:
    from mu2mpi.privacy.noise.noise_source import NoiseSource
    from mu2mpi.privacy.noise.noise_stream import Key, StreamRange
MIN_POSITIVE = math.ulp(0.0)  # smallest positive float
MAX_FLOAT = sys.float_info.max  # largest finite float
INVALID_GUARANTEE_MESSAGE = "A guarantee must be a number >= 0. Fix the mechanism's code."


class Concern(NamedTuple):
    """Limitation of a privacy guarantee, as a short label and as a sentence."""

    brief: str
    full: str


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """Additive-noise mechanism; its guarantee follows from its fields, which are as in `ReleasedSums`."""

    component_kind: ClassVar[str] = "mechanisms"
    name: ClassVar[str]  # value of --mechanism
    options: ClassVar[type[Options]] = Options
    unit: ClassVar[str] = "sample"  # what is replaced or zeroed out, and in full:
    privacy_unit: ClassVar[str] = "one sample of one machine"
    protected_outputs: ClassVar[str] = "all releases"  # or "last iterate": what the guarantee is about
    budget_parameter: ClassVar[str] = "rho"  # or "epsilon": the number of a `Budget` that noise is scaled to
    reveals_messages: ClassVar[bool] = True  # whether the guarantee covers messages, not the output alone
    noise_description: ClassVar[str] = ""  # appended to the noise std in reports
    calibrates_to_participation: ClassVar[bool] = False  # fewer rounds of a machine need less noise
    correlates_rounds: ClassVar[bool] = False  # noise is correlated over rounds, as in DP-FTRL
    # L2 sensitivity of a sum by neighbouring relation, in units of the clipping norm
    unit_sensitivities: ClassVar[dict[str, float]] = UNIT_SENSITIVITIES
    # Smallest and largest value of each number for which a guarantee can be computed
    field_ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **dict.fromkeys(("rounds", "machines", "noise_shares"), (1, 2**32 - 1)),
        **dict.fromkeys(("parameters", "samples"), (1, math.inf)),
        **dict.fromkeys(("batch_size", "clip_norm", "grid_spacing"), (MIN_POSITIVE, MAX_FLOAT)),
        "sigma": (0, MAX_FLOAT),
    }

    clip_norm: float
    sigma: float  # std per coordinate of the noise that protects a sample in one released sum
    grid_spacing: float  # of the integer grid of messages; a power of two
    rounds: int
    machines: int
    parameters: int
    samples: int
    batch_size: float
    noise_shares: int = 1
    neighbours: str = "replace"

    @classmethod
    def supports(cls, released_sums: ReleasedSums) -> bool:
        """Whether the guarantee holds for a release; by default if a sample affects one sum or all."""
        return released_sums.subsampling == "" and released_sums.affected_sums in (1, released_sums.rounds)

    @classmethod
    @abstractmethod
    def calibrate(cls, budget: Budget, released_sums: ReleasedSums) -> Self:
        """Build the mechanism with the least noise within a privacy budget; InputError if there is none."""

    @abstractmethod
    def guarantee(self, rounds: int | None = None, aggregated_machines: int = 1) -> Guarantee:
        """Privacy guarantee for the messages of the first `rounds` rounds, by default of all rounds."""

    def group_guarantee(
        self, group_size: int, one_sample_per_round: bool, aggregated_machines: int = 1
    ) -> Guarantee:
        """Guarantee for `group_size` samples of one machine, of which a round uses any number, or one."""
        single = self.guarantee(aggregated_machines=aggregated_machines)
        if single.rho is None:
            return GroupGuarantee(single, group_size)
        return GaussianGuarantee(group_size * single.rho, single.sampler_error)

    @classmethod
    def from_sigma(
        cls, released_sums: ReleasedSums, sigma: float, min_sigma: float | None = None, **own_fields: Any
    ) -> Self:
        """Build the mechanism with noise std `sigma`, at least `min_sigma` in any round, on a grid."""
        if not math.isfinite(sigma):
            raise InputError("The noise overflows floating-point numbers. Use a larger --rho.")
        min_sigma = (min_sigma or sigma) / math.sqrt(released_sums.noise_shares)
        grid_spacing = choose_grid_spacing(released_sums, sigma, min_sigma=min_sigma)
        all_fields = cls.released_fields(released_sums) | own_fields
        return cls(sigma=sigma, grid_spacing=grid_spacing, **all_fields)

    @classmethod
    def released_fields(cls, released_sums: ReleasedSums) -> dict[str, Any]:
        """Fields of the mechanism that follow from a release, by default those of the same name."""
        names, loss_bounds = [field.name for field in fields(cls)], released_sums.loss_bounds or {}
        shared = {name: getattr(released_sums, name) for name in names if hasattr(released_sums, name)}
        return shared | {name: bound for name, bound in loss_bounds.items() if name in names}

    def with_noise(self, sigma: float, grid_spacing: float) -> Self:
        """Copy the mechanism with a noise std of at least its own, and another grid spacing."""
        noisier: Any = replace(self, sigma=sigma, grid_spacing=grid_spacing)
        has_new_rho = sigma != self.sigma and hasattr(self, "rho")
        result: Self = replace(noisier, rho=noisier.guarantee().rho) if has_new_rho else noisier
        return result

    def with_neighbours(self, neighbours: str) -> Self:
        """Copy with the same noise, whose guarantee and rho are for another neighbouring relation."""
        ratio = self.unit_sensitivities[neighbours] / self.unit_sensitivities[self.neighbours]
        scaled: dict[str, Any] = {"rho": self.rho * ratio} if hasattr(self, "rho") else {}
        return replace(self, neighbours=neighbours, **scaled)

    @property
    def stated_rho(self) -> float | None:
        """GDP parameter rho that the noise was calibrated to; None if the accountant uses no rho."""
        if self.budget_parameter != "rho":
            return None
        rho: float | None = getattr(self, "rho", None)
        return self.guarantee().rho if rho is None else rho

    @property
    def correlation(self) -> Correlation | None:
        """Correlation of the noise over rounds; None if rounds are independent."""
        return None

    def noise_source(
        self, key: "Key", streams: "StreamRange", variance_factor: float, size: int, max_std: float = math.inf
    ) -> "NoiseSource":
        """Noise source of consecutive machines, or of the server, keyed by `key`, shape (8,).

        Each machine's noise has variance `variance_factor` sigma^2 in `size` padded coordinates. `max_std`
        bounds the std, in grid units, of correlated noise that is not dithered.
        """
        from mu2mpi.privacy.noise.noise_source import CorrelatedNoiseSource
        from mu2mpi.privacy.noise.noise_stream import IndependentNoiseSource

        scale = math.sqrt(variance_factor)
        if (correlation := self.correlation) is not None:
            stream, first_machine, machines = streams
            stds = np.full(machines, scale * self.sigma / self.grid_spacing)
            max_stds = np.full(machines, min(max_std, self.dither_threshold))
            return CorrelatedNoiseSource(correlation, key, stream, first_machine, stds, max_stds, size)
        return IndependentNoiseSource(key, streams, lambda t: self.round_sigma(t) / self.grid_spacing * scale)

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of one released sum, by default as in `ReleasedSums`."""
        return self.unit_sensitivities[self.neighbours] * self.clip_norm

    @property
    def is_noisy(self) -> bool:
        """Whether the mechanism adds any noise."""
        return self.sigma > 0

    @property
    def max_noise_std(self) -> float:
        """Upper bound on the noise std of a message in any round."""
        return self.sigma

    @property
    def equivalent_independent_sigma(self) -> float:
        """Std of noise independent over rounds that perturbs the sum of all messages about as much."""
        return self.sigma

    @property
    def uncancelled_std_ratio(self) -> float:
        """Ratio of the noise std of the sum of all messages without cancellation to that with it."""
        return 1.0

    def round_sigma(self, t: int) -> float:
        """Std of the fresh noise drawn in round t (1-based), per coordinate of a message."""
        return self.sigma

    def sums_per_round(self, rounds: int) -> int:
        """Return the number of accounted sums in each of a run's rounds: 1, or that of noised local steps."""
        return max(1, self.rounds // rounds)

    def rho_spent(self, rounds: int) -> float:
        """Compute rho spent in the first `rounds` rounds; NaN if the accountant uses no rho."""
        rho = self.guarantee(rounds).rho
        return math.nan if rho is None else rho

    def rho_fraction(self, first_round: int, last_round: int) -> float:
        """Fraction of a sample's rho of all rounds that `first_round` to `last_round` spend."""
        return 1.0

    def sampler_error(
        self, messages: int, aggregated_machines: int = 1, min_factor: float = 1, max_factor: float = 1
    ) -> SamplerError:
        """Error of sampled noise in `messages` messages, of std from `min_factor` to `max_factor` sigma."""
        if not self.is_noisy:
            return SamplerError()
        # In the order of `from_sigma`: otherwise rounding could make the grid seem too coarse.
        units = self.sigma / math.sqrt(self.noise_shares) / self.grid_spacing * math.sqrt(aggregated_machines)
        draws, stds = messages * self.noise_shares, (units * min_factor, units * max_factor)
        error = sampler_error(self.parameters, draws, *stds, self.dither_threshold)
        return error + rounding_error(messages * self.parameters, self.noise_shares, units * min_factor)

    @property
    def dither_threshold(self) -> float:
        """Largest std of a noise draw, in grid units, that is not dithered."""
        return DITHER_THRESHOLD

    @property
    def max_samples_used(self) -> int:
        """Upper bound on the number of distinct samples that all machines use."""
        return self.machines * self.samples

    @property
    def communication_note(self) -> str:
        """Sentences on what the protocol sends beyond the noised sums; empty by default."""
        return ""

    def file_attributes(self) -> dict[str, Any]:
        """HDF5 attributes of the mechanism: its name, what it protects, and its fields."""
        protected = {"protects": self.protected_outputs, "privacy_unit": self.privacy_unit}
        return {"mechanism": self.name, **protected, **asdict(self)}

    def range_errors(self) -> list[str]:
        """Error messages on fields out of the range for which a guarantee can be computed."""
        values = ((name, getattr(self, name), limits) for name, limits in self.field_ranges.items())
        errors = [f"{n} = {v!r} is out of range" for n, v, (low, high) in values if not low <= v <= high]
        is_known = self.neighbours in self.unit_sensitivities
        return errors if is_known else [*errors, f"neighbours = {self.neighbours!r} is unknown"]

    def consistency_errors(self, delta: float) -> list[str]:
        """Error messages on fields that contradict each other although each is within its range."""
        errors, spacing = [], f"grid_spacing = {self.grid_spacing!r}"
        if math.frexp(self.grid_spacing)[0] != 0.5:
            errors.append(f"{spacing} is not a power of two, so rounding is not exact")
        # As in `mu2mpi.privacy.noise.grid.reduce_clip_norm`: rounding takes at most half of the norm.
        if self.grid_spacing * math.sqrt(self.parameters) > self.clip_norm:
            errors.append(f"clip_norm cannot hold on so coarse a grid as {spacing}")
        return errors

    @classmethod
    def adversary(cls, server: str, colluders: str = "c") -> str:
        """Subject of a sentence on the adversary of trust mode `server`, with `colluders` colluders."""
        if not cls.reveals_messages:
            return "Whoever sees the output alone, and no iterate before it,"
        is_known = server in known_names("servers")
        subject: str = lookup("servers", server).adversary if is_known else "Nobody knows who"
        return subject.format(colluders=colluders)

    @property
    def accounting_note(self) -> str:
        """Phrase for reports: the accountant and what has to stay secret; empty for accounting by rho."""
        return ""

    def concerns(self) -> list[Concern]:
        """Limitations of the privacy guarantee that a reader may not expect."""
        full = (
            "Only the last iterate, the output, is protected. Every machine sees earlier iterates and has to "
            "be trusted with them; whoever else sees one of them, a message or a checkpoint may learn more."
        )
        return [] if self.reveals_messages else [Concern("of the last iterate alone", full)]


def approx_equal(claimed: float | None, computed: float | None, rel_tol: float = 1e-9) -> bool:
    """Whether a claimed and a computed number are equal up to rounding errors, or both None."""
    if claimed is None or computed is None:
        return claimed is computed
    return math.isclose(claimed, computed, rel_tol=rel_tol, abs_tol=1e-12)


def per_machine_noise_source(
    mechanisms: Sequence[Mechanism],
    mechanism_index: IntArray,
    key: "Key",
    first_machine: int,
    participants: Any,
    is_cumulative: bool,
    padded_size: int,
) -> "NoiseSource":
    """Noise source of consecutive machines, by the index of their mechanisms (-1: none) and participants."""
    from mu2mpi.privacy.noise.noise_source import CorrelatedNoiseSource, PerMachineNoiseSource
    from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM

    stds = np.array([*(m.sigma / m.grid_spacing for m in mechanisms), 0.0])[mechanism_index]
    max_stds = np.array([*(m.dither_threshold for m in mechanisms), 1.0])[mechanism_index]
    noise = first_machine, stds, max_stds, padded_size, participants
    if (correlation := mechanisms[0].correlation) is not None:
        return CorrelatedNoiseSource(correlation, key, MACHINE_STREAM, *noise)
    return PerMachineNoiseSource(key, *noise, is_cumulative)
