"""Attack on the masks of secure aggregation: they must be uniform, fresh, and cancel in the sum.

Without the masks that colluders know, the masks of a proper subset of the other machines must be uniform
modulo 2^64, in each round and in differences between rounds.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from mu2mpi.audit.adversary_view import AttackContext, Finding, hides_single_messages
from mu2mpi.audit.canaries import BOUNDARIES, PIXELS, realistic_constants, single_machine
from mu2mpi.audit.evidence import byte_evidence
from mu2mpi.audit.recorded_ranks import RecordedRank, run_on_ranks
from mu2mpi.core.arrays import IntArray
from mu2mpi.federation.batching import FreshSamples
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise import masks
from mu2mpi.privacy.noise.noise_stream import CHUNK, MAX_STREAM_INDEX, derive_key, padded_zeros

MAX_LAG = 12  # rounds between which differences are tested
TESTED_ROUNDS = [*range(1, 65), *(t for t in BOUNDARIES if t > 64)]
FEW_MACHINES = 3  # machines of the runs with long messages in all of `TESTED_ROUNDS`
SHORT_PIXELS = 75  # features of the short messages, of three chunks, of runs with more machines
MAX_GROUPS = 128  # random groups, where there are more than twice as many
RING_MACHINES = 300  # machines of the runs whose neighbours are compared
RING_COLLUDERS = 30  # colluders of these runs


class Group(NamedTuple):
    """Machines whose masks are summed, and the colluders that know some of the masks."""

    machines: tuple[int, ...]
    known: tuple[int, ...]

    def __str__(self) -> str:
        machines, known = (", ".join(map(str, numbers)) for numbers in self)
        return f"the masks of machines {machines}" + f", less those that machines {known} know," * bool(known)


def applies(constants: RunConstants) -> bool:
    """Whether secure aggregation masks the messages of the audited runs."""
    return hides_single_messages(constants) and constants.problem.trust_mode.reveals_messages


def run(context: AttackContext) -> Finding:
    """Test the masks of few machines in many rounds, and of all audited machines in few rounds."""
    machines, colluders = context.constants.problem.machines, context.constants.problem.colluders
    sizes = {(FEW_MACHINES, min(colluders, 1)): (PIXELS, TESTED_ROUNDS)}
    sizes.setdefault((machines, colluders), (SHORT_PIXELS, TESTED_ROUNDS[:MAX_LAG]))
    refutations, key, groups, highest = [], derive_key(context.root, "noise", "masks"), 0, 0.0
    for (count, known), (pixels, rounds) in sizes.items():
        constants = _masked_constants(context, count, known, pixels)
        tested = list(groups_of(count, known, context.root))
        # Each half-byte is tested in each chunk and in differences.
        tests = 16 * max(1, len(tested)) * (constants.problem.d // CHUNK + MAX_LAG)
        threshold = math.log(tests * (len(sizes) + 1) / context.risk)
        faults, evidence = _mask_faults(constants, key, rounds, tested, threshold)
        refutations += faults
        groups, highest = groups + len(tested), max(highest, evidence)
    if _common_neighbours(context.root) > math.log((len(sizes) + 1) / context.risk):
        refutations.append("mask neighbours are not random: they are consecutive, or the same in two runs")
    summary = (
        f"Masks of real messages in {len(TESTED_ROUNDS)} rounds below 2^32: {groups} groups of machines; log "
        f"evidence of bytes that are not uniform {highest:.3g}, where more than {threshold:.3g} refutes."
    )
    return Finding(summary, tuple(refutations))


def _masked_constants(context: AttackContext, machines: int, colluders: int, pixels: int) -> RunConstants:
    problem, sizes = context.constants.problem, {"machines": machines, "colluders": colluders}
    constants = realistic_constants(
        pixels, server=problem.server, masks=problem.server_options.masks, **sizes
    )
    return replace(constants, batching=FreshSamples(MAX_STREAM_INDEX, MAX_STREAM_INDEX))


def groups_of(machines: int, colluders: int, seed: bytes) -> Iterator[Group]:
    """Yield groups of at most half of the machines with colluders: all such groups, or random ones."""
    if math.comb(machines, colluders) * 2 ** (machines - colluders) <= 2 * MAX_GROUPS:
        for known in combinations(range(machines), colluders):
            honest = [machine for machine in range(machines) if machine not in known]
            for size in range(1, len(honest) // 2 + 1):
                yield from (Group(group, known) for group in combinations(honest, size))
        return
    rng, max_size = np.random.default_rng(list(seed)), (machines - colluders) // 2
    for n in range(MAX_GROUPS if max_size else 0):
        # Single machines, pairs, and groups of random size.
        size = min(n % 3 or int(rng.integers(1, max_size + 1)), max_size)
        order = rng.permutation(machines).tolist()
        yield Group(tuple(sorted(order[-size:])), tuple(sorted(order[:colluders])))


def _mask_faults(
    constants: RunConstants, key: bytes, rounds: list[int], groups: list[Group], threshold: float
) -> tuple[list[str], float]:
    """Return descriptions of faulty masks, and the largest evidence against uniform bytes of masks."""
    d = constants.problem.d

    def record_masks(rank: RecordedRank) -> tuple[IntArray, masks.Masks | None]:
        machines, server = single_machine(constants, rank.rank, rank, key)
        added = np.empty((len(rounds), d), np.int64)
        for row, t in zip(added, rounds, strict=True):
            rank.clear_record()
            server.run_round(t, machines, Timer())
            row[...] = (rank.sent[0] - server.unmasked).ravel()
        return added, server.masks

    records, faults, highest = run_on_ranks(constants.problem.machines, record_masks), [], 0.0
    if np.any(residual := np.add.reduce([added for added, _ in records]).any(axis=1)):
        faults.append(f"masks of real messages do not cancel in round {rounds[residual.argmax()]:,}")
    for group in groups:
        mask_sum: IntArray = np.sum([records[machine][0] for machine in group.machines], axis=0)
        for machine, colluder in product(group.machines, group.known):
            own = records[machine][1]
            if own is not None and colluder in own.peers:
                mask_sum -= _shared_masks(own.shared_with(colluder), constants, rounds)
        first = mask_sum[:MAX_LAG]
        tests = [(f"in chunk {k // CHUNK}", mask_sum[:, k : k + CHUNK]) for k in range(0, d, CHUNK)]
        tests += [(f"{lag} rounds apart", first[lag:] - first[:-lag]) for lag in range(1, len(first))]
        evidence, where = max((float(byte_evidence(values).max()), where) for where, values in tests)
        highest = max(highest, evidence)
        if evidence > threshold:
            faults.append(f"{group} are not uniform modulo 2^64 {where} of real messages")
        # Among n uniform values, any two coincide up to sign with a probability below n^2 / 2^63.
        values = np.sort(np.minimum(mask_sum.view(np.uint64), (-mask_sum).view(np.uint64)), axis=None)
        if repeated := int(np.count_nonzero(values[1:] == values[:-1])):
            faults.append(f"{group}: {repeated:,} masks of real messages were used before")
    return faults, highest


def _shared_masks(pair_masks: masks.Masks, constants: RunConstants, rounds: list[int]) -> IntArray:
    rows = []
    for t in rounds:
        flat, mask = padded_zeros((constants.problem.rows, constants.problem.features))
        pair_masks.add(flat, t)
        rows.append(mask.ravel())
    return np.array(rows)


def _common_neighbours(root: bytes) -> float:
    """Return evidence by Chernoff's bound that mask neighbours coincide more often than in random rings."""
    keys = [derive_key(root, "noise", f"circle {n}") for n in range(2)]
    rings = [masks.edges(RING_MACHINES, RING_COLLUDERS, key) for key in keys]
    steps = range(1, masks.neighbours_per_side(RING_MACHINES, RING_COLLUDERS) + 1)
    in_order = np.sort([(i, (i + step) % RING_MACHINES) for i in range(RING_MACHINES) for step in steps])
    graphs = [set(map(tuple, pairs.tolist())) for pairs in (in_order, *rings)]
    evidence, pairs = 0.0, math.comb(RING_MACHINES, 2)
    for first, second in combinations(graphs, 2):
        common, expected = len(first & second), len(first) * len(second) / pairs
        if common > expected:
            evidence = max(evidence, common * math.log(common / expected) - common + expected - math.log(3))
    return evidence
