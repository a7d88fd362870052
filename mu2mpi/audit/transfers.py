"""An attack on all transfers between ranks in a whole run: checkpoint, interruption, resumed run, result.

The run is a real `Simulation` on a problem of real size. Whatever crosses the wire is searched for private
sums and statistics as they are in memory. Unless the server is central, what a checkpoint gathers has to be
uniform modulo 2^64, and so has the difference between a message and the same message after resuming.
"""

import math
import pickle
import struct
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.check import Check
from mu2mpi.audit.chi_square import chi_square_evidence
from mu2mpi.audit.runs import equal
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.config.experiment import Experiment
from mu2mpi.data.source import Samples, Source, Which
from mu2mpi.execution.plan import Plan, resolve
from mu2mpi.execution.simulation import Keeper, Simulation
from mu2mpi.execution.watch import Verdict
from mu2mpi.results.schema import Checkpoint

Integers = NDArray[np.int64]

RANKS, MACHINES, ROUNDS = 2, 3, 8
CLASSES, PIXELS = 10, 784
WINDOW = 8
"""Consecutive integers of a sum by which it is recognised."""


class RandomImages(Source):
    """Random pixels and labels."""

    name, classes, dimension, scale, made_up = "random images", CLASSES, PIXELS, 1 / 255, True
    test_samples = CLASSES

    def __init__(self, training_samples: int = MACHINES * ROUNDS) -> None:
        rng = np.random.default_rng(0)
        self.training_samples = training_samples
        samples = training_samples + self.test_samples
        self._features = rng.integers(0, 256, (samples, PIXELS), np.uint8)
        self._labels = rng.integers(0, CLASSES, samples, np.int32)

    def _read(self, which: Which, rows: NDArray[np.int64]) -> Samples:
        rows = rows + (self.training_samples if which == "test" else 0)
        return Samples(self._features[rows], self._labels[rows])


class _CheckpointHalfway(Keeper):
    """Keeps the state before round ROUNDS / 2 + 1, and what the ranks transfer to gather it."""

    def __init__(self, simulation: Simulation, rank: RecordedRank) -> None:
        self.state: Checkpoint | None = None
        self.gathered: list[Any] = []
        self.secrets: list[bytes] = []
        self._simulation, self._rank, self._start = simulation, rank, 0

    def look(self, t: int) -> Verdict:
        self._start = len(self._rank.sent)
        return Verdict.SAVE if t == ROUNDS // 2 + 1 else Verdict.GO_ON

    def keep(self, verdict: Verdict, state: Checkpoint | None) -> None:
        self.state, self.gathered = deepcopy(state), self._rank.sent[self._start :]
        self.secrets = _secrets(self._simulation)


class _Transfers(NamedTuple):
    """Transfers of one rank in an unbroken run and in one that resumes from its checkpoint."""

    unbroken: RecordedRank
    resumed: RecordedRank
    gathered: Integers  # what a checkpoint gathers, shape (numbers,)
    secrets: list[bytes]  # private values of the rank's machines, as they are in memory

    def messages(self) -> tuple[Integers, Integers]:
        """Messages of the rounds after the checkpoint in both runs, shape (rounds, rows, F)."""
        found = []
        for rank in (self.unbroken, self.resumed):
            sent = zip(rank.sent, rank.sent_by, strict=True)
            arrays = [array for array, by in sent if by == "allreduce" and array.size > CLASSES]
            found.append(np.array(arrays[ROUNDS // 2 - ROUNDS :]))
        return found[0], found[1]


def check_transfers(experiment: Experiment, risk: float) -> Check:
    """Attack all transfers of a run with the trust mode of an experiment.

    Parameters
    ----------
    experiment : Experiment
        Whose trust mode is attacked, with its default options.
    risk : float
        Largest probability of a complaint about a faultless run.
    """
    settings = {"server": experiment.server, "machines": MACHINES, "rounds": ROUNDS}
    plan = resolve(Experiment.make(settings), RandomImages(), RANKS)
    ranks = on_ranks(RANKS, lambda rank: _run_twice(plan, rank))
    is_central = plan.schedule.trust.is_central
    words = f"{sum(len(rank.secrets) for rank in ranks)} private values"
    refutations = _recognised(ranks, is_central)
    if not is_central:
        refutations += _not_uniform(ranks, risk)
        words += ", and masked numbers that are not uniform"
    if _resumes_otherwise(ranks, is_central):
        refutations.append("a resumed run sends other sums than before, under the same noise")
    summary = f"Transfers of a whole run, its checkpoint and the run resumed from it: looked for {words}."
    return Check(summary, tuple(refutations))


def _run_twice(plan: Plan, rank: RecordedRank) -> _Transfers:
    """Run with a checkpoint, and again from that checkpoint."""
    simulation, resumed = Simulation(plan, rank), RecordedRank(rank.rank, rank.meeting)
    halfway = _CheckpointHalfway(simulation, rank)
    simulation.run(keeper=halfway)
    Simulation(plan, resumed, halfway.state).run()
    gathered = np.concatenate([np.empty(0, np.int64), *map(np.ravel, _integer_arrays(halfway.gathered))])
    return _Transfers(rank, resumed, gathered, halfway.secrets + _secrets(simulation))


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
    first = int(np.argmax(np.abs(row) > 0))
    window = row[first : first + WINDOW]
    values = window.astype(np.float64)
    norm = machines.largest_squared_norm
    norms = [struct.pack(order, value) for order in ("<d", ">d") for value in (norm, math.sqrt(norm))]
    sums = [array.tobytes() for array in (window, values, values * schedule.mechanism.resolution)]
    roots = [] if keys.root is None else [keys.root]
    if schedule.trust.is_central and keys.noise is not None:
        roots.append(keys.noise.tobytes())
    return [*roots, *sums, machines.class_counts(simulation.rounds_done).tobytes(), *norms]


def _recognised(ranks: list[_Transfers], is_central: bool) -> list[str]:
    """Say which ranks' private values cross the wire; to rank 0 of a central server they may."""
    found = []
    for place, owner in enumerate(ranks):
        for other, transfers in enumerate(ranks):
            if other == 0 and is_central:
                continue
            records = (transfers.unbroken, transfers.resumed)
            things = [thing for record in records for thing in record.received]
            if other == place:
                things = [] if is_central else [thing for record in records for thing in record.sent]
            wire = pickle.dumps(things)
            if any(secret in wire for secret in owner.secrets):
                what = "leaves it" if other == place else f"reaches rank {other}"
                found.append(f"what rank {place} computes from private data {what} without noise or mask")
    return found


def _not_uniform(ranks: list[_Transfers], risk: float) -> list[str]:
    """Say which masked numbers are not uniform modulo 2^64."""
    found = []
    threshold = math.log(2 * RANKS * 8 / risk)
    for rank, transfers in enumerate(ranks):
        before, after = transfers.messages()
        for what, numbers in (
            ("a checkpoint gathers from", transfers.gathered),
            ("changes by resuming in messages of", (after - before)[0]),
        ):
            pieces = numbers.ravel().view(np.uint8).reshape(-1, 8).T
            counts = np.array([np.bincount(piece, minlength=256) for piece in pieces])
            if numbers.any() and chi_square_evidence(counts).max() > threshold:
                found.append(f"what {what} rank {rank} is not uniform modulo 2^64")
    return found


def _resumes_otherwise(ranks: list[_Transfers], is_central: bool) -> bool:
    """Whether sums over all ranks, or query points of a central server, change by resuming."""
    if not is_central:
        messages = zip(*(transfers.messages() for transfers in ranks), strict=True)
        before, after = (np.sum(arrays, axis=0) for arrays in messages)
        return not np.array_equal(before, after)
    # The messages of the last round move nothing.
    later = ROUNDS - ROUNDS // 2 - 1
    return any(
        not equal(_points(transfers.unbroken)[-later:], _points(transfers.resumed)[-later:])
        for transfers in ranks[1:]
    )


def _points(rank: RecordedRank) -> list[NDArray[np.generic]]:
    return [thing for thing in rank.received if isinstance(thing, np.ndarray) and thing.dtype == np.float64]
