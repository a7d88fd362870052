"""Secure aggregation: masks hide the messages of single machines, and the server learns their sum alone."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from mu2mpi.core.registry import register
from mu2mpi.federation.servers.server import Integers
from mu2mpi.federation.servers.untrusted import UntrustedServer
from mu2mpi.federation.trust_mode import ColludersOptions, WithColluders

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines


class MaskOptions(ColludersOptions):
    """Which masks are computed."""

    masks: Literal["crossing", "all", "none"] = Field(
        "crossing",
        description="which masks are computed: those that do not cancel within a rank (crossing), all, one "
        "by one as machines would, or none, which hides no message; results have the same bits",
    )


@register
class AggregatedServer(WithColluders, UntrustedServer):
    """Every machine adds N(0, sigma^2 / (M - c)), and masks that cancel in the sum modulo 2^64.

    It protects samples against the server and up to c other machines, who learn the sum over the other M
    - c, with noise of variance sigma^2 at least. It assumes that no more machines than c work together
    with the server, that the others add their noise and keep the keys of their masks, and that all are
    there in every round. Bonawitz et al., 2017; Bell et al., 2020: `mu2mpi.privacy.noise.masks`.
    """

    name = "aggregated"
    summary = "every machine a part before it sends, and masks"
    options = MaskOptions
    unsent = ("masks",)
    sees = (
        "Whoever sees everything that leaves the machines, be it the server with {colluders} machines that "
        "work together with it,"
    )
    trusts = (
        "all machines but those that may work together with the server, to add their noise and to keep the "
        "keys of their masks"
    )

    @classmethod
    def simulates(cls, options: Any) -> str:
        """Return that messages are not masked, or the protocol."""
        return "unmasked" if options.masks == "none" else "protocol"

    def prepare(self) -> None:
        """Make the arrays and the noise sources of this rank."""
        from mu2mpi.privacy.noise.masks import Masks
        from mu2mpi.privacy.noise.noise_stream import derive_key, padded_zeros

        super().prepare()
        self._flat_masked, self._masked = padded_zeros(self._shape)
        task, masks = self._constants.task, self._constants.task.server_options.masks
        if self._key is not None and masks != "none":
            root = derive_key(self._key.astype("<u4").tobytes(), "masks")
            self.masks = Masks(task.machines, task.colluders, root, self._hosted, masks == "all") or None

    def _sent(self, t: int, machines: "Machines") -> Integers:
        """Return the sum of the messages of the rank's machines, masked."""
        self.unmasked = message = machines.noised(t)
        if not self.masks:
            return message
        self._masked[...] = message
        self.masks.add(self._flat_masked, t)
        return self._masked
