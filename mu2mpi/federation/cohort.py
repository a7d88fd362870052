"""Machines that differ: in how many samples they have, in what they may spend, and in when they are there."""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.federation.participants import Integers, RunParticipation, longest_run
from mu2mpi.federation.participation.base import Participation
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.accounting.machines import Accounts, Floats
from mu2mpi.privacy.mechanisms.base import SMALLEST, Mechanism, calibrated
from mu2mpi.privacy.noise.grid import check_room
from mu2mpi.privacy.release import Release

if TYPE_CHECKING:
    from mu2mpi.federation.schedule import Task


@dataclass(frozen=True, eq=False)
class Cohort:
    """What is known of M machines before anything is decided."""

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
    def _attendances(self) -> dict[int, RunParticipation]:
        return {}

    def attendance(self, rounds: int) -> RunParticipation:
        """Return who takes part in each of so many rounds; InputError if nobody ever does."""
        if rounds not in self._attendances:
            self._attendances[rounds] = RunParticipation(self.participation, rounds)
        if self._attendances[rounds].max_count == 0:
            raise InputError("no machine ever takes part; give other --participation, or more --rounds")
        return self._attendances[rounds]

    def check_samples(self, rounds: int) -> None:
        """Raise InputError if in so many rounds a machine would need more samples than it has."""
        attended = self.attendance(rounds).counts
        if (poor := np.flatnonzero(attended > self.samples)).size:
            who = self.owners[poor[0]] if self.owners else poor[0]
            raise InputError(
                f"in {rounds} rounds machine {who} takes part {attended[poor[0]]} times, with a fresh sample "
                f"each, and has {self.samples[poor[0]]}; give at most --rounds {self.longest}"
            )

    def weights(self, attendance: RunParticipation) -> Floats:
        """Return message weights: part in the objective over expected rounds, scaled to at most 1."""
        parts = self.samples.astype(np.float64) if self.by_samples else np.ones(len(self.samples))
        expected = self.participation.expected_counts(attendance.counts, attendance.rounds)
        found = np.divide(parts, expected, out=np.zeros_like(parts), where=expected > 0)
        weights: Floats = found / found.max()
        return weights

    def averages(self, attendance: RunParticipation, weights: Floats) -> tuple[float, float]:
        """Return `total` and `effective` of `Members`."""
        rounds = attendance.rounds
        part = self.participation.expected_counts(attendance.counts, rounds) / rounds
        total = float(np.sum(weights * part))
        return total, total**2 / float(np.sum(weights**2 * attendance.counts / rounds))

    def averaging(self, rounds: int, hides_sums: bool, rho: float) -> tuple[float, float]:
        """Return `shared` and `effective` of `PublicFacts`, for messages that are sums of increments."""
        attendance = self.attendance(rounds)
        weights, attended = self.weights(attendance), attendance.counts
        total, effective = self.averages(attendance, weights)
        drawn = weights * [
            rho / self.budgets[i].rho if i in self.budgets else 1.0 for i in range(len(weights))
        ]
        square = np.sum(drawn**2 * attended * attendance.squared_gaps) / rounds**2
        noise = drawn[attended > 0].max() if hides_sums else math.sqrt(square)
        return total / float(noise), effective


@dataclass(frozen=True, eq=False)
class Members:
    """What each machine of a cohort does and spends in a run; arrays have the shape (machines,)."""

    cohort: Cohort
    budget: Budget  # of machines without one of their own
    attendance: RunParticipation
    weights: Floats  # by what increments are multiplied, at most 1
    kinds: tuple[Mechanism, ...]  # what hides messages, among those that differ,
    of: Integers  # and which of them each machine has; -1 for one that is never there
    stays: bool  # whether a trusted server's releases tell of a sample also while its machine is away
    total: float  # what the weights of a round are expected to add up to
    effective: float  # how many machines of equal weights, all there, would average samples as well
    # Standard deviation of what is drawn for the average message of a round: of noise that stays, as if
    # drawn anew in each round, what moves the sum of all rounds as far
    noise: float

    @cached_property
    def main(self) -> Mechanism:
        """That of the machine about which most is told."""
        rhos = [kind.stated_rho for kind in self.kinds]
        if None in rhos:
            # Of samples that are drawn alike, those tell most which noise hides least.
            return max(self.kinds, key=lambda kind: kind.clip_norm / max(kind.sigma, SMALLEST))
        # Of nearly the same rho, more draws of noise make the larger epsilon.
        most, delta = max(rho for rho in rhos if rho is not None), self.budget.delta
        near = [kind for kind in self.kinds if (kind.stated_rho or 0.0) >= 0.99 * most]
        return max(near, key=lambda kind: kind.guarantee().epsilon(delta)) if near[1:] else near[0]

    @property
    def digest(self) -> str:
        """Digest of what decides the messages: participation, weights, and the noise of every machine."""
        noise = [(kind.sigma, kind.clip_norm, kind.resolution) for kind in self.kinds]
        found = hashlib.sha256(repr(noise).encode())
        for array in (self.of, self.weights, self.attendance.counts):
            found.update(array.tobytes())
        return found.hexdigest()

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise at any machine: those without a budget may have none."""
        return any(kind.is_noisy for kind in self.kinds)

    def accounts(self, delta: float) -> Accounts:
        """Return what each machine does and spends."""
        allowed = np.full(len(self.of), self.budget.rho)
        for i, budget in self.cohort.budgets.items():
            allowed[i] = budget.rho
        small = self.attendance.rounds * len(self.of) <= 10**7
        return Accounts(
            samples=self.cohort.samples,
            rounds=self.attendance.counts,
            weight=self.weights,
            clip_norm=self.clipping(),
            sigma=self.per_machine(lambda kind: kind.sigma),
            rho_allowed=allowed,
            rho=self.per_machine(lambda kind: math.nan if (rho := kind.stated_rho) is None else rho),
            epsilon=self.per_machine(lambda kind: kind.guarantee().epsilon(delta)),
            owners=self.cohort.owners,
            present=self.attendance.participates(self.attendance.all_rounds, range(len(self.of)))
            if small
            else None,
        )

    def per_machine(self, value: Callable[[Mechanism], float], absent: float = 0.0) -> Floats:
        """Return a number of each machine's mechanism, shape (machines,); another for who is never there."""
        return np.array([*map(value, self.kinds), absent])[self.of]

    def promised(self, epsilon: float) -> Iterator[tuple[Mechanism, float]]:
        """Yield each mechanism with the least epsilon that its machines were promised: `epsilon`, or own."""
        each, least = np.full(len(self.of), epsilon), np.full(len(self.kinds), math.inf)
        for i, budget in self.cohort.budgets.items():
            each[i] = budget.epsilon
        there = self.of >= 0
        np.minimum.at(least, self.of[there], each[there])
        yield from zip(self.kinds, least.tolist(), strict=True)

    @property
    def fresh_deviation(self) -> float:
        """Standard deviation of noise in the sum of a round's messages that moves the last iterate as far."""
        drawn = self.noise * self.total
        if (correlation := self.main.correlation) is None or correlation.lasts:
            return drawn
        return drawn * correlation.gain() / math.sqrt(self.main.rounds)

    def summed(self, t: int, count: Callable[[int], float]) -> float:
        """Return the sum over machines of a function of how many of the first t rounds each was in."""
        numbers, machines = np.unique(self.attendance.counts_until(t), return_counts=True)
        return math.fsum(m * count(k) for k, m in zip(numbers.tolist(), machines.tolist(), strict=True))

    def rho_spent(self, rounds: int) -> float:
        """Return what the first rounds tell at most of any one sample; NaN where no rho describes that."""
        there = self.of >= 0
        most = np.zeros(len(self.kinds), np.int64)
        np.maximum.at(most, self.of[there], self.attendance.counts_until(rounds)[there])
        counts = np.where(self.stays & (most > 0), rounds, most).tolist()
        return float(np.max([kind.rho_spent(n) for kind, n in zip(self.kinds, counts, strict=True)]))

    def of_machines(self, machines: range) -> list[Mechanism | None]:
        """Return what hides the messages of some machines; None of one that is never there."""
        return [self.kinds[k] if k >= 0 else None for k in self.of[machines.start : machines.stop].tolist()]

    def clipping(self) -> Floats:
        """Return the norm to which each machine's increments are clipped once they are weighted."""
        return self.per_machine(lambda kind: kind.clip_norm)


def members_of(
    task: "Task", rounds: int, kind: type[Mechanism], messages_of: Callable[[int], Release], lasts: bool
) -> Members:
    """Return each machine's noise, for its own rounds, weight and budget; of a trusted server the largest."""
    cohort, is_trusted = task.cohort, task.trust.hides_sums
    if cohort is None:
        raise ValueError("these machines do not differ")
    if kind.sigma_of is not Mechanism.sigma_of and not kind.stays:
        raise InputError(
            f"mechanism = {kind.name} has noise that changes from round to round, and is for machines that "
            "are alike and all there; leave out participation, objective and budgets, or --mechanism"
        )
    attendance = cohort.attendance(rounds)
    attended, weights = attendance.counts, cohort.weights(attendance)
    stays = is_trusted and (lasts or kind.stays)
    counts = attended if kind.by_machine and not stays else np.where(attended > 0, attendance.max_count, 0)
    labels: dict[tuple[int, float, Budget], int] = {}
    of = np.full(len(counts), -1)
    for i in np.flatnonzero(counts).tolist():
        facts = int(counts[i]), float(weights[i]), cohort.budgets.get(i, task.budget)
        of[i] = labels.setdefault(facts, len(labels))
    kinds = []
    for count, weight, budget in labels:
        whole = messages_of(count)
        scaled = {name: weight * getattr(whole, name) for name in ("clip_norm", "gradient_norm")}
        kinds.append(calibrated(kind, budget, replace(whole, **scaled)))
    resolution = min(one.resolution for one in kinds)
    whole = messages_of(attendance.max_count)
    check_room(whole, max(one.largest_noise for one in kinds), resolution)
    sigma = max(one.sigma for one in kinds)
    kinds = [one.having(sigma if is_trusted else one.sigma, resolution) for one in kinds]
    drawn = np.array([*(one.fresh_sigma for one in kinds), 0.0])[of]
    persists = attendance.squared_gaps if lasts else attended
    total, effective = cohort.averages(attendance, weights)
    square = float(drawn.max()) ** 2 if is_trusted else float(np.sum(drawn**2 * persists)) / rounds
    return Members(
        cohort=cohort,
        budget=task.budget,
        attendance=attendance,
        weights=weights,
        kinds=tuple(kinds),
        of=of,
        stays=stays,
        total=total,
        effective=effective,
        noise=float(np.sqrt(square)) / total,
    )
