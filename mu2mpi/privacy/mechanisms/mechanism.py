"""What a mechanism is to the rest of the package: noise for a budget, and what has been spent of it."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.options import Options
from mu2mpi.core.registry import find, names
from mu2mpi.privacy.accounting.guarantee import Budget, Gaussian, Grouped, Guarantee
from mu2mpi.privacy.noise.grid import choose_resolution
from mu2mpi.privacy.noise.sampler_error import EXACT, FINEST, Deviation, deviation, sum_of_rounded
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mu2mpi.privacy.noise.correlation import Correlation
    from mu2mpi.privacy.noise.noise_source import NoiseSource

SMALLEST, LARGEST = math.ulp(0.0), sys.float_info.max  # of the numbers above 0, and of the finite ones
NONSENSE = "no guarantee is below 0 or no number, so its code has to be mended"


class Concern(NamedTuple):
    """Why something is less private than it looks: in a few words, and in a sentence."""

    brief: str
    full: str


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """Noise that is added to messages, with all numbers that it takes to say what they reveal."""

    kind: ClassVar[str] = "mechanisms"
    name: ClassVar[str]  # what the user calls it
    options: ClassVar[type[Options]] = Options
    protects: ClassVar[str] = "all releases"  # all that leaves the machines or the server, or less
    spends: ClassVar[str] = "rho"  # or "epsilon": to which of a budget noise is scaled
    shows_messages: ClassVar[bool] = True  # or the guarantee is for the output alone
    noise_words: ClassVar[str] = ""  # what else the noise is in proportion to
    belongs: ClassVar[bool] = False  # whether it is for servers alone whose mechanism it is
    by_machine: ClassVar[bool] = False  # whether who is there in fewer rounds needs less noise
    stays: ClassVar[bool] = False  # whether messages tell of samples of earlier rounds, too
    ranges: ClassVar[dict[str, tuple[float, float]]] = {
        **dict.fromkeys(("rounds", "machines", "parts"), (1, 2**32 - 1)),
        **dict.fromkeys(("parameters", "samples"), (1, math.inf)),
        **dict.fromkeys(("drawn", "clip_norm", "resolution"), (SMALLEST, LARGEST)),
        "sigma": (0, LARGEST),
    }
    """The smallest and the largest of each number with which anything can be computed."""

    clip_norm: float  # this is as in `Release`, and so is what follows the resolution
    sigma: float  # standard deviation of each coordinate of the noise that hides a sample in a sum
    resolution: float  # spacing of the grid on which messages lie
    rounds: int
    machines: int
    parameters: int
    samples: int
    drawn: float
    parts: int = 1

    @classmethod
    def accounts_for(cls, release: Release) -> bool:
        """Return whether its account holds: by default of samples in one, or from one on in all."""
        return release.chance == "" and release.touched in (1, release.rounds)

    @classmethod
    @abstractmethod
    def calibrate(cls, budget: Budget, release: Release) -> Self:
        """Return the mechanism with the least noise that keeps to a budget; InputError says why none does."""

    @abstractmethod
    def guarantee(self, rounds: int | None = None, draws: int = 1) -> Guarantee:
        """Return what the messages of the first rounds, or of all, reveal; `draws` is as in `Release`."""

    def group(self, samples: int, is_apart: bool, draws: int = 1) -> Guarantee:
        """Return what is revealed of several samples of a machine; apart, no two enter in the same round."""
        one = self.guarantee(draws=draws)
        return Grouped(one, samples) if one.rho is None else Gaussian(samples * one.rho, one.drawn)

    @classmethod
    def of(cls, release: Release, sigma: float, smallest: float | None = None, **own: Any) -> Self:
        """Return the mechanism with this noise, and a grid for the smallest of any round; or InputError."""
        if not math.isfinite(sigma):
            raise InputError("so much noise leaves the range of floating-point numbers; give a larger rho")
        smallest = (smallest or sigma) / math.sqrt(release.parts)
        resolution = choose_resolution(release, sigma, smallest=smallest)
        return cls(sigma=sigma, resolution=resolution, **cls.sizes(release), **own)

    @staticmethod
    def own(release: Release) -> dict[str, Any]:
        """Return what it states of messages beside what all mechanisms do."""
        return {}

    @staticmethod
    def sizes(release: Release) -> dict[str, Any]:
        """Return what every mechanism states of the messages that it hides."""
        names = ("clip_norm", "rounds", "machines", "parameters", "samples", "drawn", "parts")
        return {name: getattr(release, name) for name in names}

    def having(self, sigma: float, resolution: float) -> Self:
        """Return the mechanism with more noise than it needs, or as much, on another grid."""
        if sigma == self.sigma:
            return replace(self, resolution=resolution)
        more: Any = replace(self, sigma=sigma, resolution=resolution)
        found: Self = replace(more, rho=more.guarantee().rho) if hasattr(self, "rho") else more
        return found

    @property
    def stated_rho(self) -> float | None:
        """The rho of all messages, as it was asked for; None where no rho describes them."""
        if self.spends != "rho":
            return None
        rho: float | None = getattr(self, "rho", None)
        return self.guarantee().rho if rho is None else rho

    @property
    def correlation(self) -> "Correlation | None":
        """How the noise of a round follows from that of the rounds before; None if it does not."""
        return None

    def noise_source(
        self,
        key: "NDArray[np.uint32]",
        who: tuple[int, int, int],
        variances: float,
        size: int,
        finest: float = math.inf,
    ) -> "NoiseSource":
        """Return the noise source of some machines, or of the server, for messages of a padded `size`.

        `who` is as in `mu2mpi.privacy.noise.noise_stream.add_noise`; variances are in units of sigma^2.
        Correlated noise is spread beyond `finest` grid units per standard deviation, if below its own.
        """
        from mu2mpi.privacy.noise.noise_source import correlated_source, fresh_source

        factor = math.sqrt(variances)
        if (correlation := self.correlation) is not None:
            unit = factor * self.sigma / self.resolution
            return correlated_source(correlation, key, who, unit, min(finest, self.finest), size)
        return fresh_source(key, who, self.sigma_of, self.resolution, factor)

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise at all."""
        return self.sigma > 0

    @property
    def largest_noise(self) -> float:
        """The standard deviation of the noise of a message, or more."""
        return self.sigma

    @property
    def fresh_sigma(self) -> float:
        """That of noise which is drawn anew in each message, and moves the sum of all about as far."""
        return self.sigma

    @property
    def heaping(self) -> float:
        """How much farther noise moves the sum of all messages than if each took back that of the last."""
        return 1.0

    def sigma_of(self, t: int) -> float:
        """Return the standard deviation of each draw of noise of round t."""
        return self.sigma

    def rho_spent(self, rounds: int) -> float:
        """Return the rho of the first rounds, for the history; NaN where no rho describes them."""
        rho = self.guarantee(rounds).rho
        return math.nan if rho is None else rho

    def share(self, first: int, last: int) -> float:
        """Return the share of the whole rho that a sample spends which is in the messages of these rounds."""
        return 1.0

    def deviation(self, messages: int, draws: int = 1, smallest: float = 1, largest: float = 1) -> Deviation:
        """Return how far the noise of some messages is from exact, between two multiples of sigma."""
        if not self.is_noisy:
            return EXACT
        # As the grid was chosen: rounding errors must not make it seem too coarse.
        unit = self.sigma / math.sqrt(self.parts) / self.resolution * math.sqrt(draws)
        sizes = self.parameters, messages * self.parts, unit * smallest, unit * largest, self.finest
        return deviation(*sizes) + sum_of_rounded(messages * self.parameters, self.parts, unit * smallest)

    @property
    def finest(self) -> float:
        """Of how many units of the grid the standard deviation is beyond which draws are spread."""
        return FINEST

    @property
    def samples_used(self) -> int:
        """How many samples of all machines are used, each counted once, or may be."""
        return self.machines * self.samples

    @property
    def price(self) -> str:
        """What machines would have to send, if that is more than their release."""
        return ""

    def attributes(self) -> dict[str, Any]:
        """Return what a file states of it."""
        return {"mechanism": self.name, "protects": self.protects, **asdict(self)}

    def out_of_range(self) -> list[str]:
        """Say with which of its numbers nothing can be computed; empty if all can be."""
        return [
            f"{name} = {getattr(self, name)!r} is out of range"
            for name, (least, most) in self.ranges.items()
            if not least <= getattr(self, name) <= most
        ]

    def faults(self, delta: float) -> list[str]:
        """Say which of its numbers, all in their range, cannot be; empty if all can."""
        found = []
        if math.frexp(self.resolution)[0] != 0.5:
            found.append(f"resolution = {self.resolution!r} is no power of two, so rounding is not exact")
        # As in `mu2mpi.privacy.noise.grid.clipping_bound`: rounding may take half of the norm at most.
        if self.resolution * math.sqrt(self.parameters) > self.clip_norm:
            found.append(f"clip_norm cannot hold on so coarse a grid as resolution = {self.resolution!r}")
        return found

    @classmethod
    def who_sees(cls, server: str, colluders: str = "c") -> str:
        """Say who it is that learns no more than is claimed, with so many machines that help them."""
        sees: str = find("servers", server).sees if server in names("servers") else "Nobody knows who"
        return sees.format(colluders=colluders)

    @property
    def words(self) -> str:
        """How it is known what is revealed, where no rho says it, and what is kept secret."""
        return ""

    def concerns(self) -> list[Concern]:
        """Say what is not protected that a reader may expect to be."""
        return []


def calibrated(kind: type[Mechanism], budget: Budget, release: Release) -> Mechanism:
    """Return a mechanism that keeps to a budget; or InputError, also if by its own account it does not."""
    mechanism = kind.calibrate(budget, release)
    for rho in (mechanism.stated_rho, mechanism.guarantee().rho):
        if rho is not None and not rho >= 0:
            raise InputError(f"mechanism = {kind.name} states rho = {rho:g} as its guarantee; {NONSENSE}")
    if (rho := mechanism.stated_rho) is not None and rho > budget.rho * (1 + 1e-9):
        raise InputError(f"mechanism = {kind.name} spends rho = {rho:g} where {budget.rho:g} is asked for")
    return mechanism


def agree(claimed: float | None, computed: float | None) -> bool:
    """Return whether two numbers differ by rounding errors alone."""
    if claimed is None or computed is None:
        return claimed is computed
    return math.isclose(claimed, computed, rel_tol=1e-9, abs_tol=1e-12)


def per_machine_noise_source(
    mechanisms: Sequence[Mechanism | None],
    key: "NDArray[np.uint32]",
    first: int,
    participants: Any,
    is_cumulative: bool,
    size: int,
) -> "NoiseSource":
    """Return the noise source of consecutive machines, each with its own mechanism; None never draws."""
    from mu2mpi.privacy.noise.noise_source import CorrelatedDraws, MemberDraws
    from mu2mpi.privacy.noise.noise_stream import MACHINE

    units = np.array([m.sigma / m.resolution if m else 0.0 for m in mechanisms])
    finests = np.array([m.finest if m else 1.0 for m in mechanisms])
    correlation = next((m.correlation for m in mechanisms if m is not None), None)
    if correlation is not None:
        return CorrelatedDraws(correlation, key, MACHINE, first, units, finests, size, participants)
    return MemberDraws(key, first, units, finests, size, participants, is_cumulative)
