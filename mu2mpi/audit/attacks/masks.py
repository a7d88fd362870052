"""Masks of real messages: uniform and fresh to those who know some of them, and without effect on the sum.

Those who work together know the masks that they share with others. Less these, the masks of the rest cancel
in the sum over all of them, and nowhere before: to any fewer they are uniform numbers modulo 2^64, and so are
differences between rounds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.attack import Attack, Finding, View
from mu2mpi.audit.evidence import byte_evidence
from mu2mpi.audit.real import BOUNDARIES, PIXELS, Integers, blank_supply, real_schedule
from mu2mpi.audit.runs import hides_parts
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.masks import Masks, half_neighbours
from mu2mpi.privacy.noise import CHUNK, MAX_NUMBER, derive_key, key_words, padded_zeros

FARTHEST = 12
"""Differences are taken between rounds that are less far apart."""

ROUNDS = [*range(1, 65), *(t for t in BOUNDARIES if t > 64)]

FEW_MACHINES, FEW_PIXELS = 3, 75
"""So many have long messages in all `ROUNDS`; more machines have short ones, of three chunks, in a few."""

MAX_GROUPS = 128
"""If there are more than twice as many ways to choose a group and who works together, so many are drawn."""

CIRCLE, COLLUDERS, EXAMINED = 300, 30, range(0, 300, 12)
"""Machines of a run, how many of them work together, and of which the neighbours are compared."""


class Group(NamedTuple):
    """Machines whose masks are added up, and those that know some of them."""

    machines: tuple[int, ...]
    known: tuple[int, ...]

    def __str__(self) -> str:
        machines, known = (", ".join(map(str, numbers)) for numbers in self)
        return f"the masks of machines {machines}" + f", less those that machines {known} know," * bool(known)


class MaskedMessages(Attack):
    """Attack the masks of groups of machines, and the choice of neighbours."""

    def applies(self, schedule: Schedule) -> bool:
        """Whether masks hide messages."""
        return hides_parts(schedule) and schedule.trust.shows_messages

    def run(self, view: View) -> Finding:
        """Attack few machines in many rounds, and all that are audited in few."""
        machines, colluders = view.schedule.machines, view.schedule.machines - view.schedule.parts
        sizes = {(FEW_MACHINES, min(colluders, 1)): (PIXELS, ROUNDS)}
        sizes.setdefault((machines, colluders), (FEW_PIXELS, ROUNDS[:FARTHEST]))
        refutations, key, groups, highest = [], derive_key(view.root, "noise", "masks"), 0, 0.0
        for (count, known), (pixels, rounds) in sizes.items():
            schedule, chosen = _schedule(view, count, known, pixels), list(groups_of(count, known, view.root))
            # Each half of a byte is tested in each chunk, and in differences.
            tests = 16 * max(1, len(chosen)) * (schedule.d // CHUNK + FARTHEST)
            threshold = math.log(tests * (len(sizes) + 1) / view.risk)
            faults, evidence = _mask_faults(schedule, key, rounds, chosen, threshold)
            refutations += faults
            groups, highest = groups + len(chosen), max(highest, evidence)
        if _common_neighbours(view) > math.log((len(sizes) + 1) / view.risk):
            refutations.append(
                "neighbours are not random: they follow each other, or are the same in two runs"
            )
        summary = (
            f"Masks of real messages in {len(ROUNDS)} rounds below 2^32: {groups} groups of machines; log "
            f"evidence of bytes that are not uniform {highest:.3g}, where more than {threshold:.3g} refutes."
        )
        return Finding(summary, tuple(refutations))


def _schedule(view: View, machines: int, colluders: int, pixels: int) -> Schedule:
    own = {"machines": machines, "colluders": colluders, "masks": view.schedule.server_options.masks}
    return replace(real_schedule(pixels, server=view.schedule.server, **own), rounds=MAX_NUMBER)


def groups_of(machines: int, colluders: int, seed: bytes) -> Iterator[Group]:
    """Yield groups of machines, each with so many others that work together: all there are, or some.

    The rest of the others is left out: it sends the opposite.
    """
    if math.comb(machines, colluders) * 2 ** (machines - colluders) <= 2 * MAX_GROUPS:
        for known in combinations(range(machines), colluders):
            others = [machine for machine in range(machines) if machine not in known]
            for size in range(1, len(others) // 2 + 1):
                yield from (Group(of, known) for of in combinations(others, size))
        return
    rng, most = np.random.default_rng(list(seed)), (machines - colluders) // 2
    for n in range(MAX_GROUPS if most else 0):
        # Machines by themselves, in pairs, and any number of them.
        size = min(n % 3 or int(rng.integers(1, most + 1)), most)
        order = rng.permutation(machines).tolist()
        yield Group(tuple(sorted(order[-size:])), tuple(sorted(order[:colluders])))


def _mask_faults(
    schedule: Schedule, key: bytes, rounds: list[int], groups: list[Group], threshold: float
) -> tuple[list[str], float]:
    """Say what is wrong with masks in some rounds, and what is the largest evidence against uniform bytes."""

    def act(rank: RecordedRank) -> tuple[Integers, Masks | None]:
        hosted, supply = range(rank.rank, rank.rank + 1), blank_supply(schedule)
        machines, server = machines_and_server(schedule, hosted, supply, rank, key_words(key))
        added = np.empty((len(rounds), schedule.d), np.int64)
        for of_round, t in zip(added, rounds, strict=True):
            rank.forget()
            server.round(t, machines, Stopwatch())
            of_round[...] = (rank.sent[0] - server.unmasked).ravel()
        return added, server.masks

    of_ranks, found, highest = on_ranks(schedule.machines, act), [], 0.0
    if np.any(left := np.add.reduce([added for added, _ in of_ranks]).any(axis=1)):
        found.append(f"masks of real messages do not cancel in round {rounds[left.argmax()]:,}")
    for group in groups:
        total: Integers = np.sum([of_ranks[machine][0] for machine in group.machines], axis=0)
        for machine, other in product(group.machines, group.known):
            masks = of_ranks[machine][1]
            if masks is not None and other in masks.others:
                total -= _masks_shared(masks.shared_with(other), schedule, rounds)
        first = total[:FARTHEST]
        tests = [(f"in chunk {k // CHUNK}", total[:, k : k + CHUNK]) for k in range(0, schedule.d, CHUNK)]
        tests += [(f"{lag} rounds apart", first[lag:] - first[:-lag]) for lag in range(1, len(first))]
        evidence, where = max((float(byte_evidence(words).max()), where) for where, words in tests)
        highest = max(highest, evidence)
        if evidence > threshold:
            found.append(f"{group} are not uniform modulo 2^64 {where} of real messages")
        # Among n uniform words any come twice, with either sign, with a probability below n^2 / 2^63.
        words = np.sort(np.minimum(total.view(np.uint64), (-total).view(np.uint64)), axis=None)
        if repeated := int(np.count_nonzero(words[1:] == words[:-1])):
            found.append(f"{group}: {repeated:,} words of real messages were used before")
    return found, highest


def _masks_shared(masks: Masks, schedule: Schedule, rounds: list[int]) -> Integers:
    found = []
    for t in rounds:
        flat, mask = padded_zeros((schedule.rows, schedule.features))
        masks.add(flat, t)
        found.append(mask.ravel())
    return np.array(found)


def _common_neighbours(view: View) -> float:
    """Evidence that neighbours follow each other by number, or are those of another run.

    The number of pairs that two circles in random order share is no larger than Poisson's, for which
    Chernoff's bound is taken: pairs are drawn without replacement.
    """
    schedule, half = _schedule(view, CIRCLE, COLLUDERS, 1), half_neighbours(CIRCLE, COLLUDERS)
    steps = [step for step in range(-half, half + 1) if step]
    graphs = [{frozenset((i, (i + step) % CIRCLE)) for i in EXAMINED for step in steps}]
    for run in range(2):
        key, graph = key_words(derive_key(view.root, "noise", f"circle {run}")), set()
        for i in EXAMINED:
            hosted, supply = range(i, i + 1), blank_supply(schedule)
            masks = machines_and_server(schedule, hosted, supply, Communicator(), key)[1].masks
            graph |= {frozenset((i, other)) for other in (masks.others.tolist() if masks else ())}
        graphs.append(graph)
    evidence, pairs = 0.0, len(EXAMINED) * (CIRCLE - 1) - math.comb(len(EXAMINED), 2)
    for one, other in combinations(graphs, 2):
        common, expected = len(one & other), len(one) * len(other) / pairs
        if common > expected:
            evidence = max(evidence, common * math.log(common / expected) - common + expected - math.log(3))
    return evidence
