"""Who takes part when: counts against the dense matrix, whatever is looked at at once, and what is drawn."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.unequal_machines import federation_of
from hypothesis import strategies as st
from scipy import stats

from mu2mpi.core.errors import InputError
from mu2mpi.federation import participants as module
from mu2mpi.federation.participants import RoundParticipants, RunParticipation, max_fresh_rounds
from mu2mpi.federation.participation.all import FullParticipation
from mu2mpi.federation.participation.bernoulli import BernoulliParticipation
from mu2mpi.federation.participation.by_size import ProportionalParticipation
from mu2mpi.federation.participation.schedule import Federation
from mu2mpi.federation.participation.trace import RecordedParticipation
from mu2mpi.federation.participation.uniform import UniformParticipation
from mu2mpi.federation.unequal_machines import UnequalMachines

seeds = st.integers(0, 2**63 - 1)


@st.composite
def participations(draw):
    """Return a participation of any kind, with numbers of samples and of rounds that it can have."""
    machines, rounds, seed = draw(st.integers(1, 7)), draw(st.integers(1, 40)), draw(seeds)
    samples = np.array(draw(st.lists(st.integers(1, 12), min_size=machines, max_size=machines)))
    seen = np.random.default_rng(seed).random((rounds, machines)) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    federation = Federation(samples, tuple(map(str, range(machines))), seed)
    kinds = [
        FullParticipation("", federation),
        UniformParticipation(str(draw(st.integers(1, machines))), federation),
        BernoulliParticipation(draw(st.sampled_from(["1e-3", "0.3", "0.9", "1.0"])), federation),
        ProportionalParticipation("", federation),
        RecordedParticipation("", federation._replace(recorded_participation=seen)),
    ]
    return draw(st.sampled_from(kinds)), samples, rounds


def dense(participation, rounds, of=None):
    """Return who is there in the first rounds, each looked at by itself."""
    rows = [
        participation.participation_matrix(range(t, t + 1), of or rounds)[0] for t in range(1, rounds + 1)
    ]
    return np.array(rows).reshape(rounds, participation.machines)


def squared_gaps(column):
    """Return `squared_gaps` of one machine, round by round."""
    t = [*(np.flatnonzero(column) + 1), len(column) + 1]
    return sum((later - earlier) ** 2 for earlier, later in pairwise(t))


@given(participations(), st.sampled_from([1, 3, 10, 1 << 20]), st.data(), max_examples=60)
def test_counts_are_those_of_the_dense_matrix_however_they_are_looked_at(drawn, at_once, data):
    participation, _, rounds = drawn
    present = dense(participation, rounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MACHINE_ROUNDS_PER_CHUNK", at_once)
        attendance = RunParticipation(participation, rounds)
        np.testing.assert_array_equal(attendance.counts, present.sum(axis=0))
        np.testing.assert_array_equal(attendance.squared_gaps, [squared_gaps(column) for column in present.T])
        assert attendance.max_count == present.sum(axis=0).max()
        first = data.draw(st.integers(0, participation.machines))
        some = range(first, data.draw(st.integers(first, participation.machines)))
        np.testing.assert_array_equal(
            attendance.participation_matrix(range(1, attendance.rounds + 1), some), present[:, some]
        )
        roll = RoundParticipants(attendance, some)
        order = data.draw(st.permutations(range(1, rounds + 1)) | st.just(range(1, rounds + 1)))
        for t in order:
            np.testing.assert_array_equal(attendance.counts_until(t), present[:t].sum(axis=0))
            there, numbers = roll.participants(t)
            np.testing.assert_array_equal(there, np.flatnonzero(present[t - 1, some]))
            np.testing.assert_array_equal(numbers, present[:t, some].sum(axis=0)[there])
            np.testing.assert_array_equal(roll.counts_until(t - 1), present[: t - 1, some].sum(axis=0))
    assert np.all(attendance.counts_until(0) == 0)


@given(participations(), st.sampled_from([1, 5, 1 << 20]), max_examples=40)
def test_a_run_is_as_long_as_the_first_machine_without_samples_allows(drawn, at_once):
    participation, samples, _ = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MACHINE_ROUNDS_PER_CHUNK", at_once * participation.machines)
        if isinstance(participation, BernoulliParticipation) and participation.probability < 0.1:
            patch.setattr(module, "MAX_MACHINE_ROUNDS", 2000)
            with pytest.raises(InputError, match="machine-rounds"):
                max_fresh_rounds(participation, np.full_like(samples, 500))
            return
        longest = max_fresh_rounds(participation, samples)
    most = participation.max_rounds
    counts = np.cumsum(dense(participation, min(longest + 1, most), most), axis=0)
    assert np.all(counts[:longest] <= samples)
    assert longest == most or np.any(counts[longest] > samples)
    if isinstance(participation, ProportionalParticipation):
        assert longest == samples.max()
    if isinstance(participation, FullParticipation):
        assert longest == samples.min()


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), seeds, st.integers(1, 90))
def test_by_size_is_evenly_spread_and_uses_every_sample(sizes, seed, rounds):
    sizes = np.array(sizes)
    participation = ProportionalParticipation("", Federation(sizes, (), seed))
    present = dense(participation, rounds)
    attended = present.sum(axis=0)
    if rounds >= sizes.max():
        np.testing.assert_array_equal(attended, sizes)
    else:
        np.testing.assert_array_equal(attended, [-(-n * rounds // sizes.max()) for n in sizes.tolist()])
    assert present[:, sizes == sizes.max()].all() or rounds > sizes.max()
    until = np.vstack([np.zeros_like(sizes), np.cumsum(present, axis=0)])
    for width in range(1, rounds + 1):
        counts = until[width:] - until[:-width]
        assert np.abs(counts - width * attended / rounds).max() < 1


# Statistics of fixed draws: they pass or fail for good, and with other seeds correct ones would fail each
# with the probability stated there.


def test_of_uniform_any_machines_and_any_pairs_are_as_likely_as_others():
    """Counts of machines, of pairs, and of who is there in two rounds that follow each other: 1e-5 each."""
    rounds, M, m = 20_000, 7, 3
    present = (
        UniformParticipation(str(m), federation_of(M, 2024))
        .participation_matrix(range(1, rounds + 1), rounds)
        .astype(int)
    )
    share, pair = m / M, m * (m - 1) / (M * (M - 1))
    for i in range(M):
        assert stats.binomtest(present[:, i].sum(), rounds, share).pvalue > 1e-5
        assert stats.binomtest((present[1:, i] & present[:-1, i]).sum(), rounds - 1, share**2).pvalue > 1e-6
    for i, k in combinations(range(M), 2):
        assert stats.binomtest((present[:, i] & present[:, k]).sum(), rounds, pair).pvalue > 1e-5


@given(participations(), st.booleans())
def test_weighted_messages_estimate_the_objective_on_average(drawn, is_sample_weighted):
    """Also those of the few rounds in which some machine happens never to be drawn."""
    participation, samples, rounds = drawn
    attendance, unequal_machines = (
        RunParticipation(participation, rounds),
        UnequalMachines(participation, samples, is_sample_weighted),
    )
    if attendance.max_count == 0:
        with pytest.raises(InputError, match="No machine ever takes part"):
            unequal_machines.run_participation(rounds)
        return
    weights = unequal_machines.machine_weights(attendance)
    expected = participation.expected_participations(attendance.counts, rounds)
    wanted = np.where(expected > 0, samples if is_sample_weighted else 1.0, 0.0)
    found = weights * expected
    np.testing.assert_allclose(found * wanted.sum(), wanted * found.sum(), rtol=1e-12)
    assert weights.max() == 1
    if isinstance(participation, UniformParticipation | BernoulliParticipation):
        assert np.all(weights > 0)
