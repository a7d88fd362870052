"""Calibration of mechanisms to a privacy budget, on a grid fine or coarse enough for the noise sampler."""

import math
from collections.abc import Sequence

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.mechanism import INVALID_GUARANTEE_MESSAGE, Mechanism
from mu2mpi.privacy.noise.grid import check_grid_range, reduce_clip_norm
from mu2mpi.privacy.noise.sampler_error import is_sampler_negligible
from mu2mpi.privacy.released_sums import ReleasedSums

_MAX_GRID_SHIFT = 10  # log2 of the largest change of a grid: from MIN_STD_UNITS to above DITHER_THRESHOLD


def calibrate_mechanism(
    mechanism_type: type[Mechanism], budget: Budget, released_sums: ReleasedSums
) -> Mechanism:
    """Calibrate a mechanism; InputError if no noise suffices, or its guarantee is invalid or over budget."""
    mechanism, name = mechanism_type.calibrate(budget, released_sums), mechanism_type.name
    for rho in (mechanism.stated_rho, mechanism.guarantee().rho):
        if rho is not None and not rho >= 0:
            raise InputError(f"mechanism = {name} states rho = {rho:g}. {INVALID_GUARANTEE_MESSAGE}")
    if (rho := mechanism.stated_rho) is not None and rho > budget.rho * (1 + 1e-9):
        raise InputError(f"mechanism = {name} spends rho = {rho:g}, but the budget is {budget.rho:g}.")
    return mechanism


def adjust_grid(
    mechanisms: Sequence[Mechanism], released_sums: ReleasedSums, budget: Budget
) -> Sequence[Mechanism]:
    """Move mechanisms to the nearest common grid on which the sampler errors of all are negligible.

    Noise of a std just below `DITHER_THRESHOLD` grid units has the largest error. On a finer grid it is
    dithered; on a coarser one, taken where messages would overflow, it has fewer digits to get wrong.
    Mechanisms are returned as they are if no grid suffices.
    """
    aggregated_machines = released_sums.aggregated_machines
    for shift in (*range(0, -_MAX_GRID_SHIFT - 1, -1), *range(1, _MAX_GRID_SHIFT + 1)):
        moved = mechanisms if shift == 0 else _shift_grid(mechanisms, released_sums, shift)
        if moved and all(_is_sampler_negligible(each, budget, aggregated_machines) for each in moved):
            return moved
    return mechanisms


def _shift_grid(
    mechanisms: Sequence[Mechanism], released_sums: ReleasedSums, shift: int
) -> Sequence[Mechanism]:
    """Mechanisms on a grid 2^shift times as coarse; empty if messages or guarantees do not allow it."""
    grid_spacing = math.ldexp(mechanisms[0].grid_spacing, shift)
    moved = [each.with_noise(each.sigma, grid_spacing) for each in mechanisms]
    try:
        check_grid_range(released_sums, max(each.max_noise_std for each in moved), grid_spacing)
        for each in moved:
            reduce_clip_norm(each.clip_norm, grid_spacing, each.parameters)
    except InputError:
        return []
    is_same = (a.guarantee().rho == b.guarantee().rho for a, b in zip(moved, mechanisms, strict=True))
    return moved if all(is_same) else []


def _is_sampler_negligible(mechanism: Mechanism, budget: Budget, aggregated_machines: int) -> bool:
    guarantee = mechanism.guarantee(aggregated_machines=aggregated_machines)
    exact_epsilon, epsilon = guarantee.epsilon_exact_noise(budget.delta), guarantee.epsilon(budget.delta)
    # What remains of the budget may be less than what is negligible.
    exceeds = mechanism.budget_parameter == "epsilon" and epsilon > budget.epsilon * (1 + 1e-9)
    return is_sampler_negligible(epsilon, exact_epsilon, budget.delta) and not exceeds
