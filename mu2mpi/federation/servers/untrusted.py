"""Untrusted server: every machine adds noise to its messages before it sends them."""

from typing import TYPE_CHECKING

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Server

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.timer import Timer


@register
class UntrustedServer(Server):
    """Algorithm 1: every message of a machine has its own noise, so everyone may see it.

    It protects samples against the server and all other machines. Every rank takes the same server step.
    """

    name = "untrusted"
    summary = "every machine before it sends"
    adversary = "Whoever sees everything that leaves the machines, be it the server or another machine,"
    protects_sum_only = False
    supports_partial_participation = has_plain_rounds = True

    def set_up_rank(self) -> None:
        from mu2mpi.privacy.noise.noise_stream import padded_zeros

        _, self._message_sum = padded_zeros(self._constants.message_shape)

    @classmethod
    def variance_factor(cls, machines: int, noise_shares: int) -> float:
        return machines

    def run_round(self, t: int, machines: "Machines", timer: "Timer") -> None:
        """Run round t: increments and noise of the machines, Allreduce, the server step on every rank."""
        iterates = self.iterates
        machines.accumulate_increments(t, iterates.x, iterates.x_previous)
        timer.record("compute")
        message = self._message(t, machines)
        timer.record("noise")
        message_sum = self._communicator.allreduce(message, self._message_sum)
        timer.record("communication")
        if t < self._rounds:
            iterates.step(t, message_sum)
            timer.record("step")

    def _message(self, t: int, machines: "Machines") -> IntArray:
        self.unmasked_message = machines.noised_message(t)
        return self.unmasked_message
