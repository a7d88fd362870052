"""Constants of a run: its problem, and the method's batching, noise and step sizes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.lazy import np
from mu2mpi.federation.batching import Batching
from mu2mpi.federation.estimators import Estimator, QueryPoint
from mu2mpi.federation.problem import Problem
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.grid import reduce_clip_norm


@dataclass(frozen=True, kw_only=True)
class RunConstants:
    """Constants of a run, equal in all rounds: the problem, and the method's estimator, noise and steps."""

    problem: Problem
    estimator: Estimator  # gradient estimator that machines send
    query_point: QueryPoint  # where machines take gradients
    batching: Batching  # which samples each machine uses in which round
    mechanism: Mechanism  # noise, clipping norm and grid of the messages
    S: float  # bound on a sample's contribution to a message: G + 2 L D for increments (Lemma 4.2)
    eta: float  # learning rate
    step_size: Callable[[int], float]  # factor of the averaged message of round t
    take_server_step: Callable[..., None]  # server step, as `Method.step`
    has_plain_step: bool = False  # whether the server step is `Iterates.projected_step` alone
    state_names: tuple[str, ...] = ()  # names of the arrays of the step beside w, x and x_previous
    iterates_reveal_messages: bool  # whether a step within the ball is the scaled message
    first_averaged_round: int | None  # the output averages query points from this round on; None: the last
    excess_loss_bound: float  # theorem's bound on the output's expected excess loss, in nats; NaN if none

    @property
    def rounds(self) -> int:
        """Number of rounds T."""
        return self.batching.rounds

    @property
    def message_shape(self) -> tuple[int, int]:
        """Shape of a message: that of the model, unless the estimator sends more."""
        return self.estimator.message_shape(self.problem.model_rows, self.problem.features)

    @property
    def machine_weight_sum(self) -> float:
        """Expected sum of the weights of a round's participants: M if all machines are alike."""
        plan = self.problem.per_machine_plan
        return self.problem.machines if plan is None else plan.machine_weight_sum

    @property
    def dither_threshold(self) -> float:
        """Smallest threshold of the mechanisms: noise std, in grid units, above which noise is dithered."""
        plan = self.problem.per_machine_plan
        mechanisms = (self.mechanism,) if plan is None else plan.mechanisms
        return min(mechanism.dither_threshold for mechanism in mechanisms)

    @property
    def sums_per_round(self) -> int:
        """Number of noised sums in a round: 1, or the number of local steps if each has noise."""
        return self.mechanism.sums_per_round(self.rounds)

    def sum_over_machines(self, t: int, term: Callable[[int], float]) -> float:
        """Return the sum over machines of `term(k)`, for k participations in the first t rounds."""
        plan = self.problem.per_machine_plan
        return self.problem.machines * term(t) if plan is None else plan.sum_over_machines(t, term)

    def rho_spent(self, t: int) -> float:
        """Return the rho spent in rounds 1 .. t, the largest over samples; NaN if not accounted by rho."""
        return (self.problem.per_machine_plan or self.mechanism).rho_spent(t * self.sums_per_round)

    def target_epsilons(self, epsilon: float) -> Iterable[tuple[Mechanism, float]]:
        """Return each mechanism with its target epsilon: `epsilon`, or the least budget of its machines."""
        plan = self.problem.per_machine_plan
        return [(self.mechanism, epsilon)] if plan is None else plan.target_epsilons(epsilon)

    @cached_property
    def reduced_clip_norm(self) -> float:
        """Norm to which increments are clipped before they are rounded to the grid."""
        # Two rounding errors together take their share of the smallest distance to be bounded.
        mechanism, distance = self.mechanism, self.mechanism.unit_sensitivities["replace"]
        spacing = mechanism.grid_spacing * (2 / distance)
        return reduce_clip_norm(mechanism.clip_norm, spacing, mechanism.parameters)

    def per_machine_clip_norms(self, hosted_machines: range) -> FloatArray | None:
        """Return clip bound and grid spacing of each hosted machine's row; None if all have the same."""
        plan, spacing = self.problem.per_machine_plan, self.mechanism.grid_spacing
        if plan is None or plan.weights.min() == 1:
            return None
        reduced = plan.evaluate_per_machine(lambda m: reduce_clip_norm(m.clip_norm, spacing, self.problem.d))
        # Machines that never participate may have the weight 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.stack([reduced / plan.weights, spacing / plan.weights], axis=1)
        return scaled[hosted_machines.start : hosted_machines.stop]

    def with_problem(self, **changes: Any) -> Self:
        """Return a copy of the constants with changed fields of the problem."""
        return replace(self, problem=replace(self.problem, **changes))
