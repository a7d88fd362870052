"""Privacy of the last iterate: contractive steps, a last step on one grid, bad input."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.property_tests import given
from helpers.simulations import machines_on, make_schedule, simulation_of
from helpers.sources import ArraySource, one_a_round, random_source
from hypothesis import strategies as st

from mu2mpi import cli
from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys
from mu2mpi.federation.iterates import Iterates
from mu2mpi.federation.machine import HostedSamples, Machines
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.methods.snowball_sgd import step_expansion_bounds
from mu2mpi.privacy.mechanisms.last_iterate_mechanism import (
    LAST_STEP_COARSENING,
    halving_step_sizes,
    rounding_expansions,
)
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)

schedule_of = partial(make_schedule, "snowball-sgd", server="trusted")


@pytest.fixture(scope="module")
def finished():
    """Return the result of a run."""
    source = random_source(1, 600, 4, 3)
    experiment = Experiment(method="snowball-sgd", server="trusted", machines=2, rho=1.0, seed=1)
    return simulation_of(experiment, source).run()


def iterates_of(constants, source, noises):
    """Return all iterates of a run on one rank for given noise in grid units."""
    machines, iterates = machines_on(source, constants), Iterates(constants)
    found = []
    for t in range(1, constants.rounds):
        machines.accumulate_increments(t, iterates.x, iterates.x_previous)
        iterates.step(t, machines.message_sum + noises[t - 1])
        found.append(iterates.x.copy())
    return found


@given(
    st.integers(1, 4), st.integers(2, 30), st.integers(2, 4), st.integers(1, 6) | st.just(300),
    st.sampled_from([0.5, 5.0, 500.0]), st.booleans(), st.integers(0, 2**31), max_examples=25,
)  # fmt: skip
def test_distance_of_two_runs_with_the_same_noise_is_bounded(
    machines, rounds, classes, dimension, diameter, unit, seed
):
    """One sample moves its own step, and later ones add rounding errors alone; step sizes are maximal."""
    constants = schedule_of(
        machines=machines, rounds=rounds, classes=classes, features=dimension + 1, diameter=diameter, rho=1.0,
        eta_scale=1.0, normalize="unit" if unit else "none",
    )  # fmt: skip
    n = machines * constants.batching.samples_per_machine
    source, row = random_source(seed, n, dimension, classes, np.float32), seed % n
    changed = source.read_training(np.arange(n))
    changed.features[row] *= -1
    changed.labels[row] = (changed.labels[row] + 1) % classes
    other = ArraySource(changed, source.read_test(np.arange(3)), classes, 1.0)
    rng, mechanism = np.random.default_rng(seed), constants.mechanism
    noises = [
        np.rint(rng.normal(0, mechanism.round_sigma(t) / mechanism.grid_spacing, (classes, dimension + 1)))
        .astype(np.int64)
        for t in range(1, rounds)
    ]  # fmt: skip
    one, two = (iterates_of(constants, data, noises) for data in (source, other))
    samples = np.array([machines * constants.batching.batch_size(t) for t in range(1, rounds)])
    scales = constants.eta * halving_step_sizes(rounds - 1) / samples
    slacks = rounding_expansions(scales, samples, mechanism.grid_spacing, constants.problem.d)
    # What happens after the noise of a step is counted in the next.
    errors = step_expansion_bounds(constants)
    slacks += errors + np.append(errors[1:], errors[-1])
    distances = [float(np.linalg.norm(a - b)) for a, b in zip(one, two, strict=True)]
    moved = next((t for t, distance in enumerate(distances) if distance > 0), rounds)
    for t in range(moved, rounds - 1):
        before = distances[t - 1] if t > moved else 2 * constants.problem.G * scales[t]
        assert distances[t] <= before + slacks[t]


def test_steps_contract_where_losses_curve_most():
    """At 0, with two classes and features at their bound, the curvature is L: steps of 2/L just reflect.

    Features may pass 1 by a millionth, where the source cannot tell it from rounding.
    """
    constants = schedule_of(
        machines=1, rounds=2, classes=2, features=4, diameter=100.0, rho=math.inf, eta_scale=1.0
    )
    samples = one_a_round(np.full((2, 1, 3), 1 + 1e-6), np.zeros((2, 1), np.int32))
    ends = []
    for sign in (1.0, -1.0):
        machines = Machines(constants, range(1), lambda t: samples, None)
        iterates = Iterates(constants)
        iterates.x[:] = iterates.w[:] = sign * 1e-5 * np.outer([1.0, -1.0], [1 + 1e-6] * 3 + [1.0])
        start = np.linalg.norm(iterates.w)
        machines.accumulate_increments(1, iterates.x, iterates.x_previous)
        iterates.step(1, machines.message_sum)
        ends.append(iterates.x.copy())
    distance = np.linalg.norm(ends[0] - ends[1])
    assert distance == pytest.approx(2 * start, rel=1e-4)
    assert distance <= 2 * start


@pytest.mark.parametrize("size", [1.0, 1e-30, 1e-140, 1.5e-162, 5e-324])
def test_steps_contract_on_samples_of_unit_norm_whatever_the_size_of_their_features(size):
    """Squares of features near 1e-162 underflow, so norms that are too small would scale samples too far.

    The label is nearly certain, so that even then no gradient is clipped.
    """
    features = np.full((1, 400), size)
    features[0, 0] = 1.75 * size
    scales = Scaling(unit_norm=True).scale_factors(features, 1.0)
    constants = schedule_of(
        machines=1, rounds=2, classes=2, features=401, diameter=100.0, rho=math.inf, eta_scale=1.0,
        normalize="unit",
    )  # fmt: skip
    bias = Scaling(unit_norm=True).bias_feature
    samples = HostedSamples(features, np.zeros(1, np.int32), scales, np.ones((1, 1), np.int64), 1, bias)
    z = np.append(features[0] * scales[0], bias)
    direction = np.outer([1.0, -1.0], z / (z @ z))
    ends = []
    for place in (1.75, 1.75 + 1e-4):
        machines = Machines(constants, range(1), lambda t: samples, None)
        iterates = Iterates(constants)
        iterates.x[:] = iterates.w[:] = place * direction
        machines.accumulate_increments(1, iterates.x, iterates.x_previous)
        assert machines.clipped_count == 0
        iterates.step(1, machines.message_sum)
        ends.append(iterates.x.copy())
    assert np.linalg.norm(ends[0] - ends[1]) <= 1e-4 * np.linalg.norm(direction) * (1 + 1e-6)


@given(st.integers(2, 40), st.integers(0, 2**31), st.integers(-(2**40), 2**40), max_examples=25)
def test_the_last_iterate_tells_no_more_than_a_point_of_the_grid(rounds, seed, move):
    """Another w_t with a sum that compensates for it gives the same bits."""
    constants = schedule_of(machines=3, rounds=rounds, classes=2, features=3, diameter=50.0, rho=1.0)
    rng = np.random.default_rng(seed)
    t = rounds - 1
    unit = constants.mechanism.grid_spacing
    step = constants.eta * halving_step_sizes(t)[-1] * unit / (3 * constants.batching.batch_size(t))
    ends = set()
    place, total = rng.integers(-(2**30), 2**30, (2, 2, 3))
    for moved in (0, move):
        iterates = Iterates(constants)
        # Anywhere within half a unit of the point.
        iterates.w[:] = (place + moved + rng.uniform(-0.49, 0.49, (2, 3))) * (step * LAST_STEP_COARSENING)
        iterates.step(t, total + moved * LAST_STEP_COARSENING)
        ends.add(iterates.x.tobytes())
    assert len(ends) == 1


def test_gradients_are_never_clipped():
    """The clipping norm exceeds that of any rounded gradient."""
    for machines, d_classes, rho in ((1, 2, 0.01), (1000, 100, 1.0), (3, 5, 1e6), (2, 2, math.inf)):
        constants = schedule_of(
            machines=machines, rounds=50, classes=d_classes, features=20, diameter=1.0, rho=rho
        )
        assert constants.reduced_clip_norm >= constants.problem.G
        assert constants.mechanism.clip_norm == pytest.approx(constants.problem.G, rel=1e-3)
        assert constants.eta * (1 + 1e-6) ** 2 <= 2 / constants.problem.L


@pytest.mark.parametrize(
    "arguments",
    [
        ["--machines", "2"], ["--clip-norm", "1"], ["--eta-scale", "1.5"], ["--evaluations", "5"],
        ["--rho", "0.01"], ["--rounds", "1"], ["--rounds", "1400"],
        ["--data", "population", "--rounds", "4000000000"], ["--diameter", "1e90"],
    ],
)  # fmt: skip
def test_bad_input(tmp_path, arguments):
    own = [] if "--machines" in arguments else ["--machines", "1"]
    output = ["--output", str(tmp_path / "a.h5"), "--seed", "1"]
    assert cli.main(["run", "--method", "snowball-sgd", *output, *own, *arguments]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": 0.99}, {"final_batch": 1.5}, {"clip_norm": 1.01}, {"rho": 0.9},
        {"rho": 0.9, "final_batch": 1 / 0.9}, {"grid_spacing": 2.0**20}, {"machines": 2, "final_batch": 0.5},
    ],
)  # fmt: skip
def test_false_claims_are_refuted(finished, changes):
    """Numbers are factors; the claims no longer follow from the statement or the experiment."""
    mechanism = finished.privacy.mechanism
    values = {
        name: type(old)(factor * old) for name, factor in changes.items() if (old := getattr(mechanism, name))
    }
    assert claim_contradictions(finished) == []
    false = replace(mechanism, **values)
    assert claim_contradictions(replace(finished, privacy=replace(finished.privacy, mechanism=false)))


shapes = st.tuples(
    st.integers(1, 6),  # machines
    st.integers(2, 25),  # rounds
    st.integers(2, 7),  # classes
    st.integers(1, 40),  # features
)


def assert_same_point(found, expected, constants):
    """To a millionth, or as near as three numbers leave it that were rounded to another multiple of the grid.

    One that lies in the middle of two multiples may go to either, and then is in all messages that follow.
    """
    steps = [
        constants.step_size(t) / max(1, constants.batching.batch_size(t)) for t in range(1, constants.rounds)
    ]
    rounded = 3 * constants.mechanism.grid_spacing * sum(steps) / constants.problem.machines
    # Samples of unit norm with a single feature may cancel to nothing.
    assert np.linalg.norm(found - expected) < 1e-6 * max(np.linalg.norm(expected), 1e-6) + rounded


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(
    shapes,
    st.sampled_from([0.5, 4.0, 1e9, np.inf]),
    st.sampled_from([0.01, 0.1, 5.0, 500.0]),
    st.sampled_from(["none", "unit"]),
    st.sampled_from([None, None, 0.1, 1.0]),
    st.integers(0, 2**31),
    max_examples=15,
)
def test_snowball_equals_the_method_of_its_source(server, shape, rho, diameter, normalize, eta_scale, seed):
    machines, rounds, classes, dimension = shape
    machines = machines if server == "trusted" else 1
    d = classes * (dimension + 1)
    factors, batches = ref.snowball_batches(rounds - 1, machines, d, rho)
    source = random_source(seed, machines * sum(batches) + 2, dimension, classes, np.float32)
    experiment = Experiment(
        method="snowball-sgd", server=server, machines=machines, rounds=rounds, rho=rho, diameter=diameter,
        normalize=normalize, eta_scale=eta_scale, seed=seed,
    )  # fmt: skip
    simulation = simulation_of(experiment, source)
    result, root = simulation.run(), root_key(seed)
    rows = iid_rows(
        source.training_samples, machines, sum(batches), derive_key(root, "dealing"), range(machines)
    )
    samples = source.read_training(rows.ravel())
    key, shape = key_to_uint32(RunKeys.noise_key(root, result.experiment)), (classes, dimension + 1)

    def noise(t):
        return drawn_noise(
            simulation.constants, key, SERVER_STREAM if server == "trusted" else MACHINE_STREAM, 0, t
        )

    z = ref.samples(samples.features, normalize == "unit")
    F = 1 if normalize == "unit" else dimension + 1
    w = ref.snowball_sgd(
        z, samples.labels, shape, machines, diameter, rho, noise, batches, factors, F, eta_scale
    )
    assert_same_point(result.x, w, simulation.constants)
    np.testing.assert_array_equal(result.w, result.x)
    assert result.history.round.tolist() == [rounds]
    assert result.history.samples[-1] == result.history.gradient_evaluations[-1] == machines * sum(batches)
    assert result.diagnostics.clipped_share == 0
    assert claim_contradictions(result) == []
