"""Strategies of correlated noise, and the noise that is drawn by them, against dense matrices."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.noise import standard_normal
from helpers.simulations import make_messages, simulation_of
from helpers.sources import random_source
from helpers.unequal_machines import federation_of
from hypothesis import given, settings, strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.participants import RoundParticipants, RunParticipation
from mu2mpi.federation.participation.trace import RecordedParticipation
from mu2mpi.privacy.accounting.guarantee import Budget
from mu2mpi.privacy.mechanisms.correlated_mechanism import (
    MAX_NOISE_BUFFERS,
    MAX_NOISE_CORRELATION,
    MIN_NOISE_BUFFERS,
    MIN_NOISE_CORRELATION,
    CorrelatedMechanism,
    CorrelatedOptions,
)
from mu2mpi.privacy.mechanisms.mechanism import per_machine_noise_source
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    key_to_uint32,
    padded_zeros,
)
from mu2mpi.privacy.statement import PrivacyStatement

KEY = key_to_uint32(bytes(range(32)))
POWERS, BUFFERS = (
    st.just(0.0) | st.floats(MIN_NOISE_CORRELATION, MAX_NOISE_CORRELATION),
    st.integers(MIN_NOISE_BUFFERS, MAX_NOISE_BUFFERS),
)


def dense(c):
    """Return the lower triangular Toeplitz matrix with these coefficients."""
    return sum(c[j] * np.eye(len(c), k=-j) for j in range(len(c)))


def dense_noise(correlation):
    """Return the matrix that makes the noise of messages of fresh normals, in their units."""
    T = correlation.rounds
    C = dense(correlation.coefficients())
    D = np.diag(np.linalg.norm(C, axis=0)) if correlation.normalizes_columns else np.eye(T)
    return (np.tril(np.ones((T, T))) if correlation.is_cumulative else np.eye(T)) @ D @ np.linalg.inv(C)


def mechanism_of(T, d, is_cumulative=False, rho=1.0, **own):
    names = {"power": "noise_correlation", "buffers": "noise_buffers"}
    options = CorrelatedOptions(**{names[name]: value for name, value in own.items()})
    released_sums = make_messages(1.0, 1.0, d, 2, T)
    released_sums = replace(
        released_sums,
        is_cumulative=is_cumulative,
        affected_sums=T if is_cumulative else 1,
        mechanism_options=options,
    )
    return CorrelatedMechanism.calibrate(Budget(rho, 4.0, 1e-5), released_sums)


@given(POWERS, BUFFERS, st.integers(1, 300), st.booleans())
@settings(max_examples=80, deadline=None)
def test_norms_are_those_of_the_dense_matrix_and_coefficients_fall(p, k, T, normalized):
    correlation = Correlation(p, k, T, normalized, is_cumulative=False)
    c = correlation.coefficients()
    if p:
        assert np.all(c > 0)
        assert np.all(np.diff(c) < 0)
    else:
        np.testing.assert_array_equal(dense(c), np.eye(T))
    norms = np.linalg.norm(dense(c), axis=0)
    found = [correlation.column_norm(t) for t in range(1, T + 1)]
    np.testing.assert_allclose(found, norms if normalized else np.ones(T), rtol=1e-9)
    strategy = dense(c) / found
    assert correlation.sensitivity == pytest.approx(np.linalg.norm(strategy, axis=0).max(), rel=1e-9)
    # A sample of the first round is the one of which rounds so far tell most.
    for first, last in {(1, T), (1, 1), (1, (T + 1) // 2), ((T + 1) // 2, T)}:
        columns = np.linalg.norm(strategy[:last], axis=0)
        assert correlation.sensitivity * correlation.sensitivity_fraction(first, last) == pytest.approx(
            columns[first - 1]
        )
        assert np.all(
            columns <= correlation.sensitivity * correlation.sensitivity_fraction(1, last) * (1 + 1e-9)
        )


@pytest.mark.parametrize("is_cumulative", [False, True])
@pytest.mark.parametrize(("p", "k"), [(0.0, 4), (0.5, 8), (0.8, 4)])
def test_strategies_undo_the_dense_matrix_and_give_the_std_of_its_sum(p, k, is_cumulative):
    correlation = Correlation(p, k, 40, not is_cumulative, is_cumulative)
    z = np.random.default_rng(1).standard_normal((40, 7))
    np.testing.assert_allclose(correlation.apply_strategy(dense_noise(correlation) @ z), z, atol=1e-11)
    D, C = np.diag([correlation.column_norm(t) for t in range(1, 41)]), dense(correlation.coefficients())
    assert correlation.total_noise_std() == pytest.approx(
        np.linalg.norm(np.ones(40) @ D @ np.linalg.inv(C)), rel=1e-9
    )


@pytest.mark.parametrize("is_cumulative", [False, True])
@pytest.mark.parametrize(("rho", "who", "machines"), [(1.0, MACHINE_STREAM, 3), (1e-6, SERVER_STREAM, 1)])
def test_noise_is_rounded_once_and_remembered_as_it_was_sent(is_cumulative, rho, who, machines):
    """With a small rho the grid is so fine that draws are spread: over less than a hundredth of them."""
    T, d = 12, 300
    mechanism = mechanism_of(T, d, is_cumulative, rho)
    correlation, s = mechanism.correlation, mechanism.sigma / mechanism.grid_spacing
    (flat, message), (flat_noised, noised) = padded_zeros((1, d)), padded_zeros((1, d))
    message[...] = 1000
    draw = mechanism.noise_source(KEY, (who, 5, machines), 1.0, flat.size)
    c, norms = correlation.coefficients(), [correlation.column_norm(t) for t in range(1, T + 1)]
    sent, sums = np.zeros((machines, T, d)), np.zeros(d)
    for t in range(1, T + 1):
        draw(flat_noised, flat, t)
        for i in range(machines):
            z = standard_normal(KEY, who, 5 + i, t, d)
            past = sum(c[t - k] * sent[i, k - 1] / norms[k - 1] for k in range(1, t))
            sent[i, t - 1] = np.rint(norms[t - 1] * (s * z - past))
        sums = sums * is_cumulative + sent[:, t - 1].sum(axis=0)
        difference = noised.ravel() - 1000 - sums
        if s < 2**21:
            assert np.abs(difference).max() <= 2
            assert np.mean(difference != 0) < 0.01
        else:
            assert 0 < np.abs(difference).max() < 0.01 * s * norms[0] * T


@pytest.mark.parametrize(("is_cumulative", "power"), [(False, None), (True, None), (True, 0.0)])
def test_noise_has_the_covariance_of_the_dense_matrix(is_cumulative, power):
    T, d = 60, 20_000
    mechanism = mechanism_of(T, d, is_cumulative, power=power)
    (flat, _), (flat_noised, noised) = padded_zeros((1, d)), padded_zeros((1, d))
    draw, seen = mechanism.noise_source(KEY, (MACHINE_STREAM, 0, 1), 1.0, flat.size), []
    for t in range(1, T + 1):
        draw(flat_noised, flat, t)
        seen.append(noised.ravel() * (mechanism.grid_spacing / mechanism.sigma))
    found = np.array(seen) @ np.array(seen).T / d
    matrix = dense_noise(mechanism.correlation)
    expected = matrix @ matrix.T
    # The deviation of each entry; one of 3,600 passes five of them with a probability of 0.002.
    deviation = np.sqrt((expected**2 + np.outer(np.diag(expected), np.diag(expected))) / d)
    assert np.abs((found - expected) / deviation).max() < 5


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_a_run_that_goes_on_draws_the_same_noise(is_cumulative):
    mechanism = mechanism_of(9, 300, is_cumulative)
    (flat, _), (flat_noised, noised) = padded_zeros((1, 300)), padded_zeros((1, 300))

    def drawn(rounds):
        draw = mechanism.noise_source(KEY, (MACHINE_STREAM, 2, 3), 1.0, flat.size)
        return [(draw(flat_noised, flat, t), noised.copy())[1] for t in rounds]

    whole = drawn(range(1, 10))
    np.testing.assert_array_equal(drawn(range(6, 10)), whole[5:])
    with pytest.raises(ValueError, match="the noise of round 3 was drawn before"):
        drawn([4, 3])


@given(POWERS, BUFFERS, st.sampled_from([1, 2, 5, 40, 80]), st.booleans(), st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_what_is_calibrated_to_is_the_strategy_as_it_is(p, k, T, is_cumulative, rho):
    mechanism = mechanism_of(T, 10, is_cumulative, rho, power=p, buffers=k)
    columns = np.linalg.norm(
        dense(mechanism.correlation.coefficients())
        / [mechanism.correlation.column_norm(t) for t in range(1, T + 1)],
        axis=0,
    )
    assert mechanism.guarantee().rho == pytest.approx(rho, rel=1e-9)
    assert 0.9998 * rho < 2 * columns.max() / mechanism.sigma < rho
    assert mechanism.consistency_errors(1e-5) == []
    # Noise never passes what the grid has room for, and buffers what errors are counted for.
    largest = np.abs(dense_noise(mechanism.correlation)).sum(axis=1).max()
    assert largest <= mechanism._max_std_ratio
    impulse = np.linalg.inv(dense(mechanism.correlation.coefficients()))[:, 0]
    for decay in mechanism.correlation.decays:
        held = np.convolve(impulse, decay ** np.arange(T))[:T]
        assert np.linalg.norm(held) <= 4 * mechanism._noise_sum_std_growth


def test_errors_of_buffers_are_within_what_is_left_to_them():
    """The noise of a kernel's buffers differs from that of exact ones by less than is counted."""
    T, d = 400, 64
    mechanism = mechanism_of(T, d)
    correlation, rng = mechanism.correlation, np.random.default_rng(3)
    buffers = np.zeros((len(correlation.weights), d))
    exact = buffers.astype(np.longdouble)
    squares = 0.0
    for t in range(1, T + 1):
        y = np.rint(1e6 * rng.standard_normal(d) - correlation.weights @ buffers)
        shift = correlation.weights.astype(np.longdouble) @ exact - correlation.weights @ buffers
        squares += float(np.sum((shift / 1e6) ** 2))
        norm = correlation.column_norm(t)
        sent = np.rint(norm * y)
        buffers = correlation.decays[:, np.newaxis] * buffers + sent / norm
        exact = correlation.decays.astype(np.longdouble)[:, np.newaxis] * exact + sent / np.longdouble(norm)
    assert 0 < 2 * np.sqrt(squares) < mechanism._noise_roundoff_norm < 2.0**-14


@pytest.mark.parametrize("settings", [{"noise_correlation": 0.5}, {"method": "anytime-dp-mf"}])
def test_a_file_that_says_another_strategy_than_its_experiment_is_found_out(settings):
    """Also if its noise and all that it claims fit to that."""
    source = random_source(1, 90, 4, 3)
    result = simulation_of(Experiment(machines=3, rounds=30, seed=1, **settings), source).run()
    assert claim_contradictions(result) == []
    honest = result.privacy.mechanism
    for change in ({"is_cumulative": not honest.is_cumulative}, {"power": 0.6}, {"buffers": 5}):
        other = replace(honest, **change)
        sigma = honest.sigma / honest.correlation.sensitivity * other.correlation.sensitivity
        forged = PrivacyStatement.of(
            replace(other, sigma=sigma), 1e-5, server="untrusted", S=result.privacy.S, noise_recomputable=True
        )
        found = " ".join(claim_contradictions(replace(result, privacy=forged)))
        assert f"{next(iter(change))} is " in found


def test_noise_without_cancellation_is_the_sum_of_all_draws_of_who_was_there():
    """In integers, each draw rounded by itself; and the sum of all messages has the noise that eta is for."""
    T, d, machines, rng = 12, 300, 5, np.random.default_rng(2)
    mechanism = mechanism_of(T, d, is_cumulative=True, rho=2.0, power=0.0)
    assert mechanism.sigma == pytest.approx(2 * mechanism.clip_norm / 2.0, rel=1e-3)
    moved = mechanism.sigma * np.linalg.norm(np.ones(T) @ dense_noise(mechanism.correlation))
    assert mechanism.equivalent_independent_sigma * np.sqrt(T) == pytest.approx(moved, rel=1e-3)
    present = rng.random((T, machines)) < 0.4
    run = RunParticipation(RecordedParticipation("", federation_of(machines, 0, present)), T)
    register = RoundParticipants(run, range(machines))
    (flat, _), (flat_noised, noised) = padded_zeros((1, d)), padded_zeros((1, d))
    draw = per_machine_noise_source([mechanism], np.zeros(machines, int), KEY, 7, register, True, flat.size)
    scale, counts, total = mechanism.sigma / mechanism.grid_spacing, np.zeros(machines, int), np.zeros(d)
    for t in range(1, T + 1):
        draw(flat_noised, flat, t)
        for i in np.flatnonzero(present[t - 1]):
            counts[i] += 1
            total += np.rint(scale * standard_normal(KEY, MACHINE_STREAM, 7 + i, counts[i], d))
        np.testing.assert_array_equal(noised.ravel(), total)
