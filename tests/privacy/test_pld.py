"""Accounts by the distribution of the privacy loss."""

import math
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting import pld as accounting
from mu2mpi.privacy.accounting.pld import (
    MIN_NOISE_MULTIPLIER,
    _round_up_digits,
    epsilon_at_delta,
    min_noise_multiplier,
)
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism

DELTA = 1e-5


@pytest.mark.parametrize(
    ("probability", "rounds", "multiplier"), [(2.56e-4, 80_000, 1.2), (0.01, 2000, 3.0), (1.0, 50, 300.0)]
)
def test_rounding_of_losses_costs_little(probability, rounds, multiplier):
    one = pld.from_gaussian_mechanism(
        multiplier, value_discretization_interval=2e-5, sampling_prob=probability,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )  # fmt: skip
    finely = one.self_compose(rounds).get_epsilon_for_delta(DELTA)
    assert (
        finely * (1 - 1e-6)
        < PoissonMechanism.compute_epsilon(1.0, 1, probability, rounds, multiplier, DELTA)
        < 1.005 * finely
    )


def test_delta_that_is_too_small_to_be_computed_with_is_refused():
    with pytest.raises(InputError, match=r"--delta must be at least 1e-12 .*got 1e-14"):
        PoissonMechanism.find_sigma(1.0, 50, 7.0, 140, 1.0, 1e-14)
    sigma = PoissonMechanism.find_sigma(1.0, 2, 1.0, 3, 3.0, 1e-12)
    assert 3 * 0.995 < PoissonMechanism.compute_epsilon(1.0, 2, 1.0, 3, sigma, 1e-12) <= 3


@pytest.mark.parametrize("mechanism", [PoissonMechanism, ReplacementExactMechanism])
@pytest.mark.parametrize("neighbours", ["replace", "zero-out"])
@pytest.mark.parametrize(
    "account",
    [(1.0, 1000, 10, 100), (5.0, 100, 30, 50), (0.3, 60, 1, 3), (0.07, 3, 2, 2), (40.0, 1000, 10, 10)],
)
def test_epsilon_is_that_of_dp_accounting(mechanism, neighbours, account):
    losses = mechanism.compose_pld(neighbours, *account)
    for delta in (1e-300, 1e-12, 1e-8, 1e-5, 0.01, 0.3, 0.9, 0.999999):
        expected, epsilon = losses.get_epsilon_for_delta(delta), epsilon_at_delta(losses, delta)
        # Where probabilities of losses underflow, no epsilon is stated.
        assert epsilon == pytest.approx(expected, rel=1e-8, abs=1e-12) or expected > 700 < epsilon


@pytest.fixture
def with_made_up_losses(monkeypatch):
    """Ask losses themselves for epsilon, as these have no probabilities."""
    monkeypatch.setattr(accounting, "epsilon_at_delta", lambda losses, d: losses.get_epsilon_for_delta(d))


class RoundedUp(NamedTuple):
    """A distribution whose losses are rounded up by 2e-4 at least."""

    multiplier: float

    def get_epsilon_for_delta(self, delta):
        return 2e-4 + 1 / self.multiplier


@pytest.mark.usefixtures("with_made_up_losses")
def test_an_epsilon_below_what_discretisation_allows_is_refused():
    """However much noise is added, rounding of the losses leaves a positive epsilon."""
    with pytest.raises(InputError, match=r"--epsilon 0\.0001 is too small"):
        min_noise_multiplier(lambda neighbours, multiplier, *_: RoundedUp(multiplier), 1, 1.0, 1, 1e-4, 1e-9)


class Logged:
    """Epsilon = sharpness / multiplier^2, more for coarse losses, and a log of (multiplier, coarseness)."""

    def __init__(self, sharpness):
        self.sharpness, self.accounts = sharpness, []

    def compose(self, neighbours, multiplier, samples, batch_size, rounds, coarseness):
        self.accounts.append((multiplier, coarseness))
        epsilon = self.sharpness / multiplier**2 * (1 + 2e-4 * coarseness**2)
        return SimpleNamespace(get_epsilon_for_delta=lambda delta: epsilon)


@pytest.mark.usefixtures("with_made_up_losses")
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 7.0, 1234.5])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2.0, 20.0])
def test_the_search_ends_at_the_smallest_multiplier_of_the_grid(sharpness, epsilon):
    """Coarse accounts lead to the result, and few of the finest losses confirm it."""
    log = Logged(sharpness)
    multiplier = min_noise_multiplier(log.compose, 100, 1.0, 1, epsilon, 1e-6)
    steps = math.ceil(math.log2(math.sqrt(sharpness * (1 + 2e-4) / epsilon)) * 2**13)
    assert multiplier == _round_up_digits(max(2.0 ** (steps / 2**13), MIN_NOISE_MULTIPLIER))
    finest = [account for account, coarseness in log.accounts if coarseness == 1]
    assert finest[-1] == multiplier
    assert len(finest) <= 6 or epsilon < 0.125  # where the search has no coarse losses


def test_an_epsilon_that_falls_in_steps_is_met_by_the_smallest_multiplier():
    """It is the spacing of the discretised losses, of which almost all are 0."""
    arguments = 10**6, 5.0, 1
    multiplier = min_noise_multiplier(PoissonMechanism.compose_pld, *arguments, 1e-3, 1e-12)
    assert multiplier == pytest.approx(0.985886, rel=1e-4)
    assert (
        PoissonMechanism.compose_pld("replace", multiplier, *arguments).get_epsilon_for_delta(1e-12) <= 1e-3
    )
    assert (
        PoissonMechanism.compose_pld("replace", multiplier / 1.001, *arguments).get_epsilon_for_delta(1e-12)
        > 1e-3
    )
