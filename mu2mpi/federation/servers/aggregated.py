"""Secure aggregation: messages are masked, and the server learns their sum alone."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.federation.servers.untrusted import UntrustedServer
from mu2mpi.federation.trust_mode import COLLUDING_SERVER_PHRASE, ColludersOptions, WithColluders

if TYPE_CHECKING:
    from mu2mpi.federation.machine import Machines


class MaskOptions(ColludersOptions):
    """Options of secure aggregation: the number of colluders, and which masks are computed."""

    masks: Literal["crossing", "all", "none"] = Field(
        "crossing",
        description="masks to compute: across ranks (crossing), all, or none; results have the same bits",
    )


@register
class SecureAggregationServer(WithColluders, UntrustedServer):
    """Secure aggregation: noise N(0, sigma^2 / (M - c)) per machine, masks that cancel in the sum.

    It protects samples against the server and up to c colluding machines, who learn the sum over the other
    M - c machines, with noise of variance sigma^2 or more. It assumes that at most c machines collude, that
    the others add their noise shares and keep the keys of their masks secret, and that all machines take
    part in every round. Bonawitz et al., 2017; Bell et al., 2020: `mu2mpi.privacy.noise.masks`.
    """

    name = "aggregated"
    summary = "every machine a part before it sends, and masks"
    options = MaskOptions
    simulation_options = ("masks",)
    has_plain_rounds = True  # without masks
    adversary = f"Whoever sees everything that leaves the machines, {COLLUDING_SERVER_PHRASE}"
    trusted_parties = "all machines but the colluders, to add their noise and to keep the keys of their masks"

    @classmethod
    def simulation_label(cls, options: Any) -> str:
        return "unmasked" if options.masks == "none" else "protocol"

    def set_up_rank(self) -> None:
        from mu2mpi.privacy.noise.masks import Masks
        from mu2mpi.privacy.noise.noise_stream import derive_key, padded_zeros

        super().set_up_rank()
        self._flat_masked, self._masked = padded_zeros(self._constants.message_shape)
        problem, masks = self._constants.problem, self._constants.problem.server_options.masks
        if self._key is not None and masks != "none":
            mask_key = derive_key(self._key.astype("<u4").tobytes(), "masks")
            machines = problem.machines, problem.colluders
            self.masks = Masks(*machines, mask_key, self._hosted_machines, masks == "all") or None

    def _message(self, t: int, machines: "Machines") -> IntArray:
        self.unmasked_message = message = machines.noised_message(t)
        if not self.masks:
            return message
        self._masked[...] = message
        self.masks.add(self._flat_masked, t)
        return self._masked
