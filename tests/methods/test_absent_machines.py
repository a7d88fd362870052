"""Runs with partial participation or unequal machines against the same methods in float64 NumPy."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import standard_normal
from helpers.property_tests import given
from helpers.simulations import machines_on, simulation_of
from helpers.unequal_machines import owned_source, write_budgets, write_trace
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.partition import parse_partition
from mu2mpi.execution.plan import RunKeys, resolve_plan
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.federation.servers.untrusted import UntrustedServer
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    add_noise,
    derive_key,
    key_to_uint32,
    padded_zeros,
    root_key,
)
from mu2mpi.privacy.noise.sampler_error import DITHER_THRESHOLD

SIZES = [7, 12, 3, 9, 5]
M, DIMENSION, CLASSES = len(SIZES), 4, 3
F = DIMENSION + 1
D, RHO = 0.3, 3.0


@dataclass
class Absent:
    """Inputs of the reference: public settings, samples, and standard normals of the noise."""

    present: np.ndarray  # who is there when, shape (T, M)
    expected: np.ndarray  # in how many rounds each is expected
    parts: np.ndarray  # of the objective
    rho: np.ndarray
    trusted: bool
    sample: object  # of a machine, and for the how-manieth time: z and its label
    normals: object  # of a machine or of the server, and for the how-manieth time or round
    dithered: object  # draws in grid units, likewise, of a standard deviation
    grid_spacing: float

    def __post_init__(self):
        self.T, self.N = len(self.present), self.present.sum(axis=0)
        weights = self.parts / np.maximum(self.expected, 1e-300) * (self.expected > 0)
        self.weights = weights / weights.max()
        self.total = float(self.weights @ self.expected) / self.T
        self.d = CLASSES * F
        self.L = ref.smoothness(F)

    def sigma(self, C, releases):
        """Return the noise std of each machine, or that of the server, which is the largest one needed."""
        own = np.where(self.N > 0, 2 * self.weights * C * np.sqrt(releases) / self.rho, 0.0)
        return np.full(M, own.max()) if self.trusted else own

    def deviation(self, sigma, persists):
        """Return the noise std of the average message, with the rounds that each noise persists."""
        if self.trusted:
            return sigma.max() / self.total
        return math.sqrt(np.sum(sigma**2 * persists) / self.T) / self.total

    def rounded(self, sigma, who, number):
        scale = sigma / self.grid_spacing
        # The tests of dithered draws are elsewhere.
        is_dithered = scale > DITHER_THRESHOLD
        units = (
            self.dithered(who, number, scale) if is_dithered else np.rint(scale * self.normals(who, number))
        )
        return units.reshape(CLASSES, F) * self.grid_spacing

    def noise(self, t, sigma, is_cumulative):
        """Return the noise of the cumulative sum: for each machine that of its last participation."""
        if self.trusted:
            return self.rounded(sigma.max(), None, t)
        there = self.present[:t].any(axis=0) if is_cumulative else self.present[t - 1]
        last = [(i, self.present[:t, i].sum()) for i in np.flatnonzero(there)]
        return sum((self.rounded(sigma[i], i, k) for i, k in last), np.zeros((CLASSES, F)))

    def there(self, t):
        """Return the participants of a round with the sample that each uses."""
        return [(i, *self.sample(i, self.present[:t, i].sum())) for i in np.flatnonzero(self.present[t - 1])]

    def kept(self, i, s, C):
        return ref.kept(self.weights[i] * s, self.weights[i] * C, self.grid_spacing)


def mu2_sgd(run):
    """Algorithms 1 and 2, where a machine subtracts the noise of its previous participation."""
    C = ref.increment_bound(F, D)
    sigma = run.sigma(C, run.T if run.trusted else run.N)
    gaps = []
    for column in run.present.T:
        t = [*(np.flatnonzero(column) + 1), run.T + 1]
        gaps.append(sum((b - a) ** 2 for a, b in pairwise(t)))
    noise = run.deviation(sigma, np.array(gaps))
    eta = min(D / (noise * math.sqrt(run.d * run.T)), run.present.mean() / (4 * run.L * run.T))
    held = np.zeros((CLASSES, F))
    w, x, x_previous = np.zeros((3, CLASSES, F))
    for t in range(1, run.T + 1):
        x_T, w_T = x, w
        for i, z, label in run.there(t):
            g, g_previous = ref.gradient(x, z, label), ref.gradient(x_previous, z, label)
            held = held + run.kept(i, g + (t - 1) * (g - g_previous), C)
        w = ref.project(
            w - eta / run.total * (held + run.noise(t, sigma, is_cumulative=True)), np.zeros_like(w), D / 2
        )
        x, x_previous = ref.next_query(t, x, w), x
    return x_T, w_T


def anytime_sgd(run):
    """Anytime-SGD with the participants' gradients and independent noise."""
    C = ref.lipschitz(F)
    sigma = run.sigma(C, 1)
    effective = run.total**2 / float(np.sum(run.weights**2 * run.N) / run.T)
    error = math.hypot(C / math.sqrt(effective), math.sqrt(run.d) * run.deviation(sigma, run.N))
    alphas = np.arange(1.0, run.T + 1)
    eta = min(D / (error * math.sqrt(np.sum(alphas**2))), 1 / (4 * run.L * run.T))
    w, x = np.zeros((2, CLASSES, F))
    for t in range(1, run.T + 1):
        x_T, w_T = x, w
        sent = [run.kept(i, ref.gradient(x, z, label), C) for i, z, label in run.there(t)]
        total = sum(sent, np.zeros((CLASSES, F))) + run.noise(t, sigma, is_cumulative=False)
        w = ref.project(w - eta * t / run.total * total, np.zeros_like(w), D / 2)
        x = ref.next_query(t, x, w)
    return x_T, w_T


METHODS = {"mu2-sgd": mu2_sgd, "anytime-sgd": anytime_sgd}


def options_of(method):
    return {} if method == "mu2-sgd" else {"estimator": "gradient", "query": "average"}


def expected_of(kind, present):
    name, _, value = (kind or "all").partition(":")
    T = len(present)
    if name == "uniform":
        return np.full(M, T * int(value) / M)
    return np.full(M, T * float(value)) if name == "bernoulli" else present.sum(axis=0).astype(float)


def reference_of(experiment, source, constants, rho, kind, by_samples):
    """Return the inputs of the reference: samples in order of use, and standard normals."""
    participation = constants.problem.per_machine_plan.participation
    present = participation.participation_matrix(range(1, participation.rounds + 1), range(M))
    root = root_key(experiment.seed)
    plan = resolve_plan(experiment, source, 1)
    owned, key = constants.batching.samples_per_machine, derive_key(root, "dealing")
    rows = parse_partition(plan.partition).rows(source, M, owned, key, range(M))
    key = key_to_uint32(RunKeys.noise_key(root, plan.experiment, plan.noise_key_context))

    def sample(i, k):
        found = source.read_training(rows[[k - 1], [i]])
        return ref.add_bias(found.features * source.feature_scale)[0], int(found.labels[0])

    def normals(who, number):
        who = (SERVER_STREAM, 0) if who is None else (MACHINE_STREAM, who)
        return standard_normal(key, *who, number, CLASSES * F)

    sizes = source.owner_sizes if plan.partition == "owner" else np.full(M, sum(SIZES) // M)

    def dithered(who, number, scale):
        stream, machine = (SERVER_STREAM, 0) if who is None else (MACHINE_STREAM, who)
        nothing, (noised, draw) = padded_zeros((CLASSES, F))[0], padded_zeros((CLASSES, F))
        add_noise(noised, nothing, key, stream, machine, 1, number, scale)
        return draw

    return Absent(
        present, expected_of(kind, present), sizes if by_samples else np.ones(M), rho,
        experiment.server == "trusted", sample, normals, dithered, constants.mechanism.grid_spacing,
    )  # fmt: skip


kinds = st.sampled_from([None, "uniform:2", "uniform:5", "bernoulli:0.4", "by-size", "trace"])


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize("method", METHODS)
@given(
    kinds,
    st.sampled_from(["owner", "iid"]),
    st.sampled_from([None, "machines", "samples"]),
    st.booleans(),
    st.integers(0, 2**31),
    max_examples=9,
)
def test_run_equals_the_method_in_plain_numpy(
    method, server, tmp_path_factory, kind, partition, objective, has_budgets, seed
):
    folder, source = tmp_path_factory.mktemp("files"), owned_source(seed, SIZES, DIMENSION, CLASSES)
    rho, budgets, rounds = np.full(M, RHO), None, None
    names = list("abcde") if partition == "owner" else list("01234")
    if has_budgets or (kind is None and objective is None):
        rho[[1, 4]] = 0.5, 40.0
        budgets = write_budgets(folder / "budgets.toml", rho={names[1]: 0.5, names[4]: 40.0})
    if kind == "trace":
        seen = np.random.default_rng(seed).random((8, M)) < 0.5
        # One is never there, others have few samples, and the last round is not taken.
        seen[:, 3] = seen[3:, 2] = seen[5:, 4] = False
        seen[[0, 6], 1] = True
        kind, rounds = write_trace(folder / "trace.csv", seen, names), 7
    experiment = Experiment(
        machines=M, server=server, participation=kind, objective=objective, budgets=budgets, rho=RHO,
        partition=partition, diameter=D, seed=seed, rounds=rounds, **options_of(method),
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result, constants = simulation.run(), simulation.constants
    by_samples = objective == "samples" or (objective is None and kind == "by-size")
    run = reference_of(experiment, source, constants, rho, kind, by_samples)
    x, w = METHODS[method](run)
    # As near as three numbers leave it that were rounded to another multiple of the grid.
    steps = sum(constants.step_size(t) for t in range(1, constants.rounds))
    near = 3 * constants.mechanism.grid_spacing * steps / run.total
    assert np.linalg.norm(result.x - x) < 1e-9 * np.linalg.norm(x) + near
    assert np.linalg.norm(result.w - w) < 1e-9 * np.linalg.norm(w) + near
    accounts = result.accounts
    np.testing.assert_allclose(accounts.weight, run.weights, rtol=1e-12)
    np.testing.assert_array_equal(accounts.rounds, run.N)
    np.testing.assert_array_equal(accounts.participation, run.present)


def directions(source, server, **settings):
    """Return the noised sums of all rounds, in grid units, with a fixed noise key."""
    experiment = Experiment(machines=M, server=server, partition="iid", rho=RHO, diameter=D, **settings)
    constants = resolve_plan(experiment, source, 1).constants
    key, ranks, timer = key_to_uint32(bytes(range(32))), Communicator(), Timer(constants.rounds)
    machines = machines_on(source, constants, noise=None if server == "trusted" else key)
    taken = {"untrusted": UntrustedServer, "trusted": TrustedServer}[server](constants, range(0), ranks, key)
    found = []
    for t in range(1, constants.rounds):
        taken.run_round(t, machines, timer)
        found.append(taken.iterates.noised_sum.copy())
    return found, taken.iterates.x.tobytes()


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"noise_correlation": 0.5},
        {"method": "anytime-dp-mf"},
        {"estimator": "gradient", "query": "iterate"},
    ],
)
def test_with_everybody_there_all_integers_are_those_of_machines_that_do_not_differ(
    server, settings, tmp_path
):
    """With full participation, unequal machines send the same integers, and steps agree."""
    source = owned_source(3, SIZES, DIMENSION, CLASSES)
    expected, x = directions(source, server, **settings)
    same = write_budgets(tmp_path / "same.toml", rho={"2": RHO})
    for differs in ({"participation": "uniform:5"}, {"participation": "bernoulli:1"}, {"budgets": same}):
        found, x_there = directions(source, server, **settings, **differs)
        np.testing.assert_array_equal(found, expected)
        # The learning rate comes to the same in another order of sums.
        np.testing.assert_allclose(np.frombuffer(x_there), np.frombuffer(x), rtol=1e-12)
