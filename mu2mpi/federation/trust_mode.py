"""Trust modes: who adds noise, who sees what, and how much noise the average over machines has.

Imported to list the options of trust modes: what is slow to import waits until a run needs it.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options

TENTH = 10  # one machine in so many, rounded up, is taken to collude if the user does not say


class TrustMode(ABC):
    """Facts about a trust mode; `mu2mpi.federation.servers.server.Server` takes its rounds."""

    kind: ClassVar[str] = "servers"
    name: ClassVar[str]  # what the user calls it
    summary: ClassVar[str] = ""  # for the help: who adds the noise
    options: ClassVar[type[Options]] = Options
    unsent: ClassVar[tuple[str, ...]] = ()  # options that change no noise and no sum
    # Who learns no more than is claimed, as the subject of a sentence, in which `{colluders}` is a number
    sees: ClassVar[str] = "Whoever sees all that crosses the wire"
    trusts: ClassVar[str] = ""  # who has to be trusted, if anybody has
    hides_sums: ClassVar[bool] = True  # whether noise is for the sum, and hides no message of one machine
    is_central: ClassVar[bool] = False  # whether rank 0 alone sees that sum without noise and adds it
    shows_sums: ClassVar[bool] = True  # whether others see sums with noise, also of the last round
    shows_messages: ClassVar[bool] = True  # whether others see what each machine sends
    mechanism: ClassVar[str | None] = None  # the only mechanism that it can have, if there is but one
    takes_absence: ClassVar[bool] = False  # whether machines may be away, and differ in their budgets

    @classmethod
    def complete(cls, options: Any, machines: int) -> dict[str, Any]:
        """Return options that were left open, once M is known; InputError if they do not fit it."""
        return {}

    @classmethod
    def parts(cls, options: Any, machines: int) -> int:
        """Return how many draws of noise, of one machine each, hide a sum together; 1 if one does."""
        return 1

    @classmethod
    @abstractmethod
    def variances(cls, machines: int, parts: int) -> float:
        """Return the variance of the noise in the sum of a round, in units of sigma^2."""

    @classmethod
    def shared(cls, machines: int, parts: int) -> float:
        """Ratio of sigma to the noise std of the average over machines: sqrt(M) or M, rounded once."""
        return math.sqrt(machines * machines / cls.variances(machines, parts))

    @classmethod
    def gives_key(cls, options: Any) -> bool:
        """Return whether all ranks get the noise key."""
        return not cls.is_central

    @classmethod
    def simulates(cls, options: Any) -> str:
        """Return what is simulated: the protocol, or what stands for it in a privacy statement."""
        return "protocol"

    @classmethod  # noqa: B027 - most take all
    def check(cls, constants: Any) -> None:
        """Raise InputError if a run cannot be simulated in the way that was asked for."""


class ColludersOptions(Options):
    """Number of machines that may reveal what they know."""

    colluders: int | None = Field(
        None,
        ge=0,
        lt=2**32,
        description="how many machines may work together with the server: the noise of the others alone "
        "hides a sample [default: a tenth of them, rounded up, but not all]",
    )


class WithColluders(TrustMode):
    """A trust mode in which each machine adds a part of the noise, and some of them may be known."""

    options = ColludersOptions
    hides_sums, takes_absence = True, False

    @classmethod
    def complete(cls, options: Any, machines: int) -> dict[str, Any]:
        """Return how many machines may work together with the server: a tenth if the user does not say."""
        colluders = options.colluders
        if colluders is None:
            colluders = min(-(-machines // TENTH), machines - 1)
        if colluders >= machines:
            raise InputError(
                f"colluders = {colluders} leaves none of {machines} machines to add noise; give at most "
                f"{machines - 1}"
            )
        return {"colluders": colluders}

    @classmethod
    def parts(cls, options: Any, machines: int) -> int:
        """Return how many machines add noise that nobody knows: M - c."""
        return machines - int(cls.complete(options, machines)["colluders"])

    @classmethod
    def variances(cls, machines: int, parts: int) -> float:
        """Return M / (M - c): all machines add noise, and the least that may be unknown has sigma^2."""
        return machines / parts


def shared_by(asked: Any) -> float:
    """Ratio of sigma to the noise std of the average over an experiment's machines."""
    machines = asked.machines or 1
    return float(asked.trust.shared(machines, asked.trust.parts(asked.server_options, machines)))
