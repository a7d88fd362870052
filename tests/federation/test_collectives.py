"""Sums and statistics that rank 0 collects for a checkpoint, and what crosses the wire meanwhile."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest

from mu2mpi.audit.recorded_ranks import run_on_ranks
from mu2mpi.federation.collectives import add_masks, gather_increment_stats, reduce_masked
from mu2mpi.privacy.noise.noise_stream import key_to_uint32, padded_zeros, root_key

KEY, SHAPE, NORMS, CLIPPED = key_to_uint32(root_key(3)), (3, 5), [1.5, 9.25, 0.0], [4, 0, 7]
SUMS = np.random.default_rng(1).integers(-(2**40), 2**40, (3, *SHAPE))


def hosted_machines(rank, q):
    """Return what is collected of the machines of a rank."""
    flat_message_sum, own = padded_zeros(SHAPE)
    own[...] = q
    statistics = {"largest_squared_norm": NORMS[rank], "clipped_count": CLIPPED[rank]}
    return SimpleNamespace(message_sum=own, flat_message_sum=flat_message_sum, **statistics)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "masked"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_rank_0_has_the_sum_and_the_statistics_of_all_machines(size, key):
    def act(rank):
        machines = hosted_machines(rank.rank, SUMS[rank.rank])
        return (
            reduce_masked(machines.message_sum, rank, key),
            gather_increment_stats(machines, rank, key),
            pickle.dumps(rank.sent),
        )

    (total, statistics, _), *others = run_on_ranks(size, act)
    np.testing.assert_array_equal(total, SUMS[:size].sum(axis=0))
    assert statistics == (max(NORMS[:size]), sum(CLIPPED[:size]))
    for rank, (nothing, _, message) in enumerate(others, start=1):
        assert nothing is None
        assert (SUMS[rank].tobytes()[:40] in message) == (key is None)


@pytest.mark.parametrize("size", [2, 3])
def test_masked_parts_add_up_to_the_sum(size):
    def act(rank):
        machines = hosted_machines(rank.rank, SUMS[0] * (rank.rank == 0))
        add_masks(machines.flat_message_sum, rank, KEY)
        return machines.message_sum

    parts = run_on_ranks(size, act)
    np.testing.assert_array_equal(sum(parts), SUMS[0])
    # 15 words of 64 fair coins have 480 ones, with a standard deviation of 15.5.
    ones = [sum(int(word).bit_count() for word in part.view(np.uint64).ravel()) for part in parts]
    assert max(abs(count - 480) for count in ones) < 80
