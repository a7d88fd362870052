"""The noised sums of a shuffler against the messages of all machines, made one by one in plain NumPy."""

import math
from dataclasses import replace

import numpy as np
from helpers.sources import random_source
from scipy import stats

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.privacy.noise.noise_stream import key_to_uint32, root_key

SETTINGS = {
    "server": "shuffled", "machines": 3, "rounds": 2, "rho": 20.0, "clip_norm": 1.0, "loss": "logistic"
}  # fmt: skip
COINS = 2**15
"""Of each machine: as few as have a table, where two of three hide a sample."""


def tiny_constants():
    constants = resolve_plan(Experiment(**SETTINGS), random_source(2, 60, 1, 2), 1).constants
    mechanism = constants.mechanism
    fewer = replace(mechanism, fair_bits=COINS, sigma=math.sqrt(2 * COINS) / 2 * mechanism.grid_spacing)
    return replace(constants, mechanism=fewer)


def first_sums(constants, seeds):
    """Return sums of values and noised sums of the first round of runs with other keys, one row each."""
    hosted_machines, found = range(constants.problem.machines), []
    source = random_source(2, 60, 1, 2)
    for seed in seeds:
        supply = make_sample_reader(source, constants, bytes(32), hosted_machines, "iid", bytes(32))
        key = key_to_uint32(root_key(seed))
        machines, server = create_machines_and_server(constants, hosted_machines, supply, Communicator(), key)
        machines.accumulate_increments(1, server.iterates.x, server.iterates.x_previous)
        total = server._noised_sum(1, machines.message_sum, machines)
        found.append((machines.message_sum.ravel().copy(), total.ravel().copy()))
    return map(np.array, zip(*found, strict=True))


def shuffled_sums(mechanism, values, generator):
    """Return the sums that a server decodes from the shuffled bits of machines with these values."""
    bound, coordinates = mechanism.machines * mechanism.max_message_coordinate, np.arange(len(values))
    # A message is twice the index of its coordinate, plus its bit.
    messages = [np.repeat(2 * coordinates + 1, bound + values), np.repeat(2 * coordinates, bound - values)]
    for _ in range(mechanism.machines):
        coins = generator.integers(2, size=(len(values), mechanism.fair_bits))
        messages.append((2 * coordinates[:, np.newaxis] + coins).ravel())
    received = generator.permutation(np.concatenate(messages))
    assert len(received) == mechanism.machines * mechanism.messages_per_round
    counts = np.bincount(received, minlength=2 * len(values)).reshape(-1, 2)
    return (counts[:, 1] - counts[:, 0]) // 2


def test_noised_sums_have_the_distribution_of_shuffled_messages():
    """Of fixed draws; other keys would fail each of three checks with probability 1e-4."""
    constants, generator = tiny_constants(), np.random.default_rng(1)
    values, noised = first_sums(constants, range(400))
    mechanism = constants.mechanism
    sent = np.array([shuffled_sums(mechanism, row, generator) for row in values[:80]])
    assert noised.shape[1] == mechanism.parameters == 2
    made, drawn = sent - values[:80], noised - values
    assert stats.ks_2samp(made.ravel(), drawn.ravel()).pvalue > 1e-4
    fair_bits = mechanism.machines * mechanism.fair_bits
    for found in (made, drawn):
        binomial = stats.binom(fair_bits, 0.5, loc=-fair_bits // 2)
        assert stats.kstest(found.ravel(), binomial.cdf).pvalue > 1e-4
        # Coordinates know nothing of each other.
        assert abs(np.corrcoef(found.T)[0, 1]) < 0.45
