"""Binomial noise: draws against exact probabilities, its account against exact divergences, and coins."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy import special, stats

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.binomial_mechanism import BinomialMechanism, unit_shift_rho
from mu2mpi.privacy.noise.binomial_sampler import (
    ACCEPTANCE_MARGIN,
    BLOCK_CHOICE_BITS,
    GUIDE_TABLE_BITS,
    MAX_FAIR_BITS,
    BinomialNoiseSource,
    accepts_proposal,
    log_pmf_ratio,
    proposal_table,
)
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK_WORDS,
    MACHINE_STREAM,
    SERVER_STREAM,
    key_to_uint32,
    root_key,
)
from mu2mpi.privacy.noise.sampler_error import MIN_FAIR_BITS, TRUNCATION_STDS
from mu2mpi.privacy.released_sums import ReleasedSums
from mu2mpi.privacy.statement import PrivacyStatement

KEY = key_to_uint32(root_key(21))


def drawn(fair_bits, d, who=(SERVER_STREAM, 0, 1), t=1, key=KEY, **options):
    """Return the noise of d coordinates."""
    message = np.zeros(-(-d // CHUNK_WORDS) * CHUNK_WORDS, np.int64)
    noised = np.full_like(message, -1)
    BinomialNoiseSource(key, who, fair_bits, d, **options)(noised, message, t)
    assert not noised[d:].any()
    return noised[:d]


# ------------------------------------------------------------------------------------------- draws


@pytest.mark.parametrize("fair_bits", [MIN_FAIR_BITS, 70_002, 2**20 + 2])
def test_draws_have_the_exact_probabilities(fair_bits):
    """Of fixed draws; other keys would fail with probability 1e-4."""
    number, n = 500_000, fair_bits // 2
    found = drawn(fair_bits, number) + n
    edges = np.arange(
        *stats.binom.ppf([1e-4, 1 - 1e-4], fair_bits, 0.5), max(1, math.isqrt(fair_bits) // 100)
    )
    expected = np.diff(stats.binom.cdf(np.r_[-1, edges, fair_bits], fair_bits, 0.5)) * number
    counts = np.bincount(np.searchsorted(edges, found), minlength=len(expected))
    assert len(expected) > 300
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("fair_bits", [2**30 + 6, 2**45 - 2, MAX_FAIR_BITS])
def test_draws_of_many_coins_are_nearly_normal(fair_bits):
    """Each check of fixed draws would fail with probability 1e-4 for other keys."""
    found = drawn(fair_bits, 200_000)
    z = found / (math.sqrt(fair_bits) / 2)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for power, (mean, variance) in {1: (0, 1), 2: (1, 2), 3: (0, 15), 4: (3, 96), 6: (15, 10170)}.items():
        assert abs(np.mean(z**power) - mean) < 3.9 * math.sqrt(variance / z.size)
    # Low bits too: within a block, places are uniform.
    assert stats.chisquare(np.bincount(found % 64, minlength=64)).pvalue > 1e-4


@pytest.mark.parametrize("fair_bits", [MIN_FAIR_BITS, 2**40])
def test_what_is_left_open_is_decided_as_it_would_have_been(fair_bits):
    """By 300 decimals, here of many proposals; what follows is then drawn from further words."""
    for t in range(1, 201):
        assert drawn(fair_bits, 1, t=t, margin=0.3) == drawn(fair_bits, 1, t=t)


def test_draws_are_those_of_machine_round_and_coordinate():
    together = drawn(2**18, 700, (MACHINE_STREAM, 3, 4), t=9)
    alone = [drawn(2**18, 700, (MACHINE_STREAM, machine, 1), t=9) for machine in range(3, 7)]
    np.testing.assert_array_equal(together, np.sum(alone, axis=0))
    np.testing.assert_array_equal(drawn(2**18, 100, (MACHINE_STREAM, 3, 1), t=9), alone[0][:100])
    others = [drawn(2**18, 700, (SERVER_STREAM, 3, 1), t=9), drawn(2**18, 700, (MACHINE_STREAM, 3, 1), t=10)]
    others.append(drawn(2**18, 700, (MACHINE_STREAM, 3, 1), t=9, key=key_to_uint32(root_key(22))))
    for a, b in zip([*alone, *others], [*others, *alone], strict=True):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.2


# ------------------------------------------------------------------------------- tables and decisions


def exact_log_ratio(n, x):
    """Return log p(x) / p(0) to 60 digits, at least."""
    with mpmath.workdps(100):
        n, x = mpmath.mpf(n), mpmath.mpf(x)
        return 2 * mpmath.loggamma(n + 1) - mpmath.loggamma(n + x + 1) - mpmath.loggamma(n - x + 1)


fair_bits = st.integers(MIN_FAIR_BITS.bit_length(), MAX_FAIR_BITS.bit_length() - 1).flatmap(
    lambda bits: st.integers(2 ** (bits - 2), 2 ** (bits - 1)).map(lambda half: 2 * half)
)
deviations = st.floats(0, TRUNCATION_STDS + 0.05) | st.floats(0, 3)


@given(fair_bits, deviations, max_examples=60)
def test_probabilities_are_far_closer_than_what_is_left_open(fair_bits, far):
    table = proposal_table(fair_bits)
    x = int(far * math.sqrt(table.n / 2))
    block = min(x >> table.block_bits, len(table.acceptance_factors) - 1)
    with mpmath.workdps(60):
        exact = mpmath.exp(exact_log_ratio(table.n, x)) * mpmath.mpf(table.acceptance_factors[block])
        ours = math.exp(log_pmf_ratio(float(table.n), float(x))) * table.acceptance_factors[block]
        assert abs(ours - exact) < ACCEPTANCE_MARGIN / 64
        assert exact <= 1


@given(fair_bits, deviations, st.integers(0, 10**6), max_examples=10)
def test_what_is_left_open_is_decided_by_the_exact_probability(fair_bits, far, part):
    table = proposal_table(fair_bits)
    block = min(int(far * math.sqrt(table.n / 2)) >> table.block_bits, len(table.acceptance_factors) - 1)
    x = (block << table.block_bits) + part % 2**table.block_bits
    share = int(table.cumulative_choices[block]) - (int(table.cumulative_choices[block - 1]) if block else 0)
    with mpmath.workdps(640):
        n, y = mpmath.mpf(table.n), mpmath.mpf(x)
        log = 2 * mpmath.loggamma(n + 1) - mpmath.loggamma(n + y + 1) - mpmath.loggamma(n - y + 1)
        p = mpmath.exp(log) * mpmath.mpf(table.normalizer) / share
        at = int(mpmath.floor(p * mpmath.mpf(2) ** 2000))
    # To 288 digits of a probability that is not next to nothing.
    least = at >> 960
    assert accepts_proposal(table, block, x, Fraction(at - least, 2**2000))
    assert accepts_proposal(table, block, -x, Fraction(at - least, 2**2000))
    assert not accepts_proposal(table, block, x, Fraction(at + least + 1, 2**2000))


@pytest.mark.parametrize("fair_bits", [MIN_FAIR_BITS, 70_002, 2**31 + 2, MAX_FAIR_BITS])
def test_a_table_covers_each_probability_up_to_the_farthest(fair_bits):
    table = proposal_table(fair_bits)
    ends = table.cumulative_choices.astype(object)
    shares = np.diff(ends, prepend=0)
    assert ends[-1] == 2**BLOCK_CHOICE_BITS
    assert shares.min() >= 1
    assert len(shares) << table.block_bits >= TRUNCATION_STDS * math.sqrt(fair_bits) / 2
    for g, first in enumerate(table.guide_table):
        number = g << (BLOCK_CHOICE_BITS - GUIDE_TABLE_BITS)
        assert ends[first] > number >= (ends[first - 1] if first else 0)
    for block, share in enumerate(shares):
        assert table.acceptance_factors[block] == table.normalizer / share
        # The first magnitude of a block is its most probable one.
        assert mpmath.exp(exact_log_ratio(table.n, block << table.block_bits)) * table.normalizer <= share
    # Few proposals are refused.
    mass = math.sqrt(math.pi * table.n) / 2 * table.normalizer / 2**table.block_bits / 2**BLOCK_CHOICE_BITS
    assert mass > 0.9


# ----------------------------------------------------------------------------------------- its account


def quantiles(fair_bits):
    """Return z_k = Phi^-1(F(k)) for k from -R to 0, of the binomial that is continued beyond R."""
    n = fair_bits // 2
    R = math.floor(TRUNCATION_STDS * math.sqrt(fair_bits) / 2)
    x = np.arange(-R, R + 1)
    log_p = -(special.gammaln(n + x + 1) + special.gammaln(n - x + 1))
    # Ratios of neighbours are exact where differences of such large numbers are not.
    log_p = np.r_[0.0, np.cumsum(np.log((n - x[:-1]) / (n + x[1:])))] + log_p[R] - log_p[R]
    last = np.log(((n + 1) ** 2 - float(R) ** 2) / (n**2 - float(R) ** 2))
    steps = log_p[1] - log_p[0] + last * np.arange(1, 40 * math.isqrt(fair_bits))
    tail = log_p[0] - np.cumsum(steps)
    start = np.logaddexp.reduce(tail)
    log_F = np.logaddexp.accumulate(np.r_[start, log_p])[1:]
    # By symmetry, F(0) = (1 + p(0)) / 2.
    log_all = np.logaddexp(log_F[R], log_F[R - 1])
    return special.ndtri_exp(log_F[: R + 1] - log_all)


@pytest.mark.parametrize("fair_bits", [MIN_FAIR_BITS, 2**19])
def test_no_shift_by_one_moves_a_quantile_farther_than_the_account_says(fair_bits):
    e, moved = unit_shift_rho(fair_bits), np.diff(quantiles(fair_bits))
    assert moved.max() <= e * (1 + 1e-11)
    # And hardly less far, as with as many coins one of a normal of this variance does.
    assert moved.max() > 0.98 * e
    assert e < 2 / math.sqrt(fair_bits) * 1.012


def probabilities(fair_bits, reach=12):
    """Return the probabilities of a centred binomial up to some deviations, and beyond none."""
    far = round(reach * math.sqrt(fair_bits) / 2)
    return stats.binom.pmf(np.arange(-far, far + 1) + fair_bits // 2, fair_bits, 0.5)


def shifted(p, a):
    """Return the same of what is larger by a, at the same places."""
    return np.r_[np.zeros(a), p[: p.size - a]] if a >= 0 else shifted(p[::-1], -a)[::-1]


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


EPSILONS = 0.0, 0.3, 1.0, 2.5


@pytest.mark.parametrize("shift", [1, 7, -60, 300])
def test_a_shift_is_as_private_as_that_of_a_normal(shift):
    p = probabilities(MIN_FAIR_BITS)
    rho = abs(shift) * unit_shift_rho(MIN_FAIR_BITS)
    for epsilon in EPSILONS:
        for a, b in ((p, shifted(p, shift)), (shifted(p, shift), p)):
            found, allowed = hockey_stick(a, b, epsilon), float(ref.gaussian_delta(epsilon, rho))
            assert found <= allowed + 1e-15
            # And hardly more private.
            assert found >= float(ref.gaussian_delta(epsilon, rho * 0.985)) - 1e-15


@pytest.mark.parametrize("shifts", [(40, 30), (-50, 4)])
def test_coordinates_and_rounds_add_up_as_those_of_normals(shifts):
    """Also where the second round is moved one way or the other, as the first one says."""
    p = probabilities(MIN_FAIR_BITS, reach=7)
    first, second = shifts
    rho = math.hypot(first, second) * unit_shift_rho(MIN_FAIR_BITS)
    moved, ways = shifted(p, first), (shifted(p, second), shifted(p, -second))
    places = np.arange(p.size) - p.size // 2
    for adaptive in (False, True):
        way = np.where(places % 3 == 0, 1, 0) if adaptive else np.zeros(p.size, int)
        joint = np.outer(p, p)
        other = moved[:, np.newaxis] * np.array(ways)[way]
        for epsilon in EPSILONS[:3]:
            allowed = float(ref.gaussian_delta(epsilon, rho))
            assert 0.9 * allowed < hockey_stick(joint, other, epsilon) + 1e-10 < allowed + 2e-10


# --------------------------------------------------------------------------------------------- coins


@st.composite
def asked(draw):
    """Draw what is to be hidden and a rho."""
    machines = draw(st.integers(1, 10**5))
    rounds = draw(st.integers(1, 10**6))
    messages = ReleasedSums(
        rounds=rounds,
        machines=machines,
        parameters=draw(st.integers(1, 10**7)),
        clip_norm=draw(st.floats(1e-6, 1e6) | st.just(1.0)),
        max_gradient_norm=1.0,
        affected_sums=draw(st.sampled_from([1, rounds])),
        increments_per_message=draw(st.sampled_from([1, rounds])),
        samples=rounds,
        batch_size=1.0,
        noise_shares=machines - draw(st.integers(0, machines - 1)),
    )
    return messages, draw(st.floats(-4, 4).map(lambda x: 10**x) | st.integers(-8, 6).map(lambda k: 2.0**k))


def made(messages, rho):
    return BinomialMechanism.calibrate(Budget(rho, 1.0, 1e-5), messages)


@given(asked(), max_examples=100)
def test_no_fewer_coins_would_do(what):
    messages, rho = what
    try:
        mechanism = made(messages, rho)
    except InputError as error:
        refused = str(error)
    else:
        check_coins(messages, rho, mechanism)
        return
    assert "so many machines" in refused or "do not fit" in refused


def check_coins(messages, rho, mechanism):
    moved = 2 * messages.clip_norm / mechanism.grid_spacing * math.sqrt(messages.affected_sums)
    fair_bits, parts = mechanism.fair_bits, messages.noise_shares
    assert fair_bits % 2 == 0
    assert moved * unit_shift_rho(parts * fair_bits) <= rho * (1 + 1e-12)
    assert moved * unit_shift_rho(parts * (fair_bits - 2)) > rho * (1 - 1e-12)
    # All that any server or machine draws has a table.
    assert MIN_FAIR_BITS <= parts * fair_bits <= messages.machines * fair_bits <= MAX_FAIR_BITS
    assert mechanism.guarantee().rho == pytest.approx(rho, rel=1e-9)
    statement = PrivacyStatement.of(mechanism, 1e-5, server="shuffled", S=messages.clip_norm)
    # A constants refuses a grid that leaves too little of the clipping norm.
    is_fine = mechanism.grid_spacing * math.sqrt(messages.parameters) <= messages.clip_norm
    assert (statement.mismatches() == []) == is_fine
    assert PrivacyStatement.from_attributes(statement.file_attributes()) == statement
    # Coins, and for a value as many ones and zeros as the largest has.
    largest = messages.increments_per_message * messages.clip_norm / mechanism.grid_spacing
    assert mechanism.messages_per_round == messages.parameters * (fair_bits + 2 * math.floor(largest))


MECHANISM = made(
    ReleasedSums(
        rounds=20, machines=10, parameters=40, clip_norm=1.5, max_gradient_norm=1.0, affected_sums=20,
        increments_per_message=20, samples=20, batch_size=1.0, noise_shares=9,
    ),
    0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fair_bits", MECHANISM.fair_bits + 2), ("fair_bits", 0), ("fair_bits", 2**60), ("noise_shares", 10),
        ("noise_shares", 0),
        ("sigma", MECHANISM.sigma * 1.001), ("rho", 0.4999), ("increments_per_message", 0),
    ],
)  # fmt: skip
def test_a_statement_with_another_number_is_found_out(name, value):
    statement = PrivacyStatement.of(MECHANISM, 1e-5, server="shuffled", S=1.5)
    assert PrivacyStatement.from_attributes({**statement.file_attributes(), name: value}).mismatches()


def test_noise_that_goes_with_fewer_coins_is_no_longer_enough():
    """Whoever changes coins and deviation alike is found by the rho that follows."""
    fair_bits = MECHANISM.fair_bits - 1000
    fewer = replace(
        MECHANISM, fair_bits=fair_bits, sigma=math.sqrt(9 * fair_bits) / 2 * MECHANISM.grid_spacing
    )
    assert fewer.consistency_errors(1e-5) == []
    assert fewer.guarantee().rho > 0.5 * (1 + 1e-9)
    few = replace(MECHANISM, fair_bits=100, sigma=math.sqrt(900) / 2 * MECHANISM.grid_spacing)
    assert few.consistency_errors(1e-5) == ["coins = 100 is too small for a known guarantee"]
    assert few.guarantee().rho == math.inf
