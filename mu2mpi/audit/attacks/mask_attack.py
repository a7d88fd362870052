"""Masks of real messages: uniform and fresh to those who know some of them, and without effect on the sum.

Less the masks that colluders know, those of fewer than all others are uniform modulo 2^64, in each round and
in differences between rounds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.adversary_view import Finding, View, hides_parts
from mu2mpi.audit.canaries import BOUNDARIES, PIXELS, Integers, one_machine, real_schedule
from mu2mpi.audit.evidence import byte_evidence
from mu2mpi.audit.recorded_ranks import RecordedRank, on_ranks
from mu2mpi.federation.batching import Fresh
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.timer import Stopwatch
from mu2mpi.privacy.noise import masks
from mu2mpi.privacy.noise.noise_stream import CHUNK, MAX_NUMBER, derive_key, padded_zeros

FARTHEST = 12  # differences are taken between rounds that are less far apart
ROUNDS = [*range(1, 65), *(t for t in BOUNDARIES if t > 64)]
# So many machines have long messages in all rounds; more have short ones, of three chunks, in a few.
FEW_MACHINES, FEW_PIXELS = 3, 75
MAX_GROUPS = 128  # are drawn if there are more than twice as many
CIRCLE, COLLUDERS = 300, 30  # machines of runs of which the neighbours are compared


class Group(NamedTuple):
    """Machines whose masks are added up, and those that know some of them."""

    machines: tuple[int, ...]
    known: tuple[int, ...]

    def __str__(self) -> str:
        machines, known = (", ".join(map(str, numbers)) for numbers in self)
        return f"the masks of machines {machines}" + f", less those that machines {known} know," * bool(known)


def applies(constants: RunConstants) -> bool:
    """Whether masks hide messages."""
    return hides_parts(constants) and constants.task.trust.shows_messages


def run(view: View) -> Finding:
    """Attack few machines in many rounds, and all that are audited in few."""
    machines, colluders = view.constants.task.machines, view.constants.task.colluders
    sizes = {(FEW_MACHINES, min(colluders, 1)): (PIXELS, ROUNDS)}
    sizes.setdefault((machines, colluders), (FEW_PIXELS, ROUNDS[:FARTHEST]))
    refutations, key, groups, highest = [], derive_key(view.root, "noise", "masks"), 0, 0.0
    for (count, known), (pixels, rounds) in sizes.items():
        constants = _constants(view, count, known, pixels)
        chosen = list(groups_of(count, known, view.root))
        # Each half of a byte is tested in each chunk, and in differences.
        tests = 16 * max(1, len(chosen)) * (constants.task.d // CHUNK + FARTHEST)
        threshold = math.log(tests * (len(sizes) + 1) / view.risk)
        faults, evidence = _mask_faults(constants, key, rounds, chosen, threshold)
        refutations += faults
        groups, highest = groups + len(chosen), max(highest, evidence)
    if _common_neighbours(view.root) > math.log((len(sizes) + 1) / view.risk):
        refutations.append("neighbours are not random: they follow each other, or are the same in two runs")
    summary = (
        f"Masks of real messages in {len(ROUNDS)} rounds below 2^32: {groups} groups of machines; log "
        f"evidence of bytes that are not uniform {highest:.3g}, where more than {threshold:.3g} refutes."
    )
    return Finding(summary, tuple(refutations))


def _constants(view: View, machines: int, colluders: int, pixels: int) -> RunConstants:
    task, own = view.constants.task, {"machines": machines, "colluders": colluders}
    constants = real_schedule(pixels, server=task.server, masks=task.server_options.masks, **own)
    return replace(constants, sampling=Fresh(MAX_NUMBER, MAX_NUMBER))


def groups_of(machines: int, colluders: int, seed: bytes) -> Iterator[Group]:
    """Yield groups of at most half of the machines, each with so many colluders: all there are, or some."""
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
    constants: RunConstants, key: bytes, rounds: list[int], groups: list[Group], threshold: float
) -> tuple[list[str], float]:
    """Say what is wrong with masks in some rounds, and what is the largest evidence against uniform bytes."""
    d = constants.task.d

    def act(rank: RecordedRank) -> tuple[Integers, masks.Masks | None]:
        machines, server = one_machine(constants, rank.rank, rank, key)
        added = np.empty((len(rounds), d), np.int64)
        for of_round, t in zip(added, rounds, strict=True):
            rank.forget()
            server.round(t, machines, Stopwatch())
            of_round[...] = (rank.sent[0] - server.unmasked).ravel()
        return added, server.masks

    of_ranks, found, highest = on_ranks(constants.task.machines, act), [], 0.0
    if np.any(left := np.add.reduce([added for added, _ in of_ranks]).any(axis=1)):
        found.append(f"masks of real messages do not cancel in round {rounds[left.argmax()]:,}")
    for group in groups:
        total: Integers = np.sum([of_ranks[machine][0] for machine in group.machines], axis=0)
        for machine, other in product(group.machines, group.known):
            own = of_ranks[machine][1]
            if own is not None and other in own.others:
                total -= _masks_shared(own.shared_with(other), constants, rounds)
        first = total[:FARTHEST]
        tests = [(f"in chunk {k // CHUNK}", total[:, k : k + CHUNK]) for k in range(0, d, CHUNK)]
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


def _masks_shared(of_edge: masks.Masks, constants: RunConstants, rounds: list[int]) -> Integers:
    found = []
    for t in rounds:
        flat, mask = padded_zeros((constants.task.rows, constants.task.features))
        of_edge.add(flat, t)
        found.append(mask.ravel())
    return np.array(found)


def _common_neighbours(root: bytes) -> float:
    """Evidence, by Chernoff's bound, of more common pairs of neighbours than random circles have."""
    of_run = [masks.edges(CIRCLE, COLLUDERS, derive_key(root, "noise", f"circle {n}")) for n in range(2)]
    steps = range(1, masks.half_neighbours(CIRCLE, COLLUDERS) + 1)
    in_order = np.sort([(i, (i + step) % CIRCLE) for i in range(CIRCLE) for step in steps])
    graphs = [set(map(tuple, pairs.tolist())) for pairs in (in_order, *of_run)]
    evidence, pairs = 0.0, math.comb(CIRCLE, 2)
    for one, other in combinations(graphs, 2):
        common, expected = len(one & other), len(one) * len(other) / pairs
        if common > expected:
            evidence = max(evidence, common * math.log(common / expected) - common + expected - math.log(3))
    return evidence
