"""The noise of machines that are not always there: against single draws, and plain numpy."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.noise import standard_normal
from helpers.property_tests import given
from helpers.unequal_machines import federation_of
from hypothesis import strategies as st

from mu2mpi.federation import participants
from mu2mpi.federation.participants import RoundParticipants, RunParticipation
from mu2mpi.federation.participation.all import FullParticipation
from mu2mpi.federation.participation.bernoulli import BernoulliParticipation
from mu2mpi.federation.participation.uniform import UniformParticipation
from mu2mpi.privacy.noise import noise_source
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.noise_source import CorrelatedNoiseSource, PerMachineNoiseSource
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK_WORDS,
    MACHINE_STREAM,
    add_noise,
    add_signed_noise,
    key_to_uint32,
    root_key,
)
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD

KEY = key_to_uint32(root_key(77))
SIZE = 2 * CHUNK_WORDS
FIRST = 3
"""The number of the first machine that is hosted."""

scales = st.floats(0.5, DITHER_THRESHOLD) | st.sampled_from([0.0, DITHER_THRESHOLD * 1.5, 2.0**40, 2.0**48])


def rounded(machine, number, scale, dither_threshold=DITHER_THRESHOLD):
    """Return one draw of a machine as a message gets it, by the kernel of a run with everybody there."""
    if scale > dither_threshold:
        noised = np.zeros(SIZE, np.int64)
        add_signed_noise(noised, KEY, *map(np.array, ([machine], [number], [scale], [dither_threshold])), 1)
        return noised
    return np.rint(scale * standard_normal(KEY, MACHINE_STREAM, machine, number, SIZE)).astype(np.int64)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 2**32 - 1), scales), max_size=4), max_examples=30
)
def test_draws_are_added_and_taken_away_to_the_bit(draws):
    """The same as of a run with everybody there, where the number is that of the round."""
    start = np.arange(SIZE) * 10**6
    noise, expected = start.copy(), start.copy()
    machines, numbers, units = (np.array([draw[k] for draw in draws]) for k in range(3))
    columns = machines.astype(np.int64), numbers.astype(np.int64), units.astype(float)
    add_signed_noise(noise, KEY, *columns, np.full(len(draws), DITHER_THRESHOLD), 1)
    for machine, number, scale in draws:
        add_noise(expected, expected.copy(), KEY, MACHINE_STREAM, machine, 1, number, scale)
    np.testing.assert_array_equal(noise, expected)
    if np.all(units <= DITHER_THRESHOLD):
        plain = sum(rounded(*draw) for draw in draws)
        # A fused product and sum may round a tie the other way.
        assert np.abs(noise - start - plain).max() <= len(draws)
    add_signed_noise(noise, KEY, *columns, np.full(len(draws), DITHER_THRESHOLD), -1)
    np.testing.assert_array_equal(noise, start)


def test_a_draw_is_spread_beyond_what_is_said_of_its_machine():
    """Each of both by its own limit, in one call."""
    columns = np.array([4, 4]), np.array([9, 9]), np.array([2.0**20, 2.0**20])
    noise = np.zeros(SIZE, np.int64)
    add_signed_noise(noise, KEY, *columns, np.array([2.0**19, 2.0**20]), 1)
    plain = np.rint(2.0**20 * standard_normal(KEY, MACHINE_STREAM, 4, 9, SIZE)).astype(np.int64)
    spread = noise - 2 * plain
    assert 0 < np.abs(spread).max() < 2.0**20
    assert len(np.unique(spread)) > SIZE / 2


class Sums:
    """What all messages of each hosted machine add up to, in plain numpy: one draw, the last of each."""

    def __init__(self, present, units, dither_threshold=DITHER_THRESHOLD):
        self.present, self.units, self.dither_threshold = present, units, dither_threshold

    def noise(self, t, is_cumulative):
        total = np.zeros(SIZE, np.int64)
        for i, unit in enumerate(self.units):
            k = self.present[:t, i].sum()
            if k and (is_cumulative or self.present[t - 1, i]):
                total += rounded(FIRST + i, k, unit, self.dither_threshold)
        return total


def member_draws(participation, rounds, units, is_cumulative, dither_threshold=DITHER_THRESHOLD):
    roll = RoundParticipants(RunParticipation(participation, rounds), range(FIRST, FIRST + len(units)))
    return PerMachineNoiseSource(
        KEY, FIRST, units, np.full(len(units), dither_threshold), SIZE, roll, is_cumulative
    )


def sent(draw, rounds):
    """Return the noise of messages in some rounds."""
    noised, message = np.empty(SIZE, np.int64), np.arange(SIZE) * 10**9
    found = []
    for t in rounds:
        draw(noised, message, t)
        found.append(noised - message)
    return np.array(found)


participations = st.sampled_from(
    [
        UniformParticipation("4", federation_of(9, 5)),
        BernoulliParticipation("0.3", federation_of(9, 6)),
        UniformParticipation("9", federation_of(9, 7)),
        FullParticipation("", federation_of(9, 0)),
    ]
)


@pytest.mark.parametrize("is_cumulative", [True, False])
@given(participations, st.lists(st.floats(2, 1e6), min_size=1, max_size=5), st.data(), max_examples=15)
def test_of_each_machine_the_server_holds_one_draw(is_cumulative, participation, units, data):
    """That of the k-th time that it was there; and a run that goes on, anywhere, sends the same again."""
    rounds, units = 14, np.array(units)
    present = participation.participation_matrix(range(1, rounds + 1), rounds)[:, FIRST : FIRST + len(units)]
    expected = Sums(present, units)
    noise = sent(member_draws(participation, rounds, units, is_cumulative), range(1, rounds + 1))
    for t in range(1, rounds + 1):
        # A fused product and sum may round a tie the other way.
        assert np.abs(noise[t - 1] - expected.noise(t, is_cumulative)).max() <= len(units)
    again = data.draw(st.lists(st.integers(1, rounds), min_size=1, max_size=6))
    np.testing.assert_array_equal(
        sent(member_draws(participation, rounds, units, is_cumulative), again), noise[np.array(again) - 1]
    )


@pytest.mark.parametrize(
    "correlation",
    [Correlation(0.75, 4, 9, True, False), Correlation(0.5, 3, 9, False, True)],
    ids=["gradients", "sums"],
)
@pytest.mark.parametrize("units", [(900.0, 40.0, 5e6), (2.0**42, 2.0**30, 7.0)])
def test_correlated_noise_is_that_of_each_machines_own_rounds(correlation, units):
    """The strategy times the noise of a machine's own messages gives its fresh draws, and none is skipped."""
    participation, rounds, units = BernoulliParticipation("0.4", federation_of(7, 11)), 9, np.array(units)
    attendance, hosted_machines = RunParticipation(participation, rounds), range(FIRST, FIRST + 3)
    present = attendance.participation_matrix(range(1, attendance.rounds + 1), hosted_machines)
    assert not present.all()

    def draws(machines=hosted_machines):
        of = units[machines.start - FIRST : machines.stop - FIRST]
        whose = KEY, MACHINE_STREAM, machines.start, of, np.full(len(of), DITHER_THRESHOLD), SIZE
        return CorrelatedNoiseSource(correlation, *whose, RoundParticipants(attendance, machines))

    noise = sent(draws(), range(1, attendance.rounds + 1))
    for start in (4, 9):
        np.testing.assert_array_equal(sent(draws(), range(start, rounds + 1)), noise[start - 1 :])
    # Of one machine alone, whose noise the others do not change.
    strategy = replace(correlation, is_cumulative=False)
    total = np.zeros_like(noise)
    for i in range(3):
        own = draws(range(FIRST + i, FIRST + i + 1))
        alone = sent(own, range(1, attendance.rounds + 1))
        total += alone
        there = np.flatnonzero(present[:, i])
        parts = np.diff(alone, axis=0, prepend=0) if correlation.is_cumulative else alone
        assert not parts[~present[:, i]].any()
        fresh = strategy.apply_strategy(parts[there].astype(float)[np.newaxis])[0]
        for k, found in enumerate(fresh, 1):
            drawn = units[i] * standard_normal(KEY, MACHINE_STREAM, FIRST + i, k, SIZE)
            if units[i] <= DITHER_THRESHOLD:
                # All roundings of earlier rounds cancel, and that of this one is at most a half.
                np.testing.assert_allclose(
                    found, drawn, atol=0.51 / correlation.column_norm(rounds), rtol=1e-9
                )
            else:
                assert np.abs(found - drawn).max() < units[i] * 2.0**-10
    np.testing.assert_array_equal(noise, total)


STRATEGIES = Correlation(0.75, 4, 21, True, False), Correlation(0.5, 3, 21, False, True)


def correlated(correlation, participation, monkeypatch, look_ahead):
    monkeypatch.setattr(noise_source, "LOOK_AHEAD_ROUNDS", look_ahead)
    units, hosted = np.array([900.0, 2.0**42, 7.0]), range(FIRST, FIRST + 3)
    run = RunParticipation(participation, correlation.rounds)
    roll = None if isinstance(participation, FullParticipation) else RoundParticipants(run, hosted)
    return CorrelatedNoiseSource(
        correlation, KEY, MACHINE_STREAM, FIRST, units, np.full(3, DITHER_THRESHOLD), SIZE, roll
    )


@pytest.mark.parametrize("correlation", STRATEGIES, ids=["gradients", "sums"])
@pytest.mark.parametrize(
    "participation",
    [FullParticipation("", federation_of(7, 0)), BernoulliParticipation("0.4", federation_of(7, 11))],
    ids=["all", "some"],
)
@pytest.mark.parametrize("rounds_per_chunk", [5, 1000])
def test_look_ahead_changes_no_bit(correlation, participation, rounds_per_chunk, monkeypatch):
    """The same as drawn round by round, also by a run that goes on in the middle of a look-ahead."""
    monkeypatch.setattr(participants, "rounds_per_chunk", lambda machines: rounds_per_chunk)
    rounds = range(1, correlation.rounds + 1)
    expected = sent(correlated(correlation, participation, monkeypatch, 1), rounds)
    assert expected.any(axis=0).all()
    for look_ahead in (3, 8, 64):
        source = correlated(correlation, participation, monkeypatch, look_ahead)
        np.testing.assert_array_equal(sent(source, rounds), expected)
        for start in (2, 8, 9, 14, correlation.rounds):
            resumed = correlated(correlation, participation, monkeypatch, look_ahead)
            np.testing.assert_array_equal(sent(resumed, rounds[start - 1 :]), expected[start - 1 :])
        with pytest.raises(ValueError, match="rounds must increase"):
            source(np.empty(SIZE, np.int64), np.zeros(SIZE, np.int64), correlation.rounds)


def test_look_ahead_ends_with_the_run_and_is_bounded(monkeypatch):
    """By the memory of the buffers, and by how many normals are drawn before signals are looked at again."""
    drawn, generate = [], noise_source.generate_correlated_noise

    def recorded(noise, *arguments):
        drawn.append(len(noise))
        generate(noise, *arguments)

    monkeypatch.setattr(noise_source, "generate_correlated_noise", recorded)

    def rounds_at_once(units, look_ahead_draws=2**26):
        drawn.clear()
        monkeypatch.setattr(noise_source, "LOOK_AHEAD_DRAWS", look_ahead_draws)
        arguments = KEY, MACHINE_STREAM, FIRST, units, np.full(len(units), DITHER_THRESHOLD), SIZE
        sent(CorrelatedNoiseSource(STRATEGIES[0], *arguments), range(1, STRATEGIES[0].rounds + 1))
        return drawn

    assert rounds_at_once(np.ones(3)) == [8, 8, 5]
    assert rounds_at_once(np.ones(1)) == [4, 4, 4, 4, 4, 1]
    assert rounds_at_once(np.ones(3), 7 * 3 * SIZE) == [7, 7, 7]
    assert rounds_at_once(np.ones(3), 1) == [1] * 21
