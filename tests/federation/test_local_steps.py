"""Machines with local steps: what they send is bounded, whatever their samples are, and theirs alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.message_sums import norm
from helpers.property_tests import given
from helpers.simulations import make_task
from hypothesis import strategies as st

from mu2mpi.core.parallel import Communicator
from mu2mpi.federation.local_steps import LocalMachines
from mu2mpi.federation.machine import HostedSamples
from mu2mpi.federation.servers.server import create_machines_and_server

MACHINES, F, KEY = 3, 4, np.arange(8, dtype=np.uint32)
numbers = st.floats(width=64) | st.sampled_from(
    [0.0, 5e-324, 1e-162, 1.0, -1.0, 1e30, 1e160, 1e308, math.inf]
)


def make_constants(method="fedavg", n=3, loss="softmax", server=None, rho=math.inf, clip_norm=0.5, **options):
    """Return constants of two rounds, of whole machines if the options say so."""
    unit = options.get("unit")
    chosen, problem = make_task(
        method, machines=MACHINES, classes=2, features=F, samples=n, loss=loss, rho=rho, diameter=5.0,
        server=server or ("trusted" if unit else "untrusted"), options=options, clip_norm=clip_norm,
        eta_scale=1.0,
    )  # fmt: skip
    variant = chosen.select_variant(problem.method_options)
    if unit:
        problem = replace(problem, mechanism="poisson-machines")
    return variant.run_constants(problem, variant.batching(problem, 2))


def hosted(features, labels, batching, scales=None):
    """Return a reader of samples of shape (machines, n), those of machines without any left out."""
    sizes = np.tile([len(own) for own in labels], (batching.rounds, 1)).astype(np.int64)
    flat, scales = np.concatenate(features), np.ones(sizes[0].sum()) if scales is None else scales
    samples = HostedSamples(flat, np.concatenate(labels), scales, sizes)
    return lambda t: samples


def make_machines(constants, features, labels, scales=None, key=None):
    reader = hosted(features, labels, constants.batching, scales)
    machines, server = create_machines_and_server(
        constants, range(len(labels)), reader, Communicator(), KEY if key is None else key
    )
    assert isinstance(machines, LocalMachines)
    return machines, server


def random_data(seed, n=3):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (MACHINES, n, F - 1)), rng.integers(0, 2, (MACHINES, n)).astype(np.int32)


def message(constants, features, labels, x, scales=None):
    """Return the sum of messages of round 1 from x, without noise."""
    machines, _ = make_machines(constants, features, labels, scales)
    machines.accumulate_increments(1, x, x)
    return machines.message_sum.copy(), machines


@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared"])
@given(
    st.data(), st.sampled_from([np.float32, np.float64]), st.sampled_from([1, 2, 7]),
    st.sampled_from([None, 1, 2]), st.booleans(), max_examples=40,
)  # fmt: skip
def test_no_message_of_a_machine_is_longer_than_the_clipping_norm(loss, data, dtype, H, batch, is_last):
    """Whatever its samples and the model are, and those of other machines change nothing of it."""
    constants = make_constants(loss=loss, unit="machine", local_steps=H, batch=batch, participants=2)
    some = st.lists(numbers, min_size=3 * (F - 1), max_size=3 * (F - 1))
    features, labels = random_data(1)
    read = constants.batching.max_batch_size
    with np.errstate(over="ignore"):
        wild = np.array(data.draw(some)).reshape(3, F - 1).astype(dtype)
    model = st.lists(numbers, min_size=math.prod(constants.message_shape),
                     max_size=math.prod(constants.message_shape))  # fmt: skip
    x = np.array(data.draw(model)).reshape(constants.message_shape)
    if constants.problem.loss.label_kind != "classes":
        labels = labels * 2.0 - 1
    taken = np.arange(read) % 3
    tame = [features[i][taken].astype(dtype) for i in range(MACHINES)]
    own_labels = [labels[i][taken] for i in range(MACHINES)]
    scales = np.ones(read)
    alone, machines = message(constants, [wild[taken]], [own_labels[0]], x, scales)
    assert norm(alone, constants.mechanism.grid_spacing) <= constants.mechanism.clip_norm
    assert machines.largest_squared_norm >= 0
    others = [1, 2]
    rest, _ = message(constants, [tame[i] for i in others], [own_labels[i] for i in others], x)
    order = [*others, 0] if is_last else [0, *others]
    mixed = [wild[taken] if i == 0 else tame[i] for i in order]
    together, _ = message(constants, mixed, [own_labels[i] for i in order], x)
    np.testing.assert_array_equal(together, alone + rest)


def test_long_messages_reach_the_clipping_norm():
    """The bound above is no loose one; and messages that are clipped are counted, with their norms."""
    constants = make_constants(unit="machine", local_steps=4)
    features, labels = np.ones((1, 3, F - 1)), np.zeros((1, 3), np.int32)
    found, machines = message(constants, features, labels, np.zeros((2, F)))
    assert norm(found, constants.mechanism.grid_spacing) == pytest.approx(0.5, rel=1e-6)
    assert machines.clipped_count == 4 * constants.batching.local_batch  # all samples of the message
    assert 0.5 < math.sqrt(machines.largest_squared_norm) <= 4 * math.sqrt(2 * F)
    zero, machines = message(constants, features, labels, np.array([[50.0] * F, [-50.0] * F]))
    assert not zero.any()
    assert machines.clipped_count == 0


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
@pytest.mark.parametrize("batch", [None, 2])
def test_a_sample_moves_each_local_step_by_no_more_than_twice_its_bound(method, batch):
    """With the models of the steps held where they were, by steps of size zero."""
    constants = make_constants(method, local_steps=3, batch=batch)
    constants = replace(constants, eta=0.0)
    features, labels = random_data(2)
    x, changed, taken = np.zeros((2, F)), features.copy(), np.arange(constants.batching.max_batch_size) % 3
    changed[1, 0] = -1e6
    pick = lambda data: [data[i][taken] for i in range(MACHINES)]  # noqa: E731
    before, _ = message(constants, pick(features), pick(labels), x)
    after, _ = message(constants, pick(changed), pick(labels), x)
    uses = 3 if batch is None else 2  # of sample 0 in passes 0 1, 2 0, 1 2
    change = norm(after - before, constants.mechanism.grid_spacing)
    assert 0 < change <= 2 * uses * constants.mechanism.clip_norm


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_each_local_step_has_noise_of_its_own(method):
    """Without steps, a message minus one without noise is H draws, of variance sigma^2 each."""
    H, rounds = 4, 500
    constants = make_constants(method, local_steps=H, rho=2.0)
    constants = replace(constants, eta=0.0, mechanism=replace(constants.mechanism, rounds=2 * H))
    features, labels = random_data(3)
    noisy, _ = make_machines(constants, features, labels)
    features_only = HostedSamples(
        np.concatenate(features), np.concatenate(labels), np.ones(9), np.full((rounds, MACHINES), 3)
    )
    noisy._reader = lambda t: features_only
    quiet = replace(constants, mechanism=replace(constants.mechanism, sigma=0.0))
    expected, _ = message(quiet, features, labels, np.zeros((2, F)))
    draws = []
    for t in range(1, rounds + 1):
        noisy.accumulate_increments(t, np.zeros((2, F)), np.zeros((2, F)))
        draws.append((noisy.noised_message(t) - expected).ravel())
    draws = np.array(draws) * (constants.mechanism.grid_spacing / constants.mechanism.sigma)
    # Five standard errors of a variance, and of the correlation of two rounds
    variance, size = H * MACHINES, draws.size
    assert abs(np.mean(draws**2) / variance - 1) < 5 * math.sqrt(2 / size)
    assert abs(np.mean(draws[1:] * draws[:-1]) / variance) < 5 / math.sqrt(size)


def test_machines_without_a_key_add_no_noise_of_their_own():
    constants = make_constants(local_steps=2, rho=2.0)
    features, labels = random_data(1)
    reader = hosted(features, labels, constants.batching)
    machines = LocalMachines(constants, range(MACHINES), reader, None)
    with pytest.raises(RuntimeError, match="no noise key"):
        machines.accumulate_increments(1, np.zeros((2, F)), np.zeros((2, F)))


def test_control_variates_of_a_machine_change_its_steps_alone():
    """The last messages are kept for each machine, and those of others may be anything."""
    constants = make_constants("scaffold", local_steps=3, clip_norm=None)
    features, labels = random_data(4)
    x, found = np.zeros((2, F)), []
    for others in (0, np.random.default_rng(1).integers(0, 10**12, (2, 2, F))):
        machines, server = make_machines(constants, features, labels)
        server.iterates.optimizer_state["control"][...] = 1000.0
        machines.last_messages[0] = 300
        machines.last_messages[1:] = others
        machines.accumulate_increments(1, x, x)
        found.append(machines.last_messages.copy())
        np.testing.assert_array_equal(machines.last_messages.sum(axis=0), machines.message_sum)
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert (found[0][1:] != found[1][1:]).any()


def test_a_machine_that_is_not_sampled_sends_nothing():
    constants = make_constants(unit="machine", local_steps=2, participants=1)
    features, labels = random_data(5)
    some = [features[0], features[1][:0], features[2]], [labels[0], labels[1][:0], labels[2]]
    found, _ = message(constants, *some, np.zeros((2, F)))
    both = [message(constants, [features[i]], [labels[i]], np.zeros((2, F)))[0] for i in (0, 2)]
    np.testing.assert_array_equal(found, sum(both))


@pytest.mark.parametrize(("G", "C", "expected"), [(3.0, 0.5, 3.0), (3.0, 1e-3, 1.0), (math.inf, 2.0, 2000.0)])
def test_gradients_of_sampled_machines_are_clipped_to_a_multiple_of_the_message_s_norm(G, C, expected):
    problem = replace(make_constants(unit="machine").problem, G=G)
    assert problem.local_clip_norm(C) == expected
