"""All transfers between ranks in a whole run: checkpoint, interruption, resumed run, result.

What crosses the wire of a `Simulation` is searched for private values as they are in memory. Unless the
server is central, what a checkpoint gathers, and what changes by resuming, is uniform modulo 2^64.
"""

import math
import pickle
import struct
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from mu2mpi.audit.attack import Attack, Finding, View
from mu2mpi.audit.canaries import PIXELS, Integers, Numbered
from mu2mpi.audit.evidence import byte_evidence
from mu2mpi.audit.wire import RecordedRank, equal, on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.plan import Plan, resolve
from mu2mpi.execution.simulation import Keeper, Simulation
from mu2mpi.execution.watch import Verdict
from mu2mpi.results.schema import Checkpoint

RANKS, MACHINES, ROUNDS = 2, 3, 8
MIDDLE, LATER = ROUNDS // 2, ROUNDS - ROUNDS // 2
WINDOW = 8  # consecutive integers of a sum by which it is recognised


class _Observed(Keeper):
    """One rank of a run with a checkpoint halfway, and of the run that resumes from it."""

    def __init__(self, plan: Plan, rank: RecordedRank) -> None:
        self.unbroken, self.resumed = rank, RecordedRank(rank.rank, rank.meeting)
        self.gathered, self.secrets = np.empty(0, np.int64), list[bytes]()
        self._state: Checkpoint | None = None
        self._d = plan.schedule.d
        self._simulation, self._start = Simulation(plan, rank), 0
        self._simulation.run(keeper=self)
        self.secrets += _secrets(self._simulation)
        Simulation(plan, self.resumed, self._state).run()

    def look(self, t: int) -> Verdict:
        self._start = len(self.unbroken.sent)
        return Verdict.SAVE if t == MIDDLE + 1 else Verdict.GO_ON

    def keep(self, verdict: Verdict, state: Checkpoint | None) -> None:
        self._state, arrays = deepcopy(state), _integer_arrays(self.unbroken.sent[self._start :])
        self.gathered = np.concatenate([self.gathered, *map(np.ravel, arrays)])
        self.secrets += _secrets(self._simulation)

    def change(self) -> Integers:
        """By what the first message after the checkpoint changes by resuming."""
        sent = (zip(rank.sent, rank.sent_by, strict=True) for rank in (self.resumed, self.unbroken))
        after, before = (
            [a for a, by in of_run if by == "allreduce" and a.size == self._d] for of_run in sent
        )
        changed: Integers = np.subtract(after[-LATER], before[-LATER])
        return changed

    def is_resumed(self) -> bool:
        """Whether sums or query points that reach the rank after the checkpoint are the same by resuming."""
        received = (rank.received for rank in (self.unbroken, self.resumed))
        arrays = (
            [a for a in of_run if isinstance(a, np.ndarray) and a.size == self._d] for of_run in received
        )
        # The messages of the last round of a central server move nothing.
        return equal(*(of_run[1 - LATER :] for of_run in arrays))


class Transfers(Attack):
    """Attack all transfers of a run with the trust mode of an experiment, and its default options."""

    def run(self, view: View) -> Finding:
        """Run with a checkpoint, and again from that; compare and search both records."""
        settings = {"server": view.experiment.server, "machines": MACHINES, "rounds": ROUNDS}
        plan = resolve(
            Experiment.make(settings), Numbered(MACHINES * ROUNDS, MACHINES * ROUNDS, PIXELS), RANKS
        )
        ranks = on_ranks(RANKS, lambda rank: _Observed(plan, rank))
        is_central = plan.schedule.trust.is_central
        refutations, words = _recognised(ranks, is_central), ""
        if not is_central:
            words = ", and masked numbers that are not uniform"
            for place, rank in enumerate(ranks):
                for what, numbers in (
                    ("a checkpoint gathers from", rank.gathered),
                    ("changes by resuming in messages of", rank.change()),
                ):
                    if numbers.any() and byte_evidence(numbers).max() > math.log(2 * RANKS * 16 / view.risk):
                        refutations.append(f"what {what} rank {place} is not uniform modulo 2^64")
        if not all(rank.is_resumed() for rank in ranks[1:]):
            refutations.append("a resumed run sends other sums than before, under the same noise")
        summary = (
            "Transfers of a whole run, its checkpoint and the run resumed from it: looked for "
            f"{sum(len(rank.secrets) for rank in ranks)} private values{words}."
        )
        return Finding(summary, tuple(refutations))


def _integer_arrays(things: Iterable[Any]) -> Iterator[Integers]:
    """Yield the arrays of int64 in nested tuples and lists."""
    for thing in things:
        if isinstance(thing, tuple | list):
            yield from _integer_arrays(thing)
        elif isinstance(thing, np.ndarray) and thing.dtype == np.int64:
            yield thing


def _secrets(simulation: Simulation) -> list[bytes]:
    """Return private values of the hosted machines, and keys of rank 0 alone, in forms that code may send."""
    machines, schedule, keys = simulation.machines, simulation.schedule, simulation.keys
    row = machines.q[np.argmax(np.abs(machines.q).sum(axis=1))]
    window = row[np.argmax(row != 0) :][:WINDOW]
    values, norm = window.astype(np.float64), machines.largest_squared_norm
    norms = [struct.pack(order, value) for order in ("<d", ">d") for value in (norm, math.sqrt(norm))]
    sums = [array.tobytes() for array in (window, values, values * schedule.mechanism.resolution)]
    roots = [] if keys.root is None else [keys.root]
    if schedule.trust.is_central and keys.noise is not None:
        roots.append(keys.noise.tobytes())
    return [*roots, *sums, machines.class_counts(simulation.rounds_done).tobytes(), *norms]


def _recognised(ranks: list[_Observed], is_central: bool) -> list[str]:
    """Say which ranks' private values cross the wire; to rank 0 of a central server they may."""
    found = []
    for place, owner in enumerate(ranks):
        for other, rank in enumerate(ranks[is_central:], is_central):
            records = (rank.unbroken, rank.resumed)
            wire = pickle.dumps([one.sent if other == place else one.received for one in records])
            # To rank 0 of a central server anything may go.
            if not (is_central and other == place) and any(secret in wire for secret in owner.secrets):
                what = "leaves it" if other == place else f"reaches rank {other}"
                found.append(f"what rank {place} computes from private data {what} without noise or mask")
    return found
