"""Unequal machines: their sizes, budgets, and participation."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.federation.participants import Integers, RunParticipation, longest_run
from mu2mpi.federation.participation.base import Participation
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.accounting.machines import Floats


@dataclass(frozen=True, eq=False)
class UnequalMachines:
    """M machines that differ, or are away in some rounds, as the user describes them."""

    participation: Participation  # who takes part when
    samples: Integers  # how many each has, shape (machines,)
    by_samples: bool  # whether the objective is the mean over samples, or over machines
    # Of machines with a budget of their own; its epsilon is infinite if rho was stated
    budgets: dict[int, Budget] = field(default_factory=dict)
    owners: tuple[str, ...] | None = None  # what machines are called, if by anything but their numbers

    @cached_property
    def longest(self) -> int:
        """In how many rounds nobody uses more than its samples, one a round."""
        if rounds := longest_run(self.participation, self.samples):
            return rounds
        raise InputError("a machine without samples is there in the first round; give other --participation")

    @cached_property
    def _participations(self) -> dict[int, RunParticipation]:
        return {}

    def in_rounds(self, rounds: int) -> RunParticipation:
        """Return who takes part in each of so many rounds; InputError if nobody ever does."""
        if rounds not in self._participations:
            self._participations[rounds] = RunParticipation(self.participation, rounds)
        if self._participations[rounds].max_count == 0:
            raise InputError("no machine ever takes part; give other --participation, or more --rounds")
        return self._participations[rounds]

    def check_samples(self, rounds: int) -> None:
        """Raise InputError if in so many rounds a machine would need more samples than it has."""
        attended = self.in_rounds(rounds).counts
        if (poor := np.flatnonzero(attended > self.samples)).size:
            who = self.owners[poor[0]] if self.owners else poor[0]
            raise InputError(
                f"in {rounds} rounds machine {who} takes part {attended[poor[0]]} times, with a fresh sample "
                f"each, and has {self.samples[poor[0]]}; give at most --rounds {self.longest}"
            )

    def weights(self, run: RunParticipation) -> Floats:
        """Return message weights: part in the objective over expected rounds, scaled to at most 1."""
        parts = self.samples.astype(np.float64) if self.by_samples else np.ones(len(self.samples))
        expected = self.participation.expected_counts(run.counts, run.rounds)
        found = np.divide(parts, expected, out=np.zeros_like(parts), where=expected > 0)
        weights: Floats = found / found.max()
        return weights

    def averages(self, run: RunParticipation, weights: Floats) -> tuple[float, float]:
        """Return `total_weight` and `effective_machines` of `PerMachinePlan`."""
        rounds = run.rounds
        part = self.participation.expected_counts(run.counts, rounds) / rounds
        total = float(np.sum(weights * part))
        return total, total**2 / float(np.sum(weights**2 * run.counts / rounds))

    def averaging(self, rounds: int, hides_sums: bool, rho: float) -> tuple[float, float]:
        """Return `shared` and `effective` of `PublicFacts`, for messages that are sums of increments."""
        run = self.in_rounds(rounds)
        weights, attended = self.weights(run), run.counts
        total, effective = self.averages(run, weights)
        drawn = weights * [
            rho / self.budgets[i].rho if i in self.budgets else 1.0 for i in range(len(weights))
        ]
        square = np.sum(drawn**2 * attended * run.squared_gaps) / rounds**2
        noise = drawn[attended > 0].max() if hides_sums else math.sqrt(square)
        return total / float(noise), effective
