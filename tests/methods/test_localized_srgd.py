"""Localized SRGD against plain NumPy, steps of the proof of its bound, its account and its preset."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import reference as ref
from helpers.faults import few_messages, found, half_sigma, only
from helpers.noise import drawn_noise
from helpers.property_tests import given
from helpers.simulations import make_schedule, make_task, simulation_of
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.partition import iid_rows
from mu2mpi.data.sources.population import Population
from mu2mpi.execution import job
from mu2mpi.execution.plan import RunKeys, resolve_plan
from mu2mpi.federation.iterates import Iterates
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)
from mu2mpi.results.callbacks import Callback

NAME = "localized-srgd"
seeds = st.integers(0, 2**31)


def halves(n, phases):
    """Return first and last sample of each phase: shares 2^(k-1), ..., 2, 1 of n, ends rounded up."""
    shares = [2 ** (phases - 1 - i) for i in range(phases)]
    ends = [math.ceil(n * sum(shares[: i + 1]) / sum(shares)) for i in range(phases)]
    return list(zip([0, *ends], ends, strict=False))


def plain_lambda(C, D, n, M, d, rho, N, phases):
    """Return sqrt(8) H / D of docs/background/methods.md."""
    first = halves(n, phases)[0][1]
    tau = 2 * C * math.sqrt(d) / (rho * first * N)
    sampling = 2 * C**2 / (first * M) * sum(4.0**-i for i in range(phases))
    noise = 16 * tau**2 * sum(2.0**-i for i in range(phases - 1))
    return math.sqrt(8 * (sampling + noise + 2 * C * tau * 4.0 ** (1 - phases))) / D


def plain_run(gradient_sum, lam, eta, rounds, phases, shape, D, l2):
    """Return the output of phases of AC-SA as in the proof: minimisers of prox functions, and two averages.

    `gradient_sum(t, phase, x)` is the noised average gradient of round t.
    """
    centre, t = np.zeros(shape), 0
    for phase in range(phases):
        ends = [math.ceil(rounds * (phase + i) / phases) for i in (0, 1)]
        steps = ends[1] - ends[0] - (phase == phases - 1)
        w, output, beta = centre, centre, 1 / eta
        for s in range(1, steps + 1):
            t += 1
            alpha = 2 / (s + 1)
            x = (1 - alpha) * output + alpha * w
            g = gradient_sum(t, phase, x) + l2 * x
            mu = s * lam * 8.0**phase
            # argmin over the ball of s <g, w> + mu / 2 ||w - centre||^2 + beta / 2 ||w - w_previous||^2
            w = ref.project((beta * w + mu * centre - s * g) / (beta + mu), 0 * w, D / 2)
            beta += mu
            output = (1 - alpha) * output + alpha * w
        centre = output
    return centre


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(
    st.tuples(st.integers(1, 3), st.integers(7, 9), st.integers(1, 3), st.integers(3, 9)),
    st.sampled_from([1.0, 1e6, math.inf]),
    st.sampled_from([0.1, 5.0]),
    st.sampled_from([None, 0.3]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([None, 0.02]),
    seeds,
    max_examples=12,
)
def test_a_run_equals_the_method_in_plain_numpy(server, sizes, rho, diameter, clip_norm, l2, phase_l2, seed):
    M, n, phases, T = sizes
    classes, F = 3, 5
    source = random_source(seed, n * M, F - 1, classes, np.float32)
    experiment = Experiment(
        method=NAME, server=server, machines=M, rounds=T, phases=phases, phase_l2=phase_l2, rho=rho,
        diameter=diameter, clip_norm=clip_norm, l2=l2 or None, seed=seed, evaluations=T,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result, constants = simulation.run(), simulation.constants
    root = root_key(seed)
    rows = iid_rows(source.training_samples, M, n, derive_key(root, "dealing"), range(M)).T
    stored, key = (
        source.read_training(rows.ravel()),
        key_to_uint32(RunKeys.noise_key(root, result.experiment)),
    )
    z, labels = ref.add_bias(stored.features).reshape(M, n, F), stored.labels.reshape(M, n)
    C, N = min(ref.lipschitz(F), clip_norm or math.inf), M if server == "trusted" else math.sqrt(M)
    blocks, R = halves(n, phases), math.ceil(T / phases)
    sigma = 2 * C * math.sqrt(R) / rho
    who = [(SERVER_STREAM, 0)] if server == "trusted" else [(MACHINE_STREAM, i) for i in range(M)]
    lam = phase_l2 or plain_lambda(C, diameter, n, M, classes * F, rho, N, phases)
    assert (result.experiment.phases, result.experiment.phase_l2) == (phases, phase_l2)

    def gradient_sum(t, phase, x):
        start, end = blocks[phase]
        total = sum(
            ref.kept(ref.gradient(x, z[i, k], labels[i, k]), C, constants.mechanism.grid_spacing)
            for i in range(M)
            for k in range(start, end)
        )
        noise = sigma * sum(drawn_noise(constants, key, *one, t) for one in who) if rho < math.inf else 0.0
        return (total + noise) / (M * (end - start))

    eta = 1 / (2 * (ref.smoothness(F) + l2))
    x = plain_run(gradient_sum, lam, eta, T, phases, (classes, F), diameter, l2)
    assert np.linalg.norm(result.x - x) < 1e-6 * max(np.linalg.norm(x), 1e-6)
    assert claim_contradictions(result) == []
    t = result.history.round
    spent = rho * np.sqrt(np.minimum(t, R) / R) if rho < math.inf else np.full(len(t), math.inf)
    np.testing.assert_allclose(result.history.rho_spent, spent, rtol=1e-12)
    used = [M * (end - start) for start, end in (blocks[k * phases // T] for k in range(T))]
    np.testing.assert_array_equal(result.history.gradient_evaluations, np.cumsum(used)[t - 1])


# --------------------------------------------------------------------------- the bound, step by step


@given(st.integers(1, 3), st.integers(2, 12), st.sampled_from([0.01, 0.3, 5.0]), seeds, max_examples=30)
def test_steps_satisfy_the_inequality_of_the_proof(phases, steps, lam, seed):
    """Line 2 of the proof with arbitrary errors of gradients, for a parabola and any point of the ball."""
    rng, classes, F, D = np.random.default_rng(seed), 3, 4, 3.0
    T = phases * steps + 1 if phases == 1 else phases * steps
    constants = make_schedule(
        NAME, rounds=T, machines=2, classes=classes, features=F, samples=8, diameter=D, rho=math.inf,
        options={"phases": phases, "phase_l2": lam},
    )  # fmt: skip
    L, unit = constants.problem.L, constants.mechanism.grid_spacing
    root = rng.standard_normal((classes * F, classes * F))
    A = L * root @ root.T / np.linalg.norm(root @ root.T, 2)
    b = rng.standard_normal(classes * F)
    iterates, u = Iterates(constants), rng.standard_normal(classes * F)
    u *= D / 2 * rng.uniform() / np.linalg.norm(u)
    # In the first phase, which is about 0
    first = math.ceil(T / phases)
    bound, beta = L * np.sum(u**2), 2 * L
    for s in range(1, min(first, T - 1) + 1):
        x, w = iterates.x.ravel().copy(), iterates.w.ravel().copy()
        error = rng.standard_normal(classes * F) * rng.choice([0.0, 1.0])
        size = constants.problem.machines * constants.batching.batch_size(s)
        total = np.rint((A @ x - b + error) * size / unit).astype(np.int64)
        error = total * unit / size - (A @ x - b)
        iterates.step(s, total.reshape(classes, F))
        bound += -s * error @ (w - u) + s * s * error @ error / (2 * (beta - 2 * L * s / (s + 1)))
        beta += s * lam
    output = iterates.x.ravel()
    psi = lambda v: v @ A @ v / 2 - b @ v + lam / 2 * v @ v  # noqa: E731
    assert s * (s + 1) / 2 * (psi(output) - psi(u)) <= bound + 1e-6 * (1 + abs(bound))


def plain_bound(n, M, d, rho, N, G, L, D, phases, T, lam):
    """Return the recursion of docs/background/methods.md."""
    excess, error, R = 0.0, D**2 / 4, math.ceil(T / phases)
    for i, (start, end) in enumerate(halves(n, phases)):
        K, weight = end - start, lam * 8**i
        last = i == phases - 1
        r = math.ceil(T * (i + 1) / phases) - math.ceil(T * i / phases) - last
        gamma = 2 * G**2 / (weight * K * M)
        distance = min(
            (D / 2 if i == 0 else D) ** 2, (G / weight) ** 2, error + 2 * (excess + gamma) / weight
        )
        excess += gamma + weight * error / 2
        V = d * (2 * G * math.sqrt(R) / (rho * N * K)) ** 2
        noise = V * (1 / (2 * L) + (r + math.log(r)) / weight)
        error = min(D**2, 4 * (L * distance + noise) / (weight * r * (r + 1)))
    return excess + G * math.sqrt(error)


@pytest.mark.parametrize("heterogeneity", [0.0, 1.0])
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_bound_is_that_of_the_page_and_holds(server, heterogeneity):
    """At the phases of the least bound among all; the mean excess of ten runs is far below it."""
    M, n, F, classes, D, rho = 4, 64, 5, 3, 6.0, 2.0
    population = Population(F - 1, classes, 0.5, 0.3, heterogeneity, n * M, 1)
    settings = {"method": NAME, "data": "population", "features": F - 1, "machines": M, "rho": rho}
    settings |= {"diameter": D, "server": server, "evaluations": 1, "heterogeneity": heterogeneity}
    results = [simulation_of(Experiment(**settings, seed=seed), population).run() for seed in range(10)]
    G, L = ref.lipschitz(F), ref.smoothness(F)
    N = M if server == "trusted" else 2.0
    bounds = []
    for phases in range(1, 7):
        lam = plain_lambda(G, D, n, M, classes * F, rho, N, phases)
        T = phases * max(2, math.ceil(5 * math.sqrt(L / lam)))
        bounds.append((plain_bound(n, M, classes * F, rho, N, G, L, D, phases, T, lam), phases, T))
    chosen = results[0].experiment
    assert (results[0].theory.excess_loss_bound, chosen.phases, chosen.rounds) == pytest.approx(min(bounds))
    assert np.mean([result.theory.excess_loss for result in results]) < min(bounds)[0] / 2
    clipped = {"method": NAME, "machines": M, "clip_norm": 0.1}
    assert math.isnan(
        simulation_of(Experiment(**clipped), random_source(1, 60, 4, 3)).constants.excess_loss_bound
    )


# ------------------------------------------------------------------------------------ account and phases


@given(st.integers(1, 6), st.integers(0, 300), st.integers(0, 40), max_examples=60)
def test_phases_partition_the_samples_and_are_accounted_for(phases, extra, more_rounds):
    """No sample is in two phases; the mechanism's count after any round is the largest of any sample."""
    n, T = 2**phases - 1 + extra, phases + more_rounds
    sizes = {"machines": 2, "classes": 2, "features": 2, "samples": n, "rho": 1.0}
    method, problem = make_task(NAME, options={"phases": phases, "phase_l2": 0.1}, **sizes)
    batching = method.batching(problem, T)
    mechanism = method.run_constants(problem, batching).mechanism
    counts, taken = np.zeros(n, int), {}
    for t in range(1, T + 1):
        indices, (size,) = batching.batches(bytes(32), np.array([1]), np.array([t]))
        counts[indices] += 1
        taken.setdefault((t - 1) * phases // T, set()).update(indices.tolist())
        assert size == len(set(indices.tolist())) == batching.batch_size(t) <= batching.max_batch_size
        assert batching.max_uses_per_sample(t) == mechanism.affected_sums_until(t) == counts.max()
        assert batching.distinct_samples_until(t) == np.count_nonzero(counts)
        assert batching.processed_samples_until(t) == counts.sum()
        same = batching.rounds_with_same_batches(t)
        others = [batching.batches(bytes(32), np.array([0]), np.array([k])) for k in range(t, t + same)]
        assert all(np.array_equal(indices, other.indices) for other in others)
    assert sorted(i for phase in taken.values() for i in phase) == list(range(n))
    assert len(taken) == phases
    assert mechanism.consistency_errors(1e-5) == []
    assert mechanism.guarantee().rho == pytest.approx(1.0)


def test_the_account_equals_that_of_dp_accounting():
    """The worst sample is in 4 sums of 12; a statement of another number contradicts itself."""
    dp_accounting = pytest.importorskip("dp_accounting")
    constants = make_schedule(
        NAME, rounds=12, machines=2, classes=2, features=2, samples=14, rho=0.7, options={"phases": 3}
    )
    mechanism = constants.mechanism
    assert (mechanism.affected_sums, mechanism.sigma) == (4, pytest.approx(4 * mechanism.clip_norm / 0.7))
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    event = dp_accounting.GaussianDpEvent(mechanism.sigma / (2 * mechanism.clip_norm))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, 4))
    claimed = mechanism.guarantee().epsilon_exact_noise(1e-5)
    assert claimed == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)
    # Not the sums of any of equal phases, and batches that are too small for phases.
    for changes in ({"affected_sums": 5}, {"batch_size": 1.0}, {"batch_size": 14.0}):
        assert replace(mechanism, **changes).consistency_errors(1e-5)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_the_audit_reaches_the_claim_and_refutes_half_of_the_noise(server, monkeypatch):
    few_messages(monkeypatch)
    only(monkeypatch, "multiplier")
    claim = {"method": NAME, "rho": 4.0, "rounds": 5}
    report = found(server, 200, **claim)
    assert report.failures == []
    assert 0.9 < report.verdicts[0].overall_separation.relative_mu.estimate < 1.1
    half_sigma(monkeypatch)
    assert found(server, 200, **claim).refutations


# -------------------------------------------------------------------------------- resuming, and settings


class StopAfter(Callback):
    def __init__(self, last):
        self.last = last

    def on_evaluation(self, evaluation):
        if evaluation.round == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("stop", [3, 4, 5, 8])
def test_a_run_that_was_stopped_has_the_same_bits(stop, tmp_path):
    """In the middle of a phase, in its last round, and in the first one of the next."""
    settings = {"method": NAME, "data": "synthetic", "samples": 60, "features": 3, "machines": 2, "rho": 1.0}
    experiment = Experiment(**settings, phases=3, rounds=12, seed=1, evaluations=12)
    whole = job.run(experiment, output=tmp_path / "whole.h5")
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whichever error a callback ends the run with
        job.run(experiment, output=tmp_path / "a.h5", callbacks=[StopAfter(stop)], checkpoint_every=1e9)
    resumed = job.run(experiment, output=tmp_path / "a.h5")
    assert resumed.x.tobytes() == whole.x.tobytes()
    assert resumed.w.tobytes() == whole.w.tobytes()


def preset(n, **settings):
    source = random_source(1, n, 6, 4)
    return resolve_plan(Experiment(method=NAME, preset="practical", machines=4, **settings), source, 1)


def test_the_preset_by_hand():
    """Two phases with lambda = 0.5 / (s rho N n / 2 C) and 1.5 sqrt(L / lambda) rounds each."""
    chosen = preset(400, rho=0.5, server="untrusted").experiment
    lam = 0.5 / (1.5 * 0.5 * 2 * 100 / (2 * 0.75))
    assert (chosen.phases, chosen.phase_l2) == (2, pytest.approx(lam, rel=1e-3))
    assert chosen.rounds == 2 * round(1.5 * math.sqrt(0.5 / chosen.phase_l2))
    assert preset(400, rho=math.inf).experiment.rounds == 400
    assert preset(8, rho=1.0).experiment.phases == 1
    assert preset(400, rho=1.0, rounds=1).experiment.phases == 1


def test_phases_that_are_too_many_are_refused():
    source = random_source(1, 60, 4, 3)
    for settings, limit in (({"phases": 5}, 4), ({"phases": 3, "rounds": 2}, 2)):
        with pytest.raises(InputError, match=f"--phases must be at most {limit}"):
            resolve_plan(Experiment(method=NAME, machines=3, **settings), source, 1)
    with pytest.raises(InputError, match="machines"):
        resolve_plan(Experiment(method=NAME, machines=3, participation="uniform:2"), source, 1)
