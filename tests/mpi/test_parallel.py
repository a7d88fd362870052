"""The MPI communicator against the documented interface, and errors that all ranks share."""

import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator, block_range


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


def test_broadcasts_and_gathers(communicator: Communicator):
    array = np.full(5, float(communicator.rank))
    communicator.bcast(array)
    np.testing.assert_array_equal(array, 0)
    assert communicator.bcast_object(f"from {communicator.rank}") == "from 0"
    ranks = list(range(communicator.size))
    assert communicator.allgather(communicator.rank) == ranks
    assert communicator.gather(communicator.rank) == (ranks if communicator.rank == 0 else None)


def test_an_input_error_on_any_rank_is_raised_on_all(communicator: Communicator):
    last = communicator.size - 1

    def fail_on_the_last_rank() -> None:
        with communicator.collective_errors():
            if communicator.rank == last:
                raise InputError(f"failure on {last}")

    with pytest.raises(InputError, match=f"failure on {last}"):
        fail_on_the_last_rank()
    with communicator.collective_errors():
        pass


@pytest.mark.several_ranks
def test_each_cache_entry_is_filled_by_one_rank(communicator: Communicator, tmp_path):
    """One rank fills it; all other ranks then read it."""
    folder, mine = communicator.bcast_object(tmp_path), []

    def action(number: int) -> None:
        path = folder / str(number)
        mine.append((number, path.exists()))
        if not path.exists():
            # Fails if another rank fills it just now.
            path.touch(exist_ok=False)

    communicator.fill_kernel_cache([lambda n=n: action(n) for n in range(3)])
    everyones = communicator.allgather(mine)
    assert sum(not was_there for of_rank in everyones for _, was_there in of_rank) == 3
    assert all({number for number, was_there in of_rank if was_there} == {0, 1, 2} for of_rank in everyones)


@pytest.mark.several_ranks
def test_split_communicators_are_freed(communicator: Communicator):
    """MPI libraries limit communicators to a few thousand, and a sweep may split as often."""
    for number in range(2500):
        with communicator.split(communicator.rank % 2 if number else None) as group:
            if number == 1:
                assert group is not None
                assert group.size == len(range(communicator.rank % 2, communicator.size, 2))
                assert group.allgather(communicator.rank)[group.rank] == communicator.rank
            assert (group is None) == (number == 0)


def test_blocks_partition_a_range(communicator: Communicator):
    for n in (0, 1, 2, 5, 100):
        blocks = communicator.allgather(block_range(n, communicator.size, communicator.rank))
        assert [i for b in blocks for i in b] == list(range(n))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
