"""Gradient estimators sent by the machines, and the query points where gradients are taken."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.lazy import np

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
    local_steps: int = 0  # number of local steps of a machine in a round, whose gradients add up; 0 for none

    def gradient_weight(self, t: int) -> int:
        """Return k_t: t for summed increments, the number of local steps, or 1 for gradients."""
        return t if self.is_cumulative else max(1, self.local_steps)

    def contribution_bound(self, G: float, L: float, D: float, query_point: QueryPoint) -> float:
        """Return the bound on the norm of a sample's contribution to a message; infinite if there is none.

        Increments at averaged iterates have S = G + 2 L D (Lemma 4.2); last iterates may move by D a round.
        """
        if not self.is_cumulative:
            return G
        return G + 2 * L * D if query_point.is_averaged else math.inf

    def message_shape(self, model_rows: int, features: int) -> tuple[int, int]:
        """Return the shape of a message, by default that of the model; of others, no step is a multiple."""
        return model_rows, features

    def increment(
        self, loss_function: "Loss", points: FloatArray, z: FloatArray, label: Any, t: int, clip_norm: float
    ) -> FloatArray:
        """Return the clipped increment of one sample z at (x_t, x_{t-1}): the kernel's plain definition."""
        c, c_previous = loss_function.losses_and_residuals(points @ z, np.repeat(label, 2))[1]
        if self.is_cumulative:
            c += (t - 1) * (c - c_previous)
        factor = min(1.0, clip_norm / float(np.linalg.norm(c) * np.linalg.norm(z)))
        return np.outer(c, z) * factor

    def compile_kernel(self, loss_function: "Loss", model_rows: int) -> Any:
        """Return the kernel that adds samples to messages, compiled for a loss and a number of rows."""
        from mu2mpi.federation import increments

        template = increments.add_increments_one_row if model_rows == 1 else increments.add_increments
        return loss_function.compile_kernel(template, HAS_MOMENTUM=self.is_cumulative)


@dataclass(frozen=True)
class SecondMoments(Estimator):
    """Weighted sums of (z, s r) z^T: second moments of samples z, and scaled gradients r z^T."""

    def message_shape(self, model_rows: int, features: int) -> tuple[int, int]:
        """Return (F + rows, F)."""
        return features + model_rows, features

    def increment(
        self, loss_function: "Loss", points: FloatArray, z: FloatArray, label: Any, t: int, clip_norm: float
    ) -> FloatArray:
        """Return w (z, s r) z^T, as `mu2mpi.federation.increments.add_second_moments`."""
        r = loss_function.losses_and_residuals(points @ z, np.repeat(label, 2))[1][0]
        max_square, R = clip_norm / math.sqrt(2), loss_function.zero_residual_bound(len(r))
        c = np.append(z, math.sqrt(max_square) / max(R, float(np.linalg.norm(r))) * r)
        return np.outer(c, z) * min(1.0, max_square / np.sum(z * z))

    def compile_kernel(self, loss_function: "Loss", model_rows: int) -> Any:
        """Return the kernel of second moments."""
        from mu2mpi.federation.increments import add_second_moments

        R = loss_function.zero_residual_bound(model_rows)
        return loss_function.compile_kernel(add_second_moments, RESIDUAL_BOUND=R)


# q_{t,i}, the sum of increments s_{tau,i} = g + (tau - 1)(g - g~) for tau <= t (Lemma 4.1)
CORRECTED_MOMENTUM = Estimator("corrected-momentum", 2, is_cumulative=True)
# The sum of gradients of the round's samples alone
GRADIENT_ESTIMATOR = Estimator("gradient", 1, is_cumulative=False)
# Of the round's samples, for a quadratic surrogate of the loss at x_t
SECOND_MOMENTS = SecondMoments("second-moments", 1, is_cumulative=False)
