"""Both neighbouring relations: exact divergences of two rounds, other accountants, and statements."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup
from mu2mpi.privacy.accounting.group_privacy import PersonSamples, person_guarantee
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.correlated_mechanism import CorrelatedOptions
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import hockey_stick
from mu2mpi.privacy.released_sums import ReleasedSums
from mu2mpi.privacy.statement import PrivacyStatement

RELATIONS = {"replace": 2, "zero-out": 1}
"""Each relation, and how far two terms of norm at most 1 may be apart under it."""

DP_ACCOUNTING = {
    "replace": NeighboringRelation.REPLACE_ONE, "zero-out": NeighboringRelation.ADD_OR_REMOVE_ONE
}  # fmt: skip

both = pytest.mark.parametrize("neighbours", RELATIONS)


def calibrated(name, neighbours, rho=0.7, delta=1e-3, epsilon=1.5, **changes):
    sums = ReleasedSums(**{
        "rounds": 2, "machines": 1, "parameters": 1, "clip_norm": 3.0, "max_gradient_norm": 3.0,
        "affected_sums": 1, "increments_per_message": 4, "samples": 10, "batch_size": 1.0,
        "neighbours": neighbours, **changes,
    })  # fmt: skip
    return lookup("mechanisms", name).calibrate(Budget(rho, epsilon, delta), sums)


def divergence(p, q, epsilon):
    """Return the hockey-stick divergence of two arrays of probabilities."""
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def of_two_rounds(p, q, epsilon):
    """Return that of two independent rounds with the same pair of distributions."""
    return divergence(np.multiply.outer(p, p), np.multiply.outer(q, q), epsilon)


def densities(weights, means, sigma, reach):
    x, width = np.linspace(-reach, reach, 1001, retstep=True)
    return width * (np.asarray(weights) @ norm.pdf(x, np.asarray(means)[:, np.newaxis], sigma))


def check(guarantee, of_epsilon, deltas=(1e-2, 1e-3), tight=0.97):
    """The true divergence at a claimed epsilon is at most delta, and above it at `tight` times that.

    Sums over the grid of the line are off by less than 0.03 %.
    """
    for delta in deltas:
        epsilon = guarantee.epsilon_exact_noise(delta)
        assert of_epsilon(epsilon) <= delta * (1 + 3e-4)
        assert of_epsilon(tight * epsilon) > delta


# Two rounds in one dimension.


@both
@pytest.mark.parametrize("affected", [1, 2])
def test_exact_divergence_of_gaussian_noise(neighbours, affected):
    """A sum of one round moves, or both: by 2 C or C."""
    mechanism = calibrated("gaussian", neighbours, affected_sums=affected, is_cumulative=affected == 2)
    sigma, shift = mechanism.sigma, 3.0 * RELATIONS[neighbours]
    p, q = (densities([1.0], [mean], sigma, 9 * sigma + 6) for mean in (0.0, shift))
    second = q if affected == 2 else p
    check(
        mechanism.guarantee(),
        lambda epsilon: divergence(np.multiply.outer(p, p), np.multiply.outer(q, second), epsilon),
    )


@both
@pytest.mark.parametrize("is_cumulative", [False, True])
def test_exact_divergence_of_correlated_noise(neighbours, is_cumulative):
    """The strategy undoes the correlation, after which the noise of both rounds is independent."""
    mechanism = calibrated(
        "correlated", neighbours, is_cumulative=is_cumulative, affected_sums=1 + is_cumulative,
        mechanism_options=CorrelatedOptions(noise_correlation=0.5),
    )  # fmt: skip
    sigma, shift = mechanism.sigma, 3.0 * RELATIONS[neighbours]
    moves = np.array([[shift], [shift if is_cumulative else 0.0]])
    first, second = mechanism.correlation.apply_strategy(moves)[:, 0]
    assert second != 0
    at = [densities([1.0], [mean], sigma, 9 * sigma + 9) for mean in (0.0, first, second)]
    p, q = np.multiply.outer(at[0], at[0]), np.multiply.outer(at[1], at[2])
    check(mechanism.guarantee(), lambda epsilon: divergence(p, q, epsilon))


@both
def test_exact_divergence_of_binomial_noise(neighbours):
    """Counts of coins, enumerated, in two rounds that a sample affects."""
    mechanism = calibrated("binomial", neighbours, affected_sums=2)
    coins, shift = mechanism.fair_bits, math.floor(3.0 * RELATIONS[neighbours] / mechanism.grid_spacing)
    middle, reach = coins // 2, round(4 * math.sqrt(coins))
    p, q = (binom.pmf(np.arange(middle - reach, middle + reach + 1) - k, coins, 0.5) for k in (0, shift))
    # Of equal ratios in each round, sums of counts are sufficient; counts in between are left out.
    loss = np.log(p / q)
    bins = np.round(loss / 1e-3).astype(int)
    mass = np.bincount(bins - bins.min(), p)
    total, origin = np.convolve(mass, mass), 2 * bins.min()
    losses = (np.arange(total.size) + origin) * 1e-3

    def at(epsilon):
        return np.sum(total * np.maximum(-np.expm1(epsilon - losses), 0))

    check(mechanism.guarantee(), lambda epsilon: at(epsilon) - 2e-6, tight=0.97)


@both
def test_exact_divergence_of_poisson_batches(neighbours):
    """Half of ten samples are drawn; others contribute nothing, which is the worst that they can."""
    mechanism = calibrated("poisson", neighbours, subsampling="poisson", batch_size=3.0)
    sigma, other = mechanism.sigma, 0.0 if neighbours == "zero-out" else -3.0
    p, q = (densities([0.7, 0.3], [0.0, mean], sigma, 9 * sigma + 3) for mean in (3.0, other))
    check(
        mechanism.guarantee(),
        lambda epsilon: max(of_two_rounds(p, q, epsilon), of_two_rounds(q, p, epsilon)),
        tight=0.96,
    )


@both
@pytest.mark.parametrize(("samples", "drawn"), [(10, 1), (10, 4), (3, 2)])
def test_exact_divergence_of_draws_with_replacement(neighbours, samples, drawn):
    """Terms of all other samples are in [-C, C]: the worst are at an end, and not 0."""
    mechanism = calibrated(
        "replacement-exact", neighbours, subsampling="replacement", samples=samples, batch_size=float(drawn)
    )
    sigma, j = mechanism.sigma, np.arange(drawn + 1)
    weights, other = binom.pmf(j, drawn, 1 / samples), 0.0 if neighbours == "zero-out" else -3.0

    def worst(epsilon, rests=(-3.0, -1.0, 0.0, 3.0)):
        found = []
        for rest in rests:
            p, q = (
                densities(weights, j * term + (drawn - j) * rest, sigma, 9 * sigma + 3 * drawn)
                for term in (3.0, other)
            )
            found += [of_two_rounds(p, q, epsilon), of_two_rounds(q, p, epsilon)]
        return max(found)

    check(mechanism.guarantee(), worst, tight=0.6)
    if (samples, drawn, neighbours) == (10, 1, "zero-out"):
        # Were others assumed to contribute nothing, too little noise would seem to suffice.
        epsilon = mechanism.guarantee().epsilon_exact_noise(1e-3)
        assert worst(0.8 * epsilon, [0.0]) < 1e-3 < worst(0.8 * epsilon)


# One round of draws with replacement.

EPSILONS = np.array([0.0, 0.003, 0.05, 0.3, 1.0, 2.5])


@both
@pytest.mark.parametrize("multiplier", [1e3, 1e6, 1e9])
def test_one_draw_with_much_noise(neighbours, multiplier):
    """At epsilon = 0 it is the total variation: a shift s has erf(s / sqrt(8)) of it, in one of ten draws."""
    bound = hockey_stick(np.array([0.0]), multiplier, 10, 1, neighbours)[0]
    exact = math.erf(RELATIONS[neighbours] / multiplier / math.sqrt(8)) / 10
    assert bound == pytest.approx(exact, rel=1e-5)


def test_hardly_any_noise_has_no_finite_epsilon():
    """Of ten samples, 2.8 % are drawn more than once in three draws: 40 or more deviations apart."""
    assert hockey_stick(np.array([700.0]), 0.1, 10, 3)[0] > 0.0277


@pytest.mark.parametrize(("samples", "drawn"), [(1, 1), (2, 1), (6, 4), (50, 1), (50, 8), (3, 3), (1, 4)])
@pytest.mark.parametrize("sigma", [0.5, 0.8, 3.0])
def test_no_zeroed_sample_is_told_from_a_contribution_better_in_one_round(samples, drawn, sigma):
    bound = hockey_stick(EPSILONS, sigma, samples, drawn, "zero-out")
    j, rng, reached = np.arange(drawn + 1), np.random.default_rng(1), np.zeros(len(EPSILONS))
    weights = binom.pmf(j, drawn, 1 / samples)
    for own, rest in [(1, 0), (1, 1), (1, -1), *rng.uniform(-1, 1, (30, 2))]:
        p, q = (
            densities(weights, j * term + (drawn - j) * rest, sigma, drawn + 9 * sigma) for term in (own, 0)
        )
        found = [[divergence(a, b, epsilon) for epsilon in EPSILONS] for a, b in ((p, q), (q, p))]
        reached = np.maximum(reached, np.max(found, axis=0))
    assert np.all(reached <= bound * (1 + 3e-4) + 1e-10)
    if samples > 1:
        assert np.all(reached[:4] >= 0.4 * bound[:4])
    assert np.all(bound <= hockey_stick(EPSILONS, sigma, samples, drawn) + 1e-12)


def test_one_draw_of_a_zeroed_sample_reaches_the_bound():
    bound = hockey_stick(EPSILONS, 1.5, 50, 1, "zero-out")
    p, q = (densities([0.98, 0.02], [-1, mean], 1.5, 15.0) for mean in (1, 0))
    reached = [divergence(p, q, epsilon) for epsilon in EPSILONS]
    # At the smallest epsilons both constraints of the proof cannot be active at once.
    np.testing.assert_allclose(reached[3:], bound[3:], rtol=1e-3)


# Against other accountants.


@both
@given(st.floats(0.05, 5), st.integers(1, 50), st.floats(0.1, 10), st.floats(1e-8, 1e-2), max_examples=25)
def test_gaussian_accounts_are_those_of_dp_accounting(neighbours, rho, affected, C, delta):
    mechanism = calibrated(
        "gaussian", neighbours, rho=rho, clip_norm=C, max_gradient_norm=C, affected_sums=affected,
        rounds=affected, is_cumulative=True,
    )  # fmt: skip
    multiplier = mechanism.sigma / (C * RELATIONS[neighbours])
    event = SelfComposedDpEvent(GaussianDpEvent(multiplier), affected)
    epsilon = mechanism.guarantee().epsilon_exact_noise(delta)
    pld = PLDAccountant(value_discretization_interval=1e-4).compose(event).get_epsilon(delta)
    assert epsilon <= pld * (1 + 1e-9) + 1e-6
    assert epsilon == pytest.approx(pld, rel=0.01, abs=2e-3)
    assert epsilon <= RdpAccountant().compose(event).get_epsilon(delta) * (1 + 1e-9)


@both
@pytest.mark.parametrize(
    ("samples", "batch", "rounds", "epsilon", "delta"),
    [
        (1000, 20.0, 300, 1.0, 1e-5),
        (100, 30.0, 40, 4.0, 1e-6),
        (50, 50.0, 5, 0.5, 1e-4),
        (9, 1.0, 1, 2, 1e-3),
    ],
)
def test_poisson_accounts_are_those_of_dp_accounting(neighbours, samples, batch, rounds, epsilon, delta):
    mechanism = calibrated(
        "poisson", neighbours, subsampling="poisson", epsilon=epsilon, delta=delta, samples=samples,
        batch_size=batch, rounds=rounds,
    )  # fmt: skip
    event = PoissonSampledDpEvent(batch / samples, GaussianDpEvent(mechanism.sigma / 3.0))
    accountant = PLDAccountant(DP_ACCOUNTING[neighbours]).compose(event, rounds)
    claimed = mechanism.guarantee().epsilon_exact_noise(delta)
    assert claimed == pytest.approx(accountant.get_epsilon(delta), rel=0.01)
    assert 0.98 * epsilon < claimed <= epsilon
    if neighbours == "zero-out":
        rdp = RdpAccountant(neighboring_relation=DP_ACCOUNTING[neighbours]).compose(event, rounds)
        assert claimed <= rdp.get_epsilon(delta)


# Statements.

MADE = {
    "gaussian": {"affected_sums": 2, "is_cumulative": True},
    "correlated": {"mechanism_options": CorrelatedOptions()},
    "binomial": {},
    "poisson": {"subsampling": "poisson", "batch_size": 3.0},
    "replacement-exact": {"subsampling": "replacement"},
}


@both
@pytest.mark.parametrize("name", MADE)
def test_a_statement_has_both_epsilons_of_its_noise(neighbours, name):
    mechanism = calibrated(name, neighbours, delta=1e-5, **MADE[name])
    server = "shuffled" if name == "binomial" else "trusted"
    made = PrivacyStatement.of(mechanism, 1e-5, server=server, S=3.0)
    assert made.mismatches() == []
    stated = made.file_attributes()
    assert stated["neighbours"] == neighbours
    assert stated[f"epsilon_{neighbours.replace('-', '_')}"] == made.epsilon_exact
    assert made.epsilon_zero_out < made.epsilon_replace <= 3 * made.epsilon_zero_out
    if (rho := mechanism.stated_rho) is not None:
        # As if the noise had been calibrated for the other relation from the start
        other = next(relation for relation in RELATIONS if relation != neighbours)
        own = rho * RELATIONS[other] / RELATIONS[neighbours]
        found = mechanism.with_neighbours(other)
        expected = calibrated(name, other, rho=own, delta=1e-5, **MADE[name])
        assert found.sigma == pytest.approx(expected.sigma, rel=1e-3)
        assert found.guarantee().rho == pytest.approx(own, rel=1e-3)
    for attribute in ("epsilon_replace", "epsilon_zero_out"):
        wrong = PrivacyStatement.from_attributes({**stated, attribute: 0.99 * stated[attribute]})
        assert attribute in "".join(wrong.mismatches())
    for relation in (*RELATIONS, "add-or-remove"):
        claimed = PrivacyStatement.from_attributes({**stated, "neighbours": relation})
        assert (claimed.mismatches() == []) == (relation == neighbours)


def test_files_without_a_relation_are_of_replaced_samples():
    stated = PrivacyStatement.of(calibrated("gaussian", "replace"), 1e-3, server="trusted", S=3.0)
    names = {"neighbours", *stated.comparisons}
    older = {name: v for name, v in stated.file_attributes().items() if name not in names}
    read = PrivacyStatement.from_attributes(older)
    assert read.neighbours == "replace"
    assert read.comparisons == {}
    assert read.mismatches() == []


def test_the_noise_of_the_closed_form_is_known_no_more():
    stated = PrivacyStatement.of(calibrated("gaussian", "replace"), 1e-3, server="trusted", S=3.0)
    with pytest.raises(InputError, match="replacement-exact"):
        PrivacyStatement.from_attributes({**stated.file_attributes(), "mechanism": "replacement"})


@both
@given(st.integers(1, 4), st.integers(1, 3))
def test_persons_have_the_groups_of_their_relation(neighbours, samples, machines):
    """k samples of one machine, of which each moves its own sum; and machines that share noise."""
    mechanism = calibrated("gaussian", neighbours, rounds=9)
    moved = RELATIONS[neighbours] * 3.0
    one = mechanism.group_guarantee(samples, True)
    assert one.rho == pytest.approx(math.sqrt(samples) * moved / mechanism.sigma)
    held = [PersonSamples(mechanism, samples)] * machines
    guarantee = person_guarantee(held, machines, True, False, 1e-5)
    assert guarantee.rho == pytest.approx(machines * samples * moved / mechanism.sigma)
    assert replace(mechanism, neighbours="replace").sensitivity == 6.0
