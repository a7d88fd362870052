"""Base class of servers: how a round is taken in a trust mode, and which collectives carry what."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from mu2mpi.core.lazy import NDArray, np
from mu2mpi.federation.trust_mode import TrustMode

if TYPE_CHECKING:
    from mu2mpi.core.parallel import Communicator
    from mu2mpi.federation.machine import Machines, Supply
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.federation.timer import Stopwatch
    from mu2mpi.privacy.noise.masks import Masks

Integers: TypeAlias = "NDArray[np.int64]"
Key: TypeAlias = "NDArray[np.uint32] | None"


class Server(TrustMode):
    """A trust mode that takes the rounds of a run on one rank."""

    masks: "Masks | None" = None  # those of the rank's machines, if masks hide messages
    unmasked: "Integers | None" = None  # what these sent last, without masks

    def __init__(
        self, constants: "RunConstants", hosted: range, communicator: "Communicator", key: Key
    ) -> None:
        from mu2mpi.federation.iterates import Iterates

        self.iterates = Iterates(constants)
        self._constants, self._rounds, self._hosted = constants, constants.rounds, hosted
        self._communicator, self._key = communicator, key
        self._shape = (constants.task.rows, constants.task.features)
        self.prepare()

    def prepare(self) -> None:
        """Make the arrays and the noise sources of this rank."""

    @abstractmethod
    def round(self, t: int, machines: "Machines", clock: "Stopwatch") -> None:
        """Take round t, from the query point x_t to x_{t+1}; the messages of the last round move nothing."""


def machines_and_server(
    constants: "RunConstants", hosted: range, supply: "Supply", communicator: "Communicator", key: Key
) -> "tuple[Machines, Server]":
    """Return a rank's machines, which have no key if the server is central, and its server."""
    from mu2mpi.federation.machine import Machines

    trust: Any = constants.task.trust
    machines = Machines(constants, hosted, supply, None if trust.is_central else key)
    return machines, trust(constants, hosted, communicator, key)
