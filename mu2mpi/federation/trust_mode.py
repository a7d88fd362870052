"""Trust modes: noise placement, released values, and noise std of the averaged message.

Imported to list the options of trust modes: what is slow to import waits until a run needs it.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options

DEFAULT_COLLUDER_RATIO = 10  # by default one machine in so many, rounded up, is assumed to collude


class TrustMode(ABC):
    """Base class of trust modes: noise placement and released values; subclass `Server` runs rounds."""

    component_kind: ClassVar[str] = "servers"
    name: ClassVar[str]  # value of the option --server
    summary: ClassVar[str] = ""  # for the help: who adds the noise
    options: ClassVar[type[Options]] = Options
    simulation_options: ClassVar[tuple[str, ...]] = ()  # options that change neither noise nor sums
    # Adversary of the guarantee, as the subject of a sentence; `{colluders}` stands for a number
    adversary: ClassVar[str] = "Whoever sees all that crosses the wire"
    trusted_parties: ClassVar[str] = ""  # who has to be trusted with what; empty for nobody
    protects_sum_only: ClassVar[bool] = True  # whether noise protects the sum, and no single message
    is_central: ClassVar[bool] = False  # whether rank 0 alone sees the sum without noise, and adds it
    reveals_sums: ClassVar[bool] = True  # whether the adversary sees noised sums, even the last round's
    reveals_messages: ClassVar[bool] = True  # whether the adversary sees the message of each machine
    mechanism: ClassVar[str | None] = None  # the only supported mechanism; None for any
    supports_partial_participation: ClassVar[bool] = False  # and budgets of each machine

    @classmethod
    def resolve_options(cls, options: Any, machines: int) -> dict[str, Any]:
        """Return option defaults for a number of machines; InputError if the options do not fit it."""
        return {}

    @classmethod
    def noise_shares(cls, options: Any, machines: int) -> int:
        """Return the number of machines whose noise shares add up to N(0, sigma^2 I); 1 without shares."""
        return 1

    @classmethod
    @abstractmethod
    def variance_factor(cls, machines: int, noise_shares: int) -> float:
        """Return the variance of the noise in a round's sum, in units of sigma^2."""

    @classmethod
    def noise_reduction(cls, machines: int, noise_shares: int) -> float:
        """Return the ratio of sigma to the noise std of the averaged message: sqrt(M) or M."""
        # In one division: the ratio is rounded once.
        return math.sqrt(machines * machines / cls.variance_factor(machines, noise_shares))

    @classmethod
    def simulation_label(cls, options: Any) -> str:
        """Return the simulated protocol's label in privacy statements: "protocol" if it is complete."""
        return "protocol"


class ColludersOptions(Options):
    """Option --colluders: the number of machines that may collude with the server."""

    colluders: int | None = Field(
        None,
        ge=0,
        lt=2**32,
        description="number of machines that may collude with the server [default: a tenth, rounded up, but "
        "not all]",
    )


COLLUDING_SERVER_PHRASE = "such as the server with {colluders} colluding machines,"  # end of `adversary`


class WithColluders(TrustMode):
    """Trust mode in which each machine adds a noise share, and colluders may reveal theirs."""

    options = ColludersOptions
    protects_sum_only, supports_partial_participation = True, False

    @classmethod
    def resolve_options(cls, options: Any, machines: int) -> dict[str, Any]:
        """Return the number of colluders c, by default a tenth of the machines; InputError if all collude."""
        colluders = options.colluders
        if colluders is None:
            colluders = min(-(-machines // DEFAULT_COLLUDER_RATIO), machines - 1)
        if colluders >= machines:
            raise InputError(
                f"--colluders must be less than {machines:,} (machines), got {colluders:,}. "
                f"Use at most {machines - 1:,}."
            )
        return {"colluders": colluders}

    @classmethod
    def noise_shares(cls, options: Any, machines: int) -> int:
        """Return M - c, the number of machines that do not collude."""
        return machines - int(cls.resolve_options(options, machines)["colluders"])

    @classmethod
    def variance_factor(cls, machines: int, noise_shares: int) -> float:
        """Return M / (M - c), the noise variance of a sum over machines: M - c shares sum to sigma^2."""
        return machines / noise_shares
