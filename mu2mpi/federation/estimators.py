"""What a machine sends in a round, and where it takes gradients: at averages of iterates, or at the last."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mu2mpi.losses.loss import Problem


@dataclass(frozen=True)
class Query:
    """Where gradients are taken: at iterate w_t, or if it `averages`, at the average x_t of w_1 .. w_t."""

    name: str
    averages: bool

    def importance(self, t: int) -> int:
        """Return alpha_t, the weight of round t."""
        return t if self.averages else 1

    def averaging_weight(self, t: int) -> float:
        """Return the weight of w_t in the query point: alpha_t / alpha_{1:t} = 2 / (t + 1), or all of it."""
        return 2 / (t + 1) if self.averages else 1.0


AVERAGE, ITERATE = Query("average", averages=True), Query("iterate", averages=False)


@dataclass(frozen=True)
class Estimator:
    """What a machine sends in round t, which estimates k_t f'(x_t)."""

    name: str
    template: str  # the function of `mu2mpi.federation.increments` that adds samples to a message
    gradients: int  # of each sample
    lasts: bool  # whether a sample is in all messages from its round on

    def weight(self, t: int) -> int:
        """Return k_t: t for q_t = alpha_t d_t, the sum of increments, and 1 for a gradient."""
        return t if self.lasts else 1

    def bound(self, G: float, L: float, D: float, query: Query) -> float:
        """Return the norm that what one sample adds to a message never passes; infinite if there is none.

        For increments S = G + 2 L D at averages (Lemma 4.2); iterates may lie D apart in any round.
        """
        if not self.lasts:
            return G
        return G + 2 * L * D if query.averages else math.inf

    def kernel(self, problem: "Problem", rows: int) -> Any:
        """Return the template, or that for a model of one row, compiled for a problem."""
        from mu2mpi.federation import increments

        return problem.kernel(getattr(increments, self.template + ("_to_row" if rows == 1 else "")))


# q_{t,i}, the sum of increments s_{tau,i} = g + (tau - 1)(g - g~) for tau <= t (Lemma 4.1)
CORRECTED_MOMENTUM = Estimator("corrected-momentum", "add_increments", gradients=2, lasts=True)
# The gradient of fresh samples alone
GRADIENT = Estimator("gradient", "add_gradients", gradients=1, lasts=False)
