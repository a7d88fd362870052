"""The MPI communicator against what each method promises, and errors that all ranks share."""

import time

import numpy as np
import pytest

from mu2mpi.errors import InputError
from mu2mpi.parallel import Communicator, block


def test_sums(communicator: Communicator):
    rank, size = communicator.rank, communicator.size
    mine = np.arange(7, dtype=np.int64) + 2**55 * rank
    expected = size * np.arange(7) + 2**55 * (size * (size - 1) // 2)
    np.testing.assert_array_equal(communicator.allreduce(mine, np.empty_like(mine)), expected)
    total = communicator.reduce(mine, np.empty_like(mine) if rank == 0 else None)
    if rank == 0:
        np.testing.assert_array_equal(total, expected)
    else:
        assert total is None


def test_rank_0_is_heard_by_all(communicator: Communicator):
    array = np.full(5, float(communicator.rank))
    communicator.bcast(array)
    np.testing.assert_array_equal(array, 0)
    assert communicator.share(f"from {communicator.rank}") == "from 0"
    ranks = list(range(communicator.size))
    assert communicator.allgather(communicator.rank) == ranks
    assert communicator.gather(communicator.rank) == (ranks if communicator.rank == 0 else None)


def test_an_input_error_of_any_rank_is_one_of_all(communicator: Communicator):
    last = communicator.size - 1

    def trouble_on_the_last() -> None:
        with communicator.together():
            if communicator.rank == last:
                raise InputError(f"trouble on {last}")

    with pytest.raises(InputError, match=f"trouble on {last}"):
        trouble_on_the_last()
    with communicator.together():
        pass


@pytest.mark.several_ranks
def test_no_entry_of_a_cache_is_filled_by_two_ranks_at_once(communicator: Communicator):
    calls: list[tuple[int, float, float]] = []

    def action(number: int) -> None:
        begun = time.monotonic()
        time.sleep(0.02)
        calls.append((number, begun, time.monotonic()))

    communicator.fill_cache([lambda n=n: action(n) for n in range(3)])
    everyones = communicator.allgather(calls)
    for number in range(3):
        spans = [
            (begun, ended, rank)
            for rank, of_rank in enumerate(everyones)
            for n, begun, ended in of_rank
            if n == number
        ]
        # One rank fills it; all come back to it later, when it is only read.
        (_, filled, _), *later = sorted(spans)
        assert all(begun >= filled for begun, _, _ in later)
        assert {rank for _, _, rank in later} == set(range(communicator.size))


def test_blocks_are_a_partition(communicator: Communicator):
    for n in (0, 1, 2, 5, 100):
        blocks = communicator.allgather(block(n, communicator.size, communicator.rank))
        assert [i for b in blocks for i in b] == list(range(n))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
