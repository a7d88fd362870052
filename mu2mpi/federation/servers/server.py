"""Base class of servers: a round in a trust mode, and the collectives that carry it."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.federation.trust_mode import TrustMode

if TYPE_CHECKING:
    from mu2mpi.core.parallel import Communicator
    from mu2mpi.federation.machine import Machines, SampleReader
    from mu2mpi.federation.run_constants import RunConstants
    from mu2mpi.federation.timer import Timer
    from mu2mpi.privacy.noise.masks import Masks
    from mu2mpi.privacy.noise.noise_source import NoiseSource

Key: TypeAlias = UInt32Array | None


class Server(TrustMode):
    """Server side of a trust mode on one rank: collects messages and steps from x_t to x_{t+1}."""

    has_plain_rounds = False  # whether rounds of this class, on a lone rank, are increments, noise and a step
    noise_source: "NoiseSource | None" = None  # noise of the server, if it is central
    masks: "Masks | None" = None  # masks of the rank's machines, if messages are masked
    unmasked_message: IntArray | None = None  # last message of the rank, before masking

    def __init__(
        self, constants: "RunConstants", hosted_machines: range, communicator: "Communicator", key: Key
    ) -> None:
        from mu2mpi.federation.iterates import Iterates

        self.iterates = Iterates(constants)
        self._constants, self._rounds, self._hosted_machines = constants, constants.rounds, hosted_machines
        self._communicator, self._key = communicator, key
        self.set_up_rank()
        is_plain = vars(type(self)).get("has_plain_rounds", False)  # A subclass may run other rounds.
        self.has_plain_rounds = is_plain and communicator.size == 1 and not self.masks

    def set_up_rank(self) -> None:
        """Allocate this rank's message buffers and create its noise source."""

    @abstractmethod
    def run_round(self, t: int, machines: "Machines", timer: "Timer") -> None:
        """Run round t, from query point x_t to x_{t+1}; the last round collects messages without a step."""


def create_machines_and_server(
    constants: "RunConstants",
    hosted_machines: range,
    reader: "SampleReader",
    communicator: "Communicator",
    key: Key,
) -> "tuple[Machines, Server]":
    """Return a rank's machines, without the noise key if the server is central, and its server."""
    from mu2mpi.federation.local_steps import LocalMachines
    from mu2mpi.federation.machine import Machines

    trust_mode: Any = constants.problem.trust_mode
    server = trust_mode(constants, hosted_machines, communicator, key)
    own_key = None if trust_mode.is_central else key
    if not constants.estimator.local_steps:
        return Machines(constants, hosted_machines, reader, own_key), server
    control = server.iterates.optimizer_state.get("control")
    return LocalMachines(constants, hosted_machines, reader, own_key, control=control), server
