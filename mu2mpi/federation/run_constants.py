"""Constants of a run: its task, and the method's batches, noise and steps."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

from mu2mpi.federation.batching import Sampling
from mu2mpi.federation.estimators import Estimator, Query
from mu2mpi.federation.task import Task
from mu2mpi.privacy.mechanisms.mechanism import Mechanism
from mu2mpi.privacy.noise.grid import clipping_bound


@dataclass(frozen=True, kw_only=True)
class RunConstants:
    """All that machines and server need to take a round: the task, and what the method made of it."""

    task: Task
    estimator: Estimator  # what machines send
    query: Query  # where they take gradients
    sampling: Sampling  # which of its samples each uses in which round
    mechanism: Mechanism  # the noise, and the grid of messages
    S: float  # bound on what a sample adds to a message: G + 2 L D for increments (Lemma 4.2)
    eta: float  # the learning rate
    step_size: Callable[[int], float]  # factor of the message of round t, averaged over samples
    step: Callable[..., None]  # the server's step, as `Method.step`
    state: tuple[str, ...] = ()  # arrays that a step needs beside w, x and the x before it
    has_plain_step: bool  # whether a step within the ball is the message, scaled
    mean_from: int | None  # the output is the mean of the query points from this round on, or the last
    loss_bound: float  # of theory on the expected excess loss of the output, in nats; NaN if there is none

    @property
    def rounds(self) -> int:
        """Number of rounds T."""
        return self.sampling.rounds

    @property
    def total_weight(self) -> float:
        """Expected sum of the weights of a round's participants: M if all machines are alike."""
        plan = self.task.per_machine
        return self.task.machines if plan is None else plan.total_weight

    @property
    def finest(self) -> float:
        """Grid units per standard deviation beyond which a server's draws are spread: all accounts hold."""
        plan = self.task.per_machine
        mechanisms = (self.mechanism,) if plan is None else plan.mechanisms
        return min(mechanism.finest for mechanism in mechanisms)

    def sum_over_machines(self, t: int, count: Callable[[int], float]) -> float:
        """Sum over machines of a function of the number of the first t rounds in which each takes part."""
        plan = self.task.per_machine
        return self.task.machines * count(t) if plan is None else plan.sum_over_machines(t, count)

    def rho_spent(self, t: int) -> float:
        """Return the rho of the first t rounds, for the sample of which they tell most; NaN without one."""
        return (self.task.per_machine or self.mechanism).rho_spent(t)

    def promised(self, epsilon: float) -> Iterable[tuple[Mechanism, float]]:
        """Return every mechanism with the epsilon that it must keep to: this, or its machines' own."""
        plan = self.task.per_machine
        return [(self.mechanism, epsilon)] if plan is None else plan.promised(epsilon)

    @cached_property
    def clip_bound(self) -> float:
        """Norm to which increments are clipped before they are rounded to the grid."""
        return clipping_bound(self.mechanism.clip_norm, self.mechanism.resolution, self.task.d)

    def per_machine_clipping(self, hosted: range) -> list[tuple[int, float, float]] | None:
        """Local index, clipping norm and grid spacing before weights of hosted machines.

        None if all have the same.
        """
        plan, d, resolution = self.task.per_machine, self.task.d, self.mechanism.resolution
        if plan is None or plan.weights.min() == 1:
            return None
        weights, norms = plan.weights, plan.clip_norms()
        return [
            (k, clipping_bound(float(norms[i]), resolution, d) / weights[i], resolution / weights[i])
            for k, i in enumerate(hosted)
            if norms[i] > 0
        ]

    def with_task(self, **changes: Any) -> Self:
        """Return the constants with other fields of the task."""
        return replace(self, task=replace(self.task, **changes))
