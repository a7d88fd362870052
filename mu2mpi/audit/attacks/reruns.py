"""Reruns: a run that goes on after a kill sends the same; other noise on the same sums would tell these."""

from mu2mpi.audit.attack import Attack, Finding, View
from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.runs import round_of, start
from mu2mpi.audit.wire import RecordedRank, equal, on_ranks
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.base import Server


class Reruns(Attack):
    """Repeat a run of each worst case from halfway on."""

    def run(self, view: View) -> Finding:
        """Compare what is sent after the checkpoint."""
        return Finding(
            refutations=tuple(
                "a run that goes on after a kill sends other messages than before, which hide the same "
                f"({runs.canaries.case.words})"
                for runs in view.runs
                if not is_same_after_kill(runs.canaries, runs.kinds[0], runs.keys[0])
            )
        )


def is_same_after_kill(canaries: Canaries, kinds: Kinds, key: bytes) -> bool:
    """Compare a run with what follows from its state halfway; one rank hosts all machines, another none."""
    schedule, middle = canaries.schedule, canaries.schedule.rounds // 2

    def rest(rank: RecordedRank, machines: Machines, server: Server) -> list[object]:
        rank.forget()
        for t in range(middle + 1, schedule.rounds + 1):
            round_of(t, canaries, machines, server)
        return [*rank.sent, *rank.received]

    def act(rank: RecordedRank) -> bool:
        hosted = range(schedule.machines if rank.rank == 0 else 0)
        machines, server = start(schedule, canaries, hosted, kinds, rank, key)
        for t in range(1, middle + 1):
            round_of(t, canaries, machines, server)
        state = {name: array.copy() for name, array in server.iterates.arrays().items()}
        q, (resumed, resumed_server) = machines.q.copy(), start(schedule, canaries, hosted, kinds, rank, key)
        unbroken = rest(rank, machines, server)
        for name, array in resumed_server.iterates.arrays().items():
            array[...] = state[name]
        resumed.q[...] = q
        return equal(unbroken, rest(rank, resumed, resumed_server))

    return all(on_ranks(2, act))
