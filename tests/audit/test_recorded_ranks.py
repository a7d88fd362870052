"""Ranks of one process, which record what crosses the wire."""

import numpy as np
import pytest

from mu2mpi.audit.recorded_ranks import run_on_ranks


def test_ranks_of_one_process_do_what_the_communicator_promises():
    def act(rank):
        mine = np.arange(3, dtype=np.int64) + 10 * rank.rank
        total = rank.allreduce(mine, np.empty_like(mine)).copy()
        reduced = rank.reduce(mine, np.empty_like(mine) if rank.rank == 0 else None)
        array = np.full(2, float(rank.rank))
        rank.bcast(array)
        return total.tolist(), reduced is None, array.tolist(), len(rank.sent), len(rank.received)

    answers = run_on_ranks(3, act)
    total = [30, 33, 36]
    assert answers[0] == (total, False, [0, 0], 3, 2)
    assert answers[1] == answers[2] == (total, True, [0, 0], 2, 2)


def test_an_error_on_one_rank_ends_all():
    def act(rank):
        if rank.rank == 1:
            raise ZeroDivisionError
        rank.bcast(np.zeros(1))

    with pytest.raises(ZeroDivisionError):
        run_on_ranks(3, act)
    with pytest.raises(RuntimeError):
        run_on_ranks(2, lambda rank: rank.split(0))


def test_ranks_that_do_not_meet_are_an_error():
    for act in (
        lambda rank: rank.rank == 0 and rank.bcast(np.zeros(1)),
        lambda rank: rank.rank == 2 and rank.bcast(np.zeros(1)),
        lambda rank: [rank.bcast(np.zeros(1)) for _ in range(rank.rank + 1)],
    ):
        with pytest.raises(RuntimeError, match="take no part"):
            run_on_ranks(3, act)
