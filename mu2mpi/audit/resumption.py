"""Whether a run that goes on after a kill sends the same: other noise on the same sums would tell them."""

from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.runs import equal, round_of
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.base import Server, machines_and_server
from mu2mpi.parallel import block
from mu2mpi.privacy.noise import derive_key, key_words


def check_resumption(canaries: Canaries, kinds: Kinds, key: bytes) -> str | None:
    """Compare a run with what follows from its state halfway, as of a checkpoint; say what differs.

    One rank hosts all machines, and another none. The 32 bytes of the key are as of `play`.
    """
    schedule, middle = canaries.schedule, canaries.schedule.rounds // 2
    supply_key = derive_key(key, "sampling")

    def act(rank: RecordedRank) -> bool:
        hosted = block(schedule.machines, 1, 0) if rank.rank == 0 else range(0)

        def start() -> tuple[Machines, Server]:
            supply = canaries.supply(hosted, kinds, supply_key)
            return machines_and_server(schedule, hosted, supply, rank, key_words(key))

        machines, server = start()
        for t in range(1, middle + 1):
            round_of(t, canaries, machines, server)
        state = {name: array.copy() for name, array in server.iterates.arrays().items()}
        q, again = machines.q.copy(), start()
        for name, array in again[1].iterates.arrays().items():
            array[...] = state[name]
        again[0].q[...] = q
        seen = []
        for of_run in ((machines, server), again):
            rank.sent.clear()
            rank.received.clear()
            for t in range(middle + 1, schedule.rounds + 1):
                round_of(t, canaries, *of_run)
            seen.append([*rank.sent, *rank.received])
        return equal(*seen)

    if all(on_ranks(2, act)):
        return None
    return "a run that goes on after a kill sends other messages than before, which hide the same"
