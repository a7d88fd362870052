"""Untrusted server: every machine adds noise to its messages before it sends them."""

from typing import TYPE_CHECKING

from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Integers, Server

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.timer import Stopwatch


@register
class UntrustedServer(Server):
    """Algorithm 1: every message of a machine has its own noise, so everyone may see it.

    It protects samples against server and all other machines together. Every rank takes the same step.
    """

    name = "untrusted"
    summary = "every machine before it sends"
    sees = "Whoever sees everything that leaves the machines, be it the server or another machine,"
    hides_sums = False
    takes_absence = True

    def prepare(self) -> None:
        """Make the arrays and the noise sources of this rank."""
        from mu2mpi.privacy.noise.noise_stream import padded_zeros

        _, self._total = padded_zeros(self._shape)

    @classmethod
    def variances(cls, machines: int, parts: int) -> float:
        """Return M: every machine adds sigma^2."""
        return machines

    def round(self, t: int, machines: "Machines", clock: "Stopwatch") -> None:
        """Take round t: noise, Allreduce, the step on every rank."""
        iterates = self.iterates
        machines.observe(t, iterates.x, iterates.x_previous)
        clock.lap("compute")
        message = self._sent(t, machines)
        clock.lap("noise")
        total = self._communicator.allreduce(message, self._total)
        clock.lap("moving")
        if t < self._rounds:
            iterates.step(t, total)
            clock.lap("step")

    def _sent(self, t: int, machines: "Machines") -> Integers:
        """Return what leaves the rank in round t, which the next call overwrites."""
        self.unmasked = machines.noised(t)
        return self.unmasked
