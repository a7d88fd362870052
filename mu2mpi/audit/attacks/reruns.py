"""Reruns: a run that goes on after a kill sends the same; other noise on the same sums would tell these."""

import numpy as np

from mu2mpi.audit.attack import Attack, Finding, Runs, View
from mu2mpi.audit.runs import round_of, start
from mu2mpi.audit.wire import RecordedRank, equal, on_ranks


class Reruns(Attack):
    """Repeat a run of each worst case from halfway on, and compare what is sent."""

    def run(self, view: View) -> Finding:
        """Compare what is sent after the checkpoint."""
        what = "a run that goes on after a kill sends other messages than before, which hide the same"
        cases = (runs.canaries.case.words for runs in view.runs if not _is_same_after_kill(runs))
        return Finding(refutations=tuple(f"{what} ({case})" for case in cases))


def _is_same_after_kill(runs: Runs) -> bool:
    """Compare a run with what follows from its state halfway; one rank hosts all machines, another none."""
    canaries, rounds = runs.canaries, range(1, runs.canaries.schedule.rounds + 1)
    middle = len(rounds) // 2

    def act(rank: RecordedRank) -> bool:
        hosted = range(canaries.schedule.machines if rank.rank == 0 else 0)
        first, resumed = (
            start(canaries.schedule, canaries, hosted, runs.kinds[0], rank, runs.keys[0]) for _ in range(2)
        )
        for t in rounds[:middle]:
            round_of(t, canaries, *first)
        np.copyto(resumed[0].q, first[0].q)
        for name, array in resumed[1].iterates.arrays().items():
            np.copyto(array, first[1].iterates.arrays()[name])
        records = []
        for run in (first, resumed):
            rank.forget()
            for t in rounds[middle:]:
                round_of(t, canaries, *run)
            records.append([*rank.sent, *rank.received])
        return equal(*records)

    return all(on_ranks(2, act))
