"""Gradient estimators sent by the machines, and the query points where gradients are taken."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mu2mpi.losses.loss import Loss


@dataclass(frozen=True)
class QueryPoint:
    """Point where gradients are taken: iterate w_t, or the weighted average x_t of w_1 .. w_t."""

    name: str
    is_averaged: bool

    def importance_weight(self, t: int) -> int:
        """Return alpha_t, the importance weight of iterate w_t in the average."""
        return t if self.is_averaged else 1

    def averaging_weight(self, t: int) -> float:
        """Return the weight of w_t in the query point: alpha_t / alpha_{1:t} = 2 / (t + 1), or 1."""
        return 2 / (t + 1) if self.is_averaged else 1.0


AVERAGED_ITERATE = QueryPoint("average", is_averaged=True)
LAST_ITERATE = QueryPoint("iterate", is_averaged=False)


@dataclass(frozen=True)
class Estimator:
    """Gradient estimator: the message of round t estimates k_t f'(x_t), with k_t = `gradient_weight(t)`."""

    name: str
    gradients_per_sample: int
    is_cumulative: bool  # whether messages are cumulative: a sample is in all messages from its round on

    def gradient_weight(self, t: int) -> int:
        """Return k_t, the factor of the gradient in a message: t for summed increments, 1 for gradients."""
        return t if self.is_cumulative else 1

    def contribution_bound(self, G: float, L: float, D: float, query_point: QueryPoint) -> float:
        """Return the bound on the norm of a sample's contribution to a message; infinite if there is none.

        Increments at averaged iterates have S = G + 2 L D (Lemma 4.2); last iterates may move by D a round.
        """
        if not self.is_cumulative:
            return G
        return G + 2 * L * D if query_point.is_averaged else math.inf

    def compile_kernel(self, loss_function: "Loss", model_rows: int) -> Any:
        """Return the kernel that adds samples to messages, compiled for a loss and a number of rows."""
        from mu2mpi.federation import increments

        template = increments.add_increments_one_row if model_rows == 1 else increments.add_increments
        return loss_function.compile_kernel(template, HAS_MOMENTUM=self.is_cumulative)


# q_{t,i}, the sum of increments s_{tau,i} = g + (tau - 1)(g - g~) for tau <= t (Lemma 4.1)
CORRECTED_MOMENTUM = Estimator("corrected-momentum", 2, is_cumulative=True)
# The sum of gradients of the round's samples alone
GRADIENT_ESTIMATOR = Estimator("gradient", 1, is_cumulative=False)
