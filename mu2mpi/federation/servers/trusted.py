"""Trusted server: it sees sums without noise, and adds noise before it broadcasts query points."""

from typing import TYPE_CHECKING

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Server

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines
    from mu2mpi.federation.timer import Timer


@register
class TrustedServer(Server):
    """Algorithm 2: the server, rank 0, receives the sum of messages, and adds noise before its step.

    It protects samples against all machines together and whoever gets the result. It assumes that the server
    keeps sums without noise to itself, and that channels are secret: an MPI Reduce encrypts nothing and may
    pass partial sums through other ranks; an Allreduce would reveal the sum to all. Only rank 0 holds w_t.
    """

    name = "trusted"
    summary = "the server before it broadcasts"
    adversary = "Whoever sees everything that leaves the server, which itself sees sums without noise,"
    trusted_parties = "the server, which sees sums over machines without noise, and the channels to it"
    is_central = True
    reveals_sums = reveals_messages = False
    supports_partial_participation = has_plain_rounds = True

    def set_up_rank(self) -> None:
        from mu2mpi.privacy.noise.noise_stream import SERVER_STREAM, padded_zeros

        self._message_sum: IntArray | None = None
        if self._communicator.rank == 0:
            constants = self._constants
            self._flat_message_sum, self._message_sum = padded_zeros(constants.message_shape)
            self.flat_noised, self.noised = padded_zeros(constants.message_shape)
            if self._key is not None and constants.mechanism.is_noisy:
                variance, size = constants.problem.variance_factor, self.flat_noised.size
                noise = (SERVER_STREAM, 0, 1), variance, size, constants.dither_threshold
                self.noise_source = constants.mechanism.noise_source(self._key, *noise)

    @classmethod
    def variance_factor(cls, machines: int, noise_shares: int) -> float:
        return 1

    def run_round(self, t: int, machines: "Machines", timer: "Timer") -> None:
        """Run round t: increments, Reduce to rank 0, noise and the server step there, Bcast of x_{t+1}."""
        iterates = self.iterates
        machines.accumulate_increments(t, iterates.x, iterates.x_previous)
        timer.record("compute")
        message_sum = self._communicator.reduce(machines.message_sum, self._message_sum)
        timer.record("communication")
        if t == self._rounds:
            return
        if message_sum is not None:
            if self._constants.mechanism.is_noisy:
                message_sum = self._noised_sum(t, message_sum, machines)
            timer.record("noise")
            iterates.step(t, message_sum)
            timer.record("step")
            self._communicator.bcast(iterates.x)
        else:
            self._communicator.bcast(iterates.x_previous)
            iterates.swap_query_points()
        timer.record("communication")

    def _noised_sum(self, t: int, message_sum: IntArray, machines: "Machines") -> IntArray:
        """Return the sum of messages with the noise of round t; RuntimeError without a noise key."""
        if self.noise_source is None:
            raise RuntimeError("the server holds no noise key")
        # A lone rank gets its own array back.
        is_received = message_sum is self._message_sum
        flat_message_sum = self._flat_message_sum if is_received else machines.flat_message_sum
        self.noise_source(self.flat_noised, flat_message_sum, t)
        return self.noised
