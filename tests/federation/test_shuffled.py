"""Messages one by one against their sums alone: the same distribution, and as many messages as are stated."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.sources import random_source
from scipy import stats

from mu2mpi.audit.recorded_ranks import run_on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.parallel import Communicator, block_range
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.federation.servers.server import create_machines_and_server
from mu2mpi.federation.servers.shuffled import (
    decode_sum,
    encode_messages,
    generate_noise_bits,
    shuffle_messages,
)
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise.noise_stream import key_to_uint32, root_key

SETTINGS = {
    "server": "shuffled", "machines": 3, "rounds": 2, "rho": 20.0, "clip_norm": 1.0, "loss": "logistic"
}  # fmt: skip
COINS = 2**15
"""Of each machine: as few as have a table, where two of three hide a sample."""


def tiny_source():
    return random_source(2, 60, 1, 2)


def tiny_plan(**settings):
    plan = resolve_plan(Experiment(**{**SETTINGS, **settings}), tiny_source(), 1)
    mechanism = plan.constants.mechanism
    fewer = replace(mechanism, fair_bits=COINS, sigma=math.sqrt(2 * COINS) / 2 * mechanism.grid_spacing)
    return replace(plan, constants=replace(plan.constants, mechanism=fewer))


def tiny_schedule(**settings):
    return tiny_plan(**settings).constants


def first_sums(shuffle, seeds):
    """Return the noised sums of the first round of runs with other keys, less the sums of values."""
    constants, source = tiny_schedule(shuffle=shuffle), tiny_source()
    hosted_machines, found = range(constants.problem.machines), []
    for seed in seeds:
        supply = make_sample_reader(source, constants, bytes(32), hosted_machines, "iid", bytes(32))
        key = key_to_uint32(root_key(seed))
        machines, server = create_machines_and_server(constants, hosted_machines, supply, Communicator(), key)
        machines.accumulate_increments(1, server.iterates.x, server.iterates.x_previous)
        total = server._noised_sum(1, server._reduce_messages(1, machines), machines)
        found.append((total - machines.message_sum).ravel())
    return np.array(found), constants.mechanism


def test_made_and_mixed_messages_have_the_distribution_of_sums():
    """Of fixed draws; other keys would fail each of three checks with probability 1e-4."""
    (made, mechanism), (drawn, _) = first_sums("messages", range(80)), first_sums("sums", range(80, 480))
    assert made.shape[1] == mechanism.parameters == 2
    assert stats.ks_2samp(made.ravel(), drawn.ravel()).pvalue > 1e-4
    fair_bits = mechanism.machines * mechanism.fair_bits
    for found in (made, drawn):
        binomial = stats.binom(fair_bits, 0.5, loc=-fair_bits // 2)
        assert stats.kstest(found.ravel(), binomial.cdf).pvalue > 1e-4
        # Coordinates know nothing of each other.
        assert abs(np.corrcoef(found.T)[0, 1]) < 0.45


def test_runs_end_alike_whichever_is_simulated():
    """Outputs of tiny runs: other keys would fail with probability 1e-4 for each coordinate."""

    def output(shuffle, seed):
        plan = tiny_plan(shuffle=shuffle, seed=seed)
        return Simulation(plan, Communicator()).run().x.ravel()

    numbers = {"messages": 20, "sums": 40}
    outputs = {name: np.array([output(name, seed) for seed in range(n)]) for name, n in numbers.items()}
    for coordinate in range(2):
        pair = (outputs[shuffle][:, coordinate] for shuffle in outputs)
        assert stats.ks_2samp(*pair).pvalue > 1e-4


@pytest.mark.parametrize("share", [0, 0.5, -0.5])
def test_what_was_sent_before_changes_no_number_of_messages(share):
    """The sum that rank 0 of a resumed run holds may be any: the others see how much it sends."""
    constants = tiny_schedule(shuffle="messages")
    mechanism = constants.mechanism

    def resume(rank):
        hosted_machines = block_range(constants.problem.machines, rank.size, rank.rank)
        supply = make_sample_reader(tiny_source(), constants, bytes(32), hosted_machines, "iid", bytes(32))
        machines, server = create_machines_and_server(
            constants, hosted_machines, supply, rank, key_to_uint32(bytes(32))
        )
        if rank.rank == 0:
            machines.message_sum[:] = int(share * mechanism.machines * mechanism.max_message_coordinate)
        machines.read_samples(2)
        server.run_round(2, machines, Timer())
        return [array.size for array in rank.sent if array.dtype == np.uint32]

    others = 2 * (mechanism.machines - 1) * mechanism.max_message_coordinate * mechanism.parameters
    assert run_on_ranks(3, resume) == [[mechanism.messages_per_round + others * (i == 0)] for i in range(3)]


def test_messages_are_values_and_coins_and_their_counts_the_sum():
    mechanism, key = tiny_schedule(shuffle="messages").mechanism, bytes(range(32))
    V = mechanism.max_message_coordinate
    for q in ([0, 0], [V, -V], [2 * V, -7]):
        sent = [encode_messages(mechanism, key, range(0, 2), 4, np.array(q), 2)]
        sent.append(encode_messages(mechanism, key, range(2, 3), 4, np.array([5, -V]), 1))
        assert [len(of_rank) for of_rank in sent] == [
            2 * mechanism.messages_per_round,
            mechanism.messages_per_round,
        ]
        for coordinate in range(2):
            # All that shows whose a message is, is how many there are of each coordinate: the same of all.
            assert np.sum(sent[1] // 2 == coordinate) * 2 == mechanism.messages_per_round
        heads = sum(
            generate_noise_bits(mechanism, key, machine, 4).sum(axis=1, dtype=int) for machine in range(3)
        )
        expected = np.add(q, [5, -V]) + heads - 3 * mechanism.fair_bits // 2
        np.testing.assert_array_equal(decode_sum(mechanism, np.concatenate(sent)), expected)
        np.testing.assert_array_equal(decode_sum(mechanism, shuffle_messages(sent, key, 4)), expected)
