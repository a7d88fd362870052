"""Unequal machines: sizes, budgets and participation of each, and the calibrated weights and noise."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.federation.participants import RunParticipation, max_fresh_rounds
from mu2mpi.federation.participation.schedule import ParticipationSchedule
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts
from mu2mpi.privacy.calibration import adjust_grid, calibrate_mechanism
from mu2mpi.privacy.mechanisms.mechanism import MIN_POSITIVE, Mechanism
from mu2mpi.privacy.noise.grid import check_grid_range
from mu2mpi.privacy.released_sums import ReleasedSums


@dataclass(frozen=True, eq=False)
class UnequalMachines:
    """Machines of different sizes or budgets, or with partial participation, before calibration."""

    participation: ParticipationSchedule
    samples: IntArray  # number of samples of each machine, shape (machines,)
    is_sample_weighted: bool  # whether the objective is the mean over samples, not over machines
    # Own budgets by machine; epsilon is infinite where rho was stated
    budgets: dict[int, Budget] = field(default_factory=dict)
    machine_owners: tuple[str, ...] | None = None  # names of the machines; None for their indices
    _run_participations: dict[int, RunParticipation] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def max_rounds(self) -> int:
        """Largest number of rounds in which every machine has a fresh sample per participation."""
        if rounds := max_fresh_rounds(self.participation, self.samples):
            return rounds
        raise InputError("A machine without samples takes part in round 1. Use another --participation.")

    def run_participation(self, rounds: int) -> RunParticipation:
        """Return the participation in a run of some rounds; InputError if no machine takes part."""
        if (run := self._run_participations.get(rounds)) is None:
            run = self._run_participations[rounds] = RunParticipation(self.participation, rounds)
        if run.max_count == 0:
            raise InputError("No machine ever takes part. Use another --participation, or more --rounds.")
        return run

    def check_samples(self, rounds: int) -> None:
        """Raise InputError if a machine has fewer samples than participations."""
        counts = self.run_participation(rounds).counts
        if (lacking := np.flatnonzero(counts > self.samples)).size:
            i = lacking[0]
            name = self.machine_owners[i] if self.machine_owners else i
            raise InputError(
                f"--rounds must be at most {self.max_rounds:,}, got {rounds:,}: machine {name} has "
                f"{self.samples[i]:,} samples for {counts[i]:,} rounds, one per round. Use fewer rounds."
            )

    def machine_weights(self, run: RunParticipation) -> FloatArray:
        """Return machine weights: share of the objective / expected participations, scaled to at most 1."""
        shares = self.samples.astype(np.float64) if self.is_sample_weighted else np.ones(len(self.samples))
        expected = self.participation.expected_participations(run.counts, run.rounds)
        ratios = np.divide(shares, expected, out=np.zeros_like(shares), where=expected > 0)
        return np.asarray(ratios / ratios.max())

    def weight_statistics(self, run: RunParticipation, weights: FloatArray) -> tuple[float, float]:
        """Return the expected total weight of a round's participants, and the effective machines."""
        rounds = run.rounds
        probability = self.participation.expected_participations(run.counts, rounds) / rounds
        machine_weight_sum = float(np.sum(weights * probability))
        return machine_weight_sum, machine_weight_sum**2 / float(np.sum(weights**2 * run.counts / rounds))

    def noise_statistics(self, rounds: int, protects_sum_only: bool, rho: float) -> tuple[float, float]:
        """Return noise reduction and effective machines from public facts, for cumulative messages."""
        run, budgets = self.run_participation(rounds), self.budgets
        weights = self.machine_weights(run)
        machine_weight_sum, effective_machines = self.weight_statistics(run, weights)
        noise_stds = weights.copy()
        for i, budget in budgets.items():
            noise_stds[i] *= rho / budget.rho
        variance = np.sum(noise_stds**2 * run.counts * run.squared_gaps) / rounds**2
        noise_std = noise_stds[run.counts > 0].max() if protects_sum_only else math.sqrt(variance)
        return machine_weight_sum / float(noise_std), effective_machines


@dataclass(frozen=True, eq=False)
class PerMachinePlan:
    """Weights and noise of unequal machines in a run; arrays have the shape (machines,)."""

    unequal_machines: UnequalMachines
    budget: Budget  # of machines without one of their own
    participation: RunParticipation
    weights: FloatArray  # factors of increments, at most 1
    mechanisms: tuple[Mechanism, ...]  # the distinct ones
    mechanism_index: IntArray  # index of each machine's mechanism; -1 if it never participates
    is_cumulative: bool  # whether noised sums depend on a sample also while its machine is away
    machine_weight_sum: float  # expected sum of the weights of a round's participants
    effective_machines: float  # number of equal machines whose average gradient has the same variance
    # Of a round's averaged message; for cumulative messages, that of independent noise per round with the
    # same effect on the sum over rounds
    noise_std: float

    @cached_property
    def least_private_mechanism(self) -> Mechanism:
        """Mechanism, among those of all machines, with the largest privacy loss."""
        rhos = [mechanism.stated_rho for mechanism in self.mechanisms]
        if None in rhos:
            # With the same subsampling, the largest ratio of sensitivity to noise has the largest loss.
            return max(self.mechanisms, key=lambda each: each.clip_norm / max(each.sigma, MIN_POSITIVE))
        # Of nearly the same rho, more draws of noise make the larger epsilon.
        largest, delta = max(rho for rho in rhos if rho is not None), self.budget.delta
        near = [each for each in self.mechanisms if (each.stated_rho or 0.0) >= 0.99 * largest]
        return max(near, key=lambda each: each.guarantee().epsilon(delta)) if near[1:] else near[0]

    @property
    def digest(self) -> str:
        """SHA-256 of the participation counts, weights and noise of all machines."""
        noise = [(each.sigma, each.clip_norm, each.grid_spacing) for each in self.mechanisms]
        digest = hashlib.sha256(repr(noise).encode())
        for array in (self.mechanism_index, self.weights, self.participation.counts):
            digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def is_noisy(self) -> bool:
        """Whether any machine has noise; machines with an infinite budget have none."""
        return any(mechanism.is_noisy for mechanism in self.mechanisms)

    def accounts(self, delta: float) -> PerMachineAccounts:
        """Return the privacy accounts of all machines, with epsilon at a given delta."""
        rho_budget = np.full(len(self.mechanism_index), self.budget.rho)
        for i, budget in self.unequal_machines.budgets.items():
            rho_budget[i] = budget.rho
        rounds, machines = range(1, self.participation.rounds + 1), range(len(self.mechanism_index))
        is_small = len(rounds) * len(machines) <= 10**7
        return PerMachineAccounts(
            samples=self.unequal_machines.samples,
            rounds=self.participation.counts,
            weight=self.weights,
            clip_norm=self.evaluate_per_machine(lambda each: each.clip_norm),
            sigma=self.evaluate_per_machine(lambda each: each.sigma),
            rho_budget=rho_budget,
            rho=self.evaluate_per_machine(lambda each: math.nan if (rho := each.stated_rho) is None else rho),
            epsilon=self.evaluate_per_machine(lambda each: each.guarantee().epsilon(delta)),
            machine_owners=self.unequal_machines.machine_owners,
            participation=self.participation.participation_matrix(rounds, machines) if is_small else None,
        )

    def evaluate_per_machine(self, function: Callable[[Mechanism], float]) -> FloatArray:
        """Return `function` of each machine's mechanism as an array; 0 for those that never participate."""
        return np.array([*map(function, self.mechanisms), 0.0])[self.mechanism_index]

    def target_epsilons(self, epsilon: float) -> Iterator[tuple[Mechanism, float]]:
        """Yield each mechanism with its target epsilon: `epsilon`, or the least budget of its machines."""
        claimed, smallest = np.full(len(self.weights), epsilon), np.full(len(self.mechanisms), math.inf)
        for i, budget in self.unequal_machines.budgets.items():
            claimed[i] = budget.epsilon
        takes_part = self.mechanism_index >= 0
        np.minimum.at(smallest, self.mechanism_index[takes_part], claimed[takes_part])
        return zip(self.mechanisms, smallest.tolist(), strict=True)

    def sum_over_machines(self, t: int, term: Callable[[int], float]) -> float:
        """Return the sum over machines of `term(k)`, for k participations in the first t rounds."""
        numbers, machines = np.unique(self.participation.counts_until(t), return_counts=True)
        return math.fsum(m * term(k) for k, m in zip(numbers.tolist(), machines.tolist(), strict=True))

    def rho_spent(self, t: int) -> float:
        """Return the rho spent in rounds 1 .. t, the largest over samples; NaN if not accounted by rho."""
        takes_part = self.mechanism_index >= 0
        largest, counts = np.zeros(len(self.mechanisms), np.int64), self.participation.counts_until(t)
        np.maximum.at(largest, self.mechanism_index[takes_part], counts[takes_part])
        rounds = np.where(self.is_cumulative & (largest > 0), t, largest).tolist()
        return float(np.max([each.rho_spent(n) for each, n in zip(self.mechanisms, rounds, strict=True)]))


def calibrate_machines(
    unequal_machines: UnequalMachines,
    budget: Budget,
    mechanism_type: type[Mechanism],
    rounds: int,
    released_sums_for: Callable[[int], ReleasedSums],
    *,
    protects_sum_only: bool,
    is_cumulative: bool,
) -> PerMachinePlan:
    """Calibrate the noise of every machine to its own participation count, weight and budget; or InputError.

    `released_sums_for` returns a machine's release from its participation count. Noise that protects sums
    only is the largest of all machines.
    """
    if mechanism_type.round_sigma is not Mechanism.round_sigma and not mechanism_type.correlates_rounds:
        raise InputError(
            f"--mechanism {mechanism_type.name} does not support --participation, --objective and --budgets, "
            "since its noise changes from round to round. Leave these out, or --mechanism."
        )
    participation = unequal_machines.run_participation(rounds)
    own_counts, weights = participation.counts, unequal_machines.machine_weights(participation)
    persist = protects_sum_only and (is_cumulative or mechanism_type.correlates_rounds)
    shared_counts = np.where(own_counts > 0, participation.max_count, 0)
    counts = own_counts if mechanism_type.calibrates_to_participation and not persist else shared_counts
    index, first_machines = _group_machines(counts, weights, unequal_machines.budgets, budget)
    calibrated = []
    for i in first_machines.tolist():
        released_sums, weight = released_sums_for(int(counts[i])), float(weights[i])
        scaled = {name: weight * getattr(released_sums, name) for name in ("clip_norm", "max_gradient_norm")}
        own_budget = unequal_machines.budgets.get(i, budget)
        calibrated.append(calibrate_mechanism(mechanism_type, own_budget, replace(released_sums, **scaled)))
    grid_spacing = min(each.grid_spacing for each in calibrated)
    max_noise = max(each.max_noise_std for each in calibrated)
    largest_sums = released_sums_for(participation.max_count)
    check_grid_range(largest_sums, max_noise, grid_spacing)
    min_sigma = max(each.sigma for each in calibrated) if protects_sum_only else 0.0
    noisier = [each.with_noise(max(each.sigma, min_sigma), grid_spacing) for each in calibrated]
    mechanisms = adjust_grid(noisier, largest_sums, budget)
    noise_stds = np.array([*(each.equivalent_independent_sigma for each in mechanisms), 0.0])[index]
    gaps = participation.squared_gaps if is_cumulative else own_counts
    machine_weight_sum, effective_machines = unequal_machines.weight_statistics(participation, weights)
    # Infinite noise leaves no learning rate, which is refused.
    with np.errstate(over="ignore"):
        variances = noise_stds**2
        variance = float(variances.max()) if protects_sum_only else float(np.sum(variances * gaps)) / rounds
    return PerMachinePlan(
        unequal_machines=unequal_machines,
        budget=budget,
        participation=participation,
        weights=weights,
        mechanisms=tuple(mechanisms),
        mechanism_index=index,
        is_cumulative=persist,
        machine_weight_sum=machine_weight_sum,
        effective_machines=effective_machines,
        noise_std=float(np.sqrt(variance)) / machine_weight_sum,
    )


def _group_machines(
    counts: IntArray, weights: FloatArray, budgets: Mapping[int, Budget], default_budget: Budget
) -> tuple[IntArray, IntArray]:
    """Group machines of equal count, weight and budget: group of each (-1: no count), first of each group."""
    budget_index, distinct_budgets = np.zeros(len(counts), np.int64), {default_budget: 0}
    for i, budget in budgets.items():
        budget_index[i] = distinct_budgets.setdefault(budget, len(distinct_budgets))
    distinct_weights, weight_index = np.unique(weights, return_inverse=True)
    keys = (counts * len(distinct_weights) + weight_index) * len(distinct_budgets) + budget_index
    present, group = np.flatnonzero(counts), np.full(len(counts), -1)
    _, first, inverse = np.unique(keys[present], return_index=True, return_inverse=True)
    order = np.argsort(first)  # Groups are numbered by their first machines.
    group[present] = np.argsort(order)[inverse]
    return group, present[first[order]]
