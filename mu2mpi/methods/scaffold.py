"""SCAFFOLD: local steps that control variates correct for the heterogeneity of machines."""

from typing import Any

from mu2mpi.core.arrays import IntArray
from mu2mpi.core.registry import register
from mu2mpi.methods.fedavg import FedAvg, LocalOptions
from mu2mpi.methods.method import Iterates


@register
class Scaffold(FedAvg):
    """DP-SCAFFOLD: local steps with noise, corrected by control variates, with the server step of FedAvg.

    Noble, Bellet, Dieuleveut, "Differentially private federated learning on heterogeneous data", 2022.
    The control variate of a machine is its noised mean gradient over the local steps of the round before, and
    that of the server their mean, which is its last averaged message: they cost no privacy and no message.
    """

    name, title = "scaffold", "DP-SCAFFOLD"
    summary = "local steps with noise, corrected by each machine's last message"
    options = LocalOptions

    def state_names(self, options: Any) -> tuple[str, ...]:
        return *super().state_names(options), "control"

    def iterates_reveal_messages(self, options: Any) -> bool:
        return not options.momentum

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take the step of FedAvg, and keep the mean sum of a local step for the next round."""
        steps = iterates.constants.problem.machines * iterates.constants.sums_per_round
        iterates.optimizer_state["control"][...] = message_sum / steps
        super().step(iterates, t, message_sum, step_factor)
