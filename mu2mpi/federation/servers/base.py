"""What a trust mode is to the rest of the package: whom it protects against, and how a round is taken.

Server modules are imported to list their options: what is slow to import waits until a run needs it.
"""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from mu2mpi.core.errors import InputError
from mu2mpi.core.options import Options
from mu2mpi.core.registry import find

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mu2mpi.core.parallel import Communicator
    from mu2mpi.federation.machine import Machines, Supply
    from mu2mpi.federation.schedule import Schedule
    from mu2mpi.federation.stopwatch import Stopwatch
    from mu2mpi.privacy.noise.masks import Masks

    Key = NDArray[np.uint32] | None
    Integers = NDArray[np.int64]


TENTH = 10  # one machine in so many, rounded up, is taken to collude if the user does not say


class ColludersOptions(Options):
    """How many machines may give away what they know."""

    colluders: int | None = Field(
        None,
        ge=0,
        lt=2**32,
        description="how many machines may work together with the server: the noise of the others alone "
        "hides a sample [default: a tenth of them, rounded up, but not all]",
    )


class Server(ABC):
    """A trust mode, and of a run, what its loop over rounds needs of a server."""

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
    masks: "Masks | None" = None  # those of the rank's machines, if masks hide messages
    unmasked: "Integers | None" = None  # and what these sent last, without masks

    def __init__(self, schedule: "Schedule", hosted: range, communicator: "Communicator", key: "Key") -> None:
        self.iterates = schedule.make_iterates(schedule)
        self._schedule, self._communicator = schedule, communicator

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
        """Return by what the average over machines has less noise than sigma: sqrt(M) or M, rounded once."""
        return math.sqrt(machines * machines / cls.variances(machines, parts))

    @classmethod
    def gives_key(cls, options: Any) -> bool:
        """Return whether all ranks get the noise key."""
        return not cls.is_central

    @classmethod  # noqa: B027 - most take all
    def check(cls, schedule: "Schedule") -> None:
        """Raise InputError if a run cannot be simulated in the way that was asked for."""

    @abstractmethod
    def round(self, t: int, machines: "Machines", clock: "Stopwatch") -> None:
        """Take round t, from the query point x_t to x_{t+1}; the messages of the last round move nothing."""

    def _observe(self, t: int, machines: "Machines", clock: "Stopwatch") -> None:
        """Have the machines use the samples of round t, which may have to be read first."""
        if t not in machines.samples.rounds:
            clock.lap("compute")
            machines.read(t)
            clock.lap("data")
        machines.observe(t, self.iterates.x, self.iterates.x_previous)
        clock.lap("compute")


class WithColluders(Server):
    """A trust mode in which each machine adds a part of the noise, and some of them may be known."""

    options = ColludersOptions

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


def trust_mode(name: str) -> type[Server]:
    """Return the trust mode of a name; InputError if there is none."""
    trust: type[Server] = find("servers", name)
    return trust


def shared_by(asked: Any) -> float:
    """Return by what the average over an experiment's machines has less noise than hides a sample."""
    machines = asked.machines or 1
    return float(asked.trust.shared(machines, asked.trust.parts(asked.server_options, machines)))


def machines_and_server(
    schedule: "Schedule", hosted: range, supply: "Supply", communicator: "Communicator", key: "Key"
) -> "tuple[Machines, Server]":
    """Return a rank's machines, which have no key if the server is central, and its server."""
    from mu2mpi.federation.machine import Machines

    trust = schedule.trust
    machines = Machines(schedule, hosted, supply, None if trust.is_central else key)
    return machines, trust(schedule, hosted, communicator, key)
