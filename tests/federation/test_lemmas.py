"""The lemmas behind the theorems, on the code that runs: increments, errors, queries, transcripts."""

import math

import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from helpers.simulations import evaluated_problem, machines_on, make_schedule
from helpers.slow import slow
from helpers.sources import one_a_round, probabilities_of
from hypothesis import strategies as st

from mu2mpi.core.parallel import Communicator
from mu2mpi.data.sources.population import SUPPORT_POINTS, Population
from mu2mpi.execution.evaluation import ExactEvaluator
from mu2mpi.federation.estimators import AVERAGED_ITERATE
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.machine import Machines
from mu2mpi.privacy.noise.noise_stream import derive_key, key_to_uint32

averaging_weight = AVERAGED_ITERATE.averaging_weight
seeds = st.integers(0, 2**32 - 1)
shapes = st.tuples(st.integers(2, 5), st.integers(2, 7))


def schedule_for(shape, machines=1, rounds=20, diameter=0.5, rho=math.inf, server="untrusted"):
    return make_schedule(
        server=server, machines=machines, rounds=rounds, classes=shape[0], features=shape[1],
        diameter=diameter, rho=rho,
    )  # fmt: skip


def thrown_about(rng, constants):
    """Return w_t and x_t of rounds 1 .. T, by the package's own steps, whatever is thrown at the server."""
    iterates, w, x = Iterates(constants), [], []
    radius_in_units = constants.problem.radius / (
        constants.eta * constants.mechanism.grid_spacing / constants.problem.machines
    )
    for t in range(1, constants.rounds + 1):
        w.append(iterates.w.copy())
        x.append(iterates.x.copy())
        # From one end of the ball to the other, or nearly nowhere.
        length = radius_in_units * rng.choice([1e-3, 0.3, 3.0, 1e3])
        direction = rng.standard_normal(iterates.w.shape)
        total = np.rint(length * direction / np.linalg.norm(direction)).astype(np.int64)
        iterates.step(t, total)
    return np.array(w), np.array(x)


# ------------------------------------------------------------------- Lemma 4.1: q is a sum of increments


@given(shapes, st.integers(1, 4), st.integers(1, 15), seeds)
def test_the_corrected_momentum_is_the_sum_of_increments(shape, machines, rounds, seed):
    """The kernel adds increments; the reference here follows d_t = g + (1 - b)(d - g~) and q_t = t d_t."""
    constants = schedule_for(shape, machines, rounds)
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (rounds, machines, shape[1] - 1))
    labels = rng.integers(0, shape[0], (rounds, machines)).astype(np.int32)
    _, x = thrown_about(rng, constants)
    mine = Machines(constants, range(machines), lambda t: one_a_round(features, labels), None)
    theirs = [ref.Machine(shape) for _ in range(machines)]
    z = ref.add_bias(features)
    for t in range(1, rounds + 1):
        queries = x[t - 1], x[max(0, t - 2)]
        mine.accumulate_increments(t, *queries)
        q = sum(m.estimate(t, *queries, z[t - 1, i], labels[t - 1, i]) for i, m in enumerate(theirs))
        found, atol = mine.message_sum * constants.mechanism.grid_spacing, 1e-9 * constants.S * machines
        np.testing.assert_allclose(found, q, rtol=0, atol=atol)


# --------------------------------------------------------------------------- Lemma 4.2: ||s_t|| <= S


@given(shapes, st.sampled_from([0.01, 1.0, 30.0]), st.integers(2, 500), st.booleans(), seeds)
def test_no_increment_passes_its_bound_whatever_the_adversary_does(shape, diameter, t, is_along, seed):
    """Corner samples, opposite ends of the ball, and every label: nothing is clipped."""
    constants = schedule_for(shape, 1, t, diameter)
    rng = np.random.default_rng(seed)
    z = np.append(rng.choice([-1.0, 1.0], shape[1] - 1), 1.0)
    direction = np.outer(rng.standard_normal(shape[0]), z) if is_along else rng.standard_normal(shape)
    end = constants.problem.radius * direction / np.linalg.norm(direction)
    for x_previous, w in ((-end, end), (end, -end), (0 * end, end)):
        x = (1 - averaging_weight(t)) * x_previous + averaging_weight(t) * w
        for label in range(shape[0]):
            samples = one_a_round(z[None, None, :-1], np.array([[label]], np.int32), t)
            machines = Machines(constants, range(1), lambda _, samples=samples: samples, None)
            machines.accumulate_increments(t, x, x_previous)
            assert machines.clipped_count == 0
            assert math.sqrt(machines.largest_squared_norm) <= constants.S


# ------------------------------------- the step in the proof of Lemma 4.2, and the anytime inequality


@given(shapes, st.sampled_from([1e-3, 0.5, 40.0]), st.integers(2, 60), seeds)
def test_consecutive_queries_are_close(shape, diameter, rounds, seed):
    """alpha_{t-1} ||x_t - x_{t-1}|| <= 2 D, along any path that the server can be made to take."""
    constants = schedule_for(shape, rounds=rounds, diameter=diameter)
    w, x = thrown_about(np.random.default_rng(seed), constants)
    steps = np.linalg.norm(np.diff(x, axis=0), axis=(1, 2))
    assert np.all(np.arange(1, rounds) * steps <= 2 * diameter * (1 + 1e-12))
    for points in (w, x):
        assert np.linalg.norm(points, axis=(1, 2)).max() <= constants.problem.radius * (1 + 1e-12)
    alpha = np.arange(1, rounds + 1)
    average = np.tensordot(alpha / alpha.sum(), w, axes=1)
    np.testing.assert_allclose(x[-1], average, rtol=0, atol=1e-12 * diameter)


@given(shapes, st.sampled_from([0.1, 20.0]), st.integers(1, 30), seeds, max_examples=40)
def test_anytime_inequality(shape, diameter, rounds, seed):
    """alpha_{1:t} (f(x_t) - f(x)) <= sum of alpha_tau <f'(x_tau), w_tau - x>, with f known exactly."""
    population = Population(shape[1] - 1, shape[0], 0.7, 0.2, 0.0, 100, seed)
    exact = ExactEvaluator(population, Communicator(), evaluated_problem("softmax"))
    constants = schedule_for(shape, rounds=rounds, diameter=diameter)
    rng = np.random.default_rng(seed)
    w, x = thrown_about(rng, constants)
    any_point = rng.standard_normal(shape)
    any_point *= constants.problem.radius * rng.uniform() / np.linalg.norm(any_point)
    for other in (any_point, -constants.problem.radius * any_point / np.linalg.norm(any_point), w[-1]):
        regret = 0.0
        at_other, _ = exact.gradient(other)
        for t in range(1, rounds + 1):
            loss, gradient = exact.gradient(x[t - 1])
            regret += t * np.vdot(gradient, w[t - 1] - other)
            assert t * (t + 1) / 2 * (loss - at_other) <= regret + 1e-10 * t * t


# ----------------------------------------------------------------- Lemma 4.3: the error of the estimates


def deviations(population, machine, machines, x, y):
    """Return sigma^2 at x, and sigma_L^2 between x and y, of one machine: exact sums over its points."""
    p = probabilities_of(population, machine, machines)
    z = np.c_[population.support, np.ones(SUPPORT_POINTS)]
    at_x, at_y = (np.array([ref.softmax(point, row) for row in z]) for point in (x, y))
    labels = np.eye(population.classes)
    residuals, changes = (r[:, None, :] - o for r, o in ((at_x, labels), (at_x - at_y, 0 * labels)))
    squared = np.sum(z**2, axis=1)
    found = []
    for r in (residuals, changes):
        mean = np.einsum("jl,jlk,jf->kf", p, r, z)
        second = np.einsum("jl,jlk,j->", p, r**2, squared)
        found.append(second - np.sum(mean**2))
    return found[0], found[1] / np.sum((x - y) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize(("diameter", "heterogeneity"), [(2.0, 0.8), *slow((1e-3, 0.0), (1e-3, 1.0))])
def test_errors_of_the_estimates_grow_no_faster_than_their_bound(diameter, heterogeneity):
    """E||eps_t||^2 <= s^2 t / M with s = sigma + 2 sigma_L D, and near equality where D is tiny.

    Means over 300 runs of ||eps_t||^2, of which the standard error is below 6 %: five of them allow for a
    false alarm in a million.
    """
    population = Population(3, 3, 0.6, 0.8, heterogeneity, 100, 7)
    shape, M, T = (3, 4), 2, 24
    constants = schedule_for(shape, M, T, diameter)
    exact = ExactEvaluator(population, Communicator(), evaluated_problem("softmax"))
    total = np.zeros(T)
    for run in range(300):
        machines = machines_on(population, constants, derive_key(bytes(32), str(run)))
        iterates = Iterates(constants)
        for t in range(1, T + 1):
            machines.accumulate_increments(t, iterates.x, iterates.x_previous)
            error = (
                machines.message_sum * (constants.mechanism.grid_spacing / M)
                - t * exact.gradient(iterates.x)[1]
            )
            total[t - 1] += np.sum(error**2)
            iterates.step(t, machines.message_sum)
    mean = total / 300
    rng = np.random.default_rng(0)
    points = [rng.standard_normal(shape) for _ in range(12)]
    points = [constants.problem.radius * p / np.linalg.norm(p) for p in points]
    pairs = list(zip(points, points[1:] + points[:1], strict=True))
    found = np.array([[deviations(population, i, M, *pair) for pair in pairs] for i in range(M)])
    sigma, sigma_l = np.sqrt(found.max(axis=1).mean(axis=0))
    t = np.arange(1, T + 1)
    assert np.all(mean <= 1.3 * (sigma + 2 * sigma_l * diameter) ** 2 * t / M)
    if diameter < 0.01:
        np.testing.assert_allclose(mean, sigma**2 * t / M, rtol=0.3)


# ------------------------------------------------------------------------- the privacy of transcripts


def transcripts(server, seed, rho=1.0, draw=0, clip_norm=None, tau=None):
    """Run one round after the other on two neighbouring data sets, along the queries of the first.

    Returns the summed squares of the differences in what is sent before noise, over the variance of the noise
    that protects a machine, and the privacy loss of what was drawn, if that were all the noise there is.
    With `tau` the label of that round's sample is replaced; without it, any sample by any other.
    """
    M, T = 3, 8
    constants = make_schedule(
        server=server, machines=M, rounds=T, classes=2, features=3, diameter=0.5, rho=rho, clip_norm=clip_norm
    )
    rng = np.random.default_rng(seed)
    features = rng.choice([-1.0, 1.0], (T, M, 2))
    labels = rng.integers(0, 2, (T, M)).astype(np.int32)
    other_features, other_labels = features.copy(), labels.copy()
    sign, i = rng.choice([-1.0, 1.0]), int(rng.integers(M))
    if tau is None:
        tau = int(rng.integers(T))
        other_features[tau, i] *= sign
    other_labels[tau, i] ^= 1
    key = key_to_uint32(derive_key(bytes(32), f"{seed} {draw}"))
    one, other, alone = (
        Machines(constants, range(count), lambda t, f=f, y=y: one_a_round(f, y), key)
        for count, f, y in ((M, features, labels), (M, other_features, other_labels), (1, features, labels))
    )
    iterates = Iterates(constants)
    squared, loss = 0.0, 0.0
    for t in range(1, T + 1):
        for machines in (one, other):
            machines.accumulate_increments(t, iterates.x, iterates.x_previous)
        difference = (one.message_sum - other.message_sum) * constants.mechanism.grid_spacing
        # One draw hides the sum from those that see what a trusted server sends, and, with an untrusted one,
        # a machine's own draw its part of the sum.
        alone.message_sum[:] = one.message_sum
        noise = (alone.noised_message(t) - one.message_sum) * constants.mechanism.grid_spacing
        squared += np.sum(difference**2) / constants.mechanism.sigma**2
        loss += (np.vdot(difference, noise) + np.sum(difference**2) / 2) / constants.mechanism.sigma**2
        iterates.step(t, alone.noised_message(t) if server == "trusted" else one.noised_message(t))
    return squared, loss


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(seeds, st.sampled_from([0.3, 1.0, 8.0]), st.sampled_from([None, 1.0]), max_examples=25)
def test_renyi_divergence_of_any_transcript(server, seed, rho, clip_norm):
    """Along any path, the sum of a Delta_t^2 / (2 sigma^2) is at most a rho^2 / 2.

    Given what was released before, the releases of a round are Gaussian for either data set: so that sum
    bounds the divergence of the whole transcript, adaptive as its queries are.
    """
    squared, _ = transcripts(server, seed, rho, clip_norm=clip_norm)
    assert 0 < squared <= rho**2 * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_privacy_loss_is_as_large_as_it_may_be(server):
    """Opposite clipped increments in round 1 reach rho: the loss has the moments of a Gaussian mechanism's.

    Mean rho^2 / 2, variance rho^2, and E exp((a - 1) loss) = exp((a - 1) a rho^2 / 2), here at a = 2, from
    1,500 transcripts at rho = 1, each allowed five standard errors.
    """
    n = 1500
    found = np.array([transcripts(server, 3, draw=draw, clip_norm=1.0, tau=0) for draw in range(n)])
    np.testing.assert_allclose(found[:, 0], 1.0, rtol=0.01)
    losses = found[:, 1]
    assert np.mean(losses) == pytest.approx(0.5, abs=5 / math.sqrt(n))
    assert np.var(losses) == pytest.approx(1.0, abs=5 * math.sqrt(2 / n))
    deviation = math.sqrt(math.exp(3) - math.exp(2))
    assert np.mean(np.exp(losses)) == pytest.approx(math.e, abs=5 * deviation / math.sqrt(n))
