"""Trusted server: it sees sums without noise, and adds noise before it sends query points back."""

from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Integers, Server

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.timer import Stopwatch
    from mu2mpi.privacy.noise.noise_source import NoiseSource


@register
class TrustedServer(Server):
    """Algorithm 2: the server, rank 0, gets the sum over machines, and adds noise before it takes the step.

    It protects samples against all machines together and whoever gets the result. It assumes that the server
    keeps sums without noise to itself, and that channels are secret: MPI encrypts nothing, and its Reduce may
    pass partial sums through other ranks. An Allreduce would hand the un-noised sum to every machine. Only
    rank 0 uses the noise key and holds w_t.
    """

    name = "trusted"
    summary = "the server before it broadcasts"
    sees = "Whoever sees everything that leaves the server, which itself sees sums without noise,"
    trusts = "the server, which sees sums over machines without noise, and the channels to it"
    is_central = True
    shows_sums = shows_messages = False
    takes_absence = True

    def prepare(self) -> None:
        """Make the arrays and the noise sources of this rank."""
        from mu2mpi.privacy.noise.noise_stream import SERVER, padded_zeros

        self._draw: NoiseSource | None = None
        self._total: Integers | None = None
        if self._communicator.rank == 0:
            self._flat_total, self._total = padded_zeros(self._shape)
            self._flat_message, self._message = padded_zeros(self._shape)
            constants = self._constants
            if self._key is not None and constants.mechanism.is_noisy:
                variances, size = constants.task.variances, self._flat_total.size
                self._draw = constants.mechanism.noise_source(
                    self._key, (SERVER, 0, 1), variances, size, constants.finest
                )

    @classmethod
    def variances(cls, machines: int, parts: int) -> float:
        """Return 1: the server draws once."""
        return 1

    def round(self, t: int, machines: "Machines", clock: "Stopwatch") -> None:
        """Take round t: Reduce to rank 0, noise and the step there, Bcast of x_{t+1}."""
        iterates = self.iterates
        machines.observe(t, iterates.x, iterates.x_previous)
        clock.lap("compute")
        total = self._collected(t, machines)
        clock.lap("moving")
        if t == self._rounds:
            return
        if total is not None:
            message = self._hidden(t, total, machines) if self._constants.mechanism.is_noisy else total
            clock.lap("noise")
            iterates.step(t, message)
            clock.lap("step")
            self._communicator.bcast(iterates.x)
        else:
            self._communicator.bcast(iterates.x_previous)
            iterates.advance()
        clock.lap("moving")

    def _collected(self, t: int, machines: "Machines") -> "Integers | None":
        """Return the sum over all ranks on rank 0, and None elsewhere."""
        return self._communicator.reduce(machines.q, self._total)

    def _hidden(self, t: int, total: Integers, machines: "Machines") -> Integers:
        """Return the sum with noise."""
        # A lone rank gets its own array back.
        return self._noised(t, self._flat_total if total is self._total else machines.flat_q)

    def _noised(self, t: int, flat_total: Integers) -> Integers:
        if self._draw is None:
            raise RuntimeError("the server holds no noise key")
        self._draw(self._flat_message, flat_total, t)
        return self._message
