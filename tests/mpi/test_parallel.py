"""The MPI communicator against what each method promises, and errors that all ranks share."""

import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator, block


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
def test_no_entry_of_a_cache_is_filled_by_two_ranks(communicator: Communicator, tmp_path):
    """One rank fills it; all come back to it later, when it is only read."""
    folder, mine = communicator.share(tmp_path), []

    def action(number: int) -> None:
        place = folder / str(number)
        mine.append((number, place.exists()))
        if not place.exists():
            # Fails if another rank fills it just now.
            place.touch(exist_ok=False)

    communicator.fill_cache([lambda n=n: action(n) for n in range(3)])
    everyones = communicator.allgather(mine)
    assert sum(not was_there for of_rank in everyones for _, was_there in of_rank) == 3
    assert all({number for number, was_there in of_rank if was_there} == {0, 1, 2} for of_rank in everyones)


@pytest.mark.several_ranks
def test_parts_have_ranks_of_their_own_and_are_given_back(communicator: Communicator):
    """MPI has a few thousand communicators, and a sweep may have as many waves."""
    for number in range(2500):
        with communicator.part(communicator.rank % 2 if number else None) as part:
            if number == 1:
                assert part is not None
                assert part.size == len(range(communicator.rank % 2, communicator.size, 2))
                assert part.allgather(communicator.rank)[part.rank] == communicator.rank
            assert (part is None) == (number == 0)


def test_blocks_are_a_partition(communicator: Communicator):
    for n in (0, 1, 2, 5, 100):
        blocks = communicator.allgather(block(n, communicator.size, communicator.rank))
        assert [i for b in blocks for i in b] == list(range(n))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
