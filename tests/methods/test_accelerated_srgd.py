"""Accelerated SRGD against plain NumPy, steps of the proof of its bound, its rounds and its preset."""

import math

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.property_tests import given
from helpers.simulations import evaluated_problem, machines_on, make_schedule, simulation_of
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.partition import iid_rows
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.evaluation import ExactEvaluator
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.federation.iterates import Iterates
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)

NAME = "accelerated-srgd"
seeds = st.integers(0, 2**31)


def plain_rate(C, G, L, D, T, K, M, d, rho, trusted):
    """Return min(1 / (8 L), D / sqrt(8 V)) of docs/background/methods.md."""
    N = M if trusted else math.sqrt(M)
    noise = d * (2 * C * math.sqrt(T) / (rho * N * K)) ** 2
    V = G**2 / 2 + C**2 / (K * M) * (T + math.log(T) + 1) + noise * (2 * T + 2 * math.log(T) + 3)
    return min(1 / (8 * L), D / math.sqrt(8 * V))


def plain_run(z, labels, shape, D, eta, C, grid_spacing, noise, l2):
    """Return x_T and w_T, for samples z of shape (T, M, K, F) and the noise of the sum over machines."""
    T, M, K, _ = z.shape
    w, x, x_previous, q = np.zeros(shape), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for t in range(1, T):
        for i in range(M):
            for k in range(K):
                sample = z[t - 1, i, k], labels[t - 1, i, k]
                g, before = ref.gradient(x, *sample), ref.gradient(x_previous, *sample)
                q = q + ref.kept(t * g - (t - 1) * before, C, grid_spacing)
        step = eta * ((q + noise(t)) / (M * K) + t * l2 * x)
        w = ref.project(w - step, 0 * w, D / 2)
        ahead = ref.project(w - (t + 1) / t * step, 0 * w, D / 2)
        x_previous, x = x, ref.next_query(t, x, ahead)
    return x, w


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(
    st.tuples(st.integers(1, 4), st.integers(2, 9), st.integers(1, 5)),  # machines, rounds, batch
    st.sampled_from([0.5, 4.0, 1e6, math.inf]),
    st.sampled_from([0.1, 5.0]),
    st.sampled_from([None, 0.3]),
    st.sampled_from([0.0, 0.5]),
    seeds,
    max_examples=20,
)
def test_a_run_equals_the_method_in_plain_numpy(server, sizes, rho, diameter, clip_norm, l2, seed):
    M, T, K = sizes
    classes, F = 3, 5
    source = random_source(seed, M * T * K + 2, F - 1, classes, np.float32)
    experiment = Experiment(
        method=NAME, server=server, machines=M, rounds=T, batch=K, rho=rho, diameter=diameter,
        clip_norm=clip_norm, l2=l2 or None, seed=seed,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    constants, result = simulation.constants, simulation.run()
    rows = iid_rows(source.training_samples, M, T * K, derive_key(root_key(seed), "dealing"), range(M))
    samples = source.read_training(rows.reshape(T, K, M).transpose(0, 2, 1).ravel())
    z, labels = ref.add_bias(samples.features).reshape(T, M, K, F), samples.labels.reshape(T, M, K)
    key, trusted = (
        key_to_uint32(simulation.run_keys.noise_key(root_key(seed), result.experiment)),
        server == "trusted",
    )
    S, G, L = ref.increment_bound(F, diameter), ref.lipschitz(F), ref.smoothness(F)
    C = S if clip_norm is None else clip_norm
    sigma = ref.noise_scale(C, T, rho)
    eta = plain_rate(C, G, L + l2, diameter, T, K, M, classes * F, rho, trusted)

    def noise(t):
        if math.isinf(rho):
            return 0.0
        who = [(SERVER_STREAM, 0)] if trusted else [(MACHINE_STREAM, i) for i in range(M)]
        return sigma * sum(drawn_noise(constants, key, *one, t) for one in who)

    grid_spacing = constants.mechanism.grid_spacing
    x, w = plain_run(z, labels, (classes, F), diameter, eta, C, grid_spacing, noise, l2)
    # Numbers that lie in the middle of two multiples of the grid may go to either, and stay in all messages.
    rounded = 9 * T * eta * grid_spacing / (M * K)
    for found, expected in ((result.x, x), (result.w, w)):
        assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected) + rounded
    assert result.history.gradient_evaluations[-1] == 2 * M * T * K
    assert claim_contradictions(result) == []


# --------------------------------------------------------------------------- the bound, step by step


def schedule_for(rounds, diameter, rho=math.inf, batch=1, **settings):
    own = {"machines": 2, "classes": 3, "features": 4, "samples": rounds * batch, "options": {"batch": batch}}
    return make_schedule(NAME, rounds=rounds, diameter=diameter, rho=rho, **own, **settings)


def exact_of(population):
    return ExactEvaluator(population, Communicator(), evaluated_problem("softmax"))


@given(st.sampled_from([0.1, 20.0]), st.integers(2, 25), seeds, max_examples=25)
def test_regret_of_optimistic_steps(diameter, rounds, seed):
    """A_T (f(x_T) - f(u)) is at most what docs/background/methods.md says of any messages, for a known f."""
    exact, constants = exact_of(Population(3, 3, 0.7, 0.2, 0.0, 100, seed)), schedule_for(rounds, diameter)
    rng, iterates, eta = np.random.default_rng(seed), Iterates(constants), constants.eta
    unit = constants.mechanism.grid_spacing / constants.problem.machines
    u = rng.standard_normal(iterates.w.shape)
    u *= constants.problem.radius * rng.uniform() / np.linalg.norm(u)
    least, _ = exact.gradient(u)
    bound, before, hint, x_previous = np.sum(u**2) / (2 * eta), None, 0.0, iterates.x.copy()
    for t in range(1, rounds + 1):
        x = iterates.x.copy()
        loss, gradient = exact.gradient(x)
        ahead = (
            x_previous + (x - x_previous) * (t + 1) / 2
        )  # x_t = (1 - a) x_{t-1} + a v_t with a = 2 / (t + 1)
        error = rng.standard_normal(x.shape) * rng.choice([0.0, 1.0, t])
        total = np.rint((t * gradient + error) / unit).astype(np.int64)
        q = total * unit
        bound += eta / 2 * np.sum((q - hint) ** 2) - np.vdot(q - t * gradient, ahead - u)
        if before is not None:
            # How far f lies above its tangent at x_t, in x_{t-1}.
            above = before[0] - loss - np.vdot(gradient, x_previous - x)
            assert above >= np.sum((gradient - before[1]) ** 2) / (2 * constants.problem.L) - 1e-12
            bound -= t * (t - 1) / 2 * above
        assert t * (t + 1) / 2 * (loss - least) <= bound + 1e-9 * (1 + abs(bound))
        before, hint, x_previous = (loss, gradient), (t + 1) / t * q, x
        iterates.step(t, total)


@pytest.mark.parametrize(("batch", "rho"), [(3, 0.5), (3, math.inf)])
def test_hints_are_off_by_what_the_bound_says(batch, rho):
    """The sum of E ||q_t - h_t - t (f'(x_t) - f'(x_{t-1}))||^2, with much noise and with none.

    Means over 60 runs with a standard error of some percent. Noise comes close to what the bound allows, and
    samples differ by a part of what they may at most.
    """
    rounds, diameter = 15, 1.0
    population = Population(3, 3, 0.6, 0.8, 0.0, 100, 7)
    exact, constants = exact_of(population), schedule_for(rounds, diameter, rho, batch, server="untrusted")
    unit = constants.mechanism.grid_spacing / (constants.problem.machines * batch)
    found = 0.0
    for run in range(60):
        key = derive_key(bytes(32), str(run))
        machines, iterates = (
            machines_on(population, constants, key, key_to_uint32(key)),
            Iterates(constants),
        )
        hint, gradient_before = 0.0, 0.0
        for t in range(1, rounds + 1):
            machines.accumulate_increments(t, iterates.x, iterates.x_previous)
            total, gradient = machines.noised_message(t).copy(), exact.gradient(iterates.x)[1]
            # In the first round there is no hint: the gradient itself is in V.
            found += np.sum((total * unit - hint - t * gradient + t * gradient_before) ** 2) / 60
            hint, gradient_before = (t + 1) / t * total * unit, gradient
            iterates.step(t, total)
    C, M, d = constants.S, constants.problem.machines, constants.problem.d
    of_samples = C**2 / (batch * M) * (rounds + math.log(rounds) + 1)
    of_noise = d * rounds * (2 * C / (rho * math.sqrt(M) * batch)) ** 2
    bound = of_samples + of_noise * (2 * rounds + 2 * math.log(rounds) + 3)
    assert found <= bound
    assert found > (0.75 if math.isfinite(rho) else 0.02) * bound


# ------------------------------------------------------------------------------------- rounds and preset


def preset(n, **settings):
    source = random_source(1, n, 6, 4)
    return resolve_plan(
        Experiment(method=NAME, preset="practical", machines=4, **settings), source, 1
    ).experiment
