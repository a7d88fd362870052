"""Accounts by the distribution of the privacy loss."""

from typing import NamedTuple

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.pld import min_noise_multiplier
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism

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


class RoundedUp(NamedTuple):
    """A distribution whose losses are rounded up by 2e-4 at least."""

    multiplier: float

    def get_epsilon_for_delta(self, delta):
        return 2e-4 + 1 / self.multiplier


def test_an_epsilon_below_what_discretisation_allows_is_refused():
    """However much noise is added, rounding of the losses leaves a positive epsilon."""
    with pytest.raises(InputError, match=r"--epsilon 0\.0001 is too small"):
        min_noise_multiplier(lambda multiplier, *_: RoundedUp(multiplier), 1, 1.0, 1, 1e-4, 1e-9)
