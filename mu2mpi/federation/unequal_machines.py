"""Unequal machines: their sizes, budgets and participation, and their weights and noise in a run."""

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mu2mpi.core.errors import InputError
from mu2mpi.federation.participants import RunParticipation, longest_run
from mu2mpi.federation.participation.schedule import Participation
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.accounting.per_machine import Accounts, Floats, Integers
from mu2mpi.privacy.mechanisms.mechanism import SMALLEST, Mechanism, calibrated
from mu2mpi.privacy.noise.grid import check_room
from mu2mpi.privacy.release import Release


@dataclass(frozen=True, eq=False)
class UnequalMachines:
    """M machines that differ, or are away in some rounds, as the user describes them."""

    participation: Participation  # who takes part when
    samples: Integers  # how many each has, shape (machines,)
    by_samples: bool  # whether the objective is the mean over samples, or over machines
    # Of machines with a budget of their own; its epsilon is infinite if rho was stated
    budgets: dict[int, Budget] = field(default_factory=dict)
    owners: tuple[str, ...] | None = None  # what machines are called, if by anything but their numbers
    _participations: dict[int, RunParticipation] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def longest(self) -> int:
        """In how many rounds nobody uses more than its samples, one a round."""
        if rounds := longest_run(self.participation, self.samples):
            return rounds
        raise InputError("a machine without samples is there in the first round; give other --participation")

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


@dataclass(frozen=True, eq=False)
class PerMachinePlan:
    """Weights and noise of unequal machines in a run; arrays have the shape (machines,)."""

    unequal: UnequalMachines
    budget: Budget  # of machines without one of their own
    participation: RunParticipation
    weights: Floats  # factors of increments, at most 1
    mechanisms: tuple[Mechanism, ...]  # the distinct ones
    mechanism_index: Integers  # of each machine among these; -1 if it never participates
    stays: bool  # whether a trusted server's releases tell of a sample also while its machine is away
    total_weight: float  # expected sum of the weights of a round's participants
    effective_machines: float  # number of equal machines that would average samples as well
    # Of the average message of a round; of cumulative messages that of noise drawn anew in each round
    # which moves the sum over rounds as far
    noise_std: float

    @cached_property
    def main(self) -> Mechanism:
        """That of the machine about which most is told."""
        rhos = [kind.stated_rho for kind in self.mechanisms]
        if None in rhos:
            # Of samples that are drawn alike, those tell most which noise hides least.
            return max(self.mechanisms, key=lambda kind: kind.clip_norm / max(kind.sigma, SMALLEST))
        # Of nearly the same rho, more draws of noise make the larger epsilon.
        most, delta = max(rho for rho in rhos if rho is not None), self.budget.delta
        near = [kind for kind in self.mechanisms if (kind.stated_rho or 0.0) >= 0.99 * most]
        return max(near, key=lambda kind: kind.guarantee().epsilon(delta)) if near[1:] else near[0]

    @property
    def digest(self) -> str:
        """Digest of what decides the messages: participation, weights, and the noise of every machine."""
        noise = [(kind.sigma, kind.clip_norm, kind.resolution) for kind in self.mechanisms]
        found = hashlib.sha256(repr(noise).encode())
        for array in (self.mechanism_index, self.weights, self.participation.counts):
            found.update(array.tobytes())
        return found.hexdigest()

    @property
    def is_noisy(self) -> bool:
        """Whether there is noise at any machine: those without a budget may have none."""
        return any(kind.is_noisy for kind in self.mechanisms)

    def accounts(self, delta: float) -> Accounts:
        """Return what each machine does and spends."""
        allowed = np.full(len(self.mechanism_index), self.budget.rho)
        for i, budget in self.unequal.budgets.items():
            allowed[i] = budget.rho
        rounds, machines = range(1, self.participation.rounds + 1), range(len(self.mechanism_index))
        is_small = len(rounds) * len(machines) <= 10**7
        return Accounts(
            samples=self.unequal.samples,
            rounds=self.participation.counts,
            weight=self.weights,
            clip_norm=self.clip_norms(),
            sigma=self.per_machine(lambda kind: kind.sigma),
            rho_allowed=allowed,
            rho=self.per_machine(lambda kind: math.nan if (rho := kind.stated_rho) is None else rho),
            epsilon=self.per_machine(lambda kind: kind.guarantee().epsilon(delta)),
            owners=self.unequal.owners,
            present=self.participation.participates(rounds, machines) if is_small else None,
        )

    def per_machine(self, value: Callable[[Mechanism], float], absent: float = 0.0) -> Floats:
        """Return a number of each machine's mechanism, shape (machines,); another for who is never there."""
        return np.array([*map(value, self.mechanisms), absent])[self.mechanism_index]

    def promised(self, epsilon: float) -> Iterator[tuple[Mechanism, float]]:
        """Yield each mechanism with the least epsilon that its machines were promised: `epsilon`, or own."""
        each, least = np.full(len(self.mechanism_index), epsilon), np.full(len(self.mechanisms), math.inf)
        for i, budget in self.unequal.budgets.items():
            each[i] = budget.epsilon
        there = self.mechanism_index >= 0
        np.minimum.at(least, self.mechanism_index[there], each[there])
        yield from zip(self.mechanisms, least.tolist(), strict=True)

    @property
    def fresh_deviation(self) -> float:
        """Standard deviation of noise in the sum of a round's messages that moves the last iterate as far."""
        drawn = self.noise_std * self.total_weight
        if (correlation := self.main.correlation) is None or correlation.lasts:
            return drawn
        return drawn * correlation.gain() / math.sqrt(self.main.rounds)

    def sum_over_machines(self, t: int, count: Callable[[int], float]) -> float:
        """Sum over machines of a function of the number of the first t rounds in which each takes part."""
        numbers, machines = np.unique(self.participation.counts_until(t), return_counts=True)
        return math.fsum(m * count(k) for k, m in zip(numbers.tolist(), machines.tolist(), strict=True))

    def rho_spent(self, rounds: int) -> float:
        """Return what the first rounds tell at most of any one sample; NaN where no rho describes that."""
        there = self.mechanism_index >= 0
        most = np.zeros(len(self.mechanisms), np.int64)
        np.maximum.at(most, self.mechanism_index[there], self.participation.counts_until(rounds)[there])
        counts = np.where(self.stays & (most > 0), rounds, most).tolist()
        return float(np.max([kind.rho_spent(n) for kind, n in zip(self.mechanisms, counts, strict=True)]))

    def mechanisms_of(self, machines: range) -> list[Mechanism | None]:
        """Return what hides the messages of some machines; None of one that is never there."""
        return [
            self.mechanisms[k] if k >= 0 else None
            for k in self.mechanism_index[machines.start : machines.stop].tolist()
        ]

    def clip_norms(self) -> Floats:
        """Return the norm to which each machine's increments are clipped once they are weighted."""
        return self.per_machine(lambda kind: kind.clip_norm)


def plan_machines(
    unequal: UnequalMachines,
    budget: Budget,
    kind: type[Mechanism],
    rounds: int,
    release_of: Callable[[int], Release],
    *,
    hides_sums: bool,
    is_cumulative: bool,
) -> PerMachinePlan:
    """Calibrate the noise of every machine to its own rounds, weight and budget.

    `release_of` returns the release of a machine that takes part in so many rounds. Noise that hides sums is
    the largest of all machines.
    """
    if kind.sigma_of is not Mechanism.sigma_of and not kind.stays:
        raise InputError(
            f"mechanism = {kind.name} has noise that changes from round to round, and is for machines that "
            "are alike and all there; leave out participation, objective and budgets, or --mechanism"
        )
    participation = unequal.in_rounds(rounds)
    attended, weights = participation.counts, unequal.weights(participation)
    stays = hides_sums and (is_cumulative or kind.stays)
    counts = attended if kind.by_machine and not stays else np.where(attended > 0, participation.max_count, 0)
    index_of: dict[tuple[int, float, Budget], int] = {}
    index = np.full(len(counts), -1)
    for i in np.flatnonzero(counts).tolist():
        facts = int(counts[i]), float(weights[i]), unequal.budgets.get(i, budget)
        index[i] = index_of.setdefault(facts, len(index_of))
    mechanisms = []
    for count, weight, own in index_of:
        whole = release_of(count)
        scaled = {name: weight * getattr(whole, name) for name in ("clip_norm", "gradient_norm")}
        mechanisms.append(calibrated(kind, own, replace(whole, **scaled)))
    resolution = min(one.resolution for one in mechanisms)
    whole = release_of(participation.max_count)
    check_room(whole, max(one.largest_noise for one in mechanisms), resolution)
    sigma = max(one.sigma for one in mechanisms)
    mechanisms = [one.having(sigma if hides_sums else one.sigma, resolution) for one in mechanisms]
    drawn = np.array([*(one.fresh_sigma for one in mechanisms), 0.0])[index]
    persists = participation.squared_gaps if is_cumulative else attended
    total, effective = unequal.averages(participation, weights)
    # Infinite noise leaves no learning rate, which is refused.
    with np.errstate(over="ignore"):
        squares = drawn**2
        square = float(squares.max()) if hides_sums else float(np.sum(squares * persists)) / rounds
    return PerMachinePlan(
        unequal=unequal,
        budget=budget,
        participation=participation,
        weights=weights,
        mechanisms=tuple(mechanisms),
        mechanism_index=index,
        stays=stays,
        total_weight=total,
        effective_machines=effective,
        noise_std=float(np.sqrt(square)) / total,
    )
