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
from mu2mpi.audit.canaries import BOUNDARY_INDICES, MNIST_PIXELS, create_single_machine, mnist_sized_constants
from mu2mpi.audit.evidence import uneven_byte_evidence
from mu2mpi.audit.recorded_ranks import RecordedRank, run_on_ranks
from mu2mpi.core.arrays import IntArray
from mu2mpi.federation.batching import FreshSamples
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise import masks
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, MAX_STREAM_INDEX, derive_key, padded_zeros

MAX_ROUND_LAG = 12  # rounds between which differences are tested
TESTED_ROUNDS = [*range(1, 65), *(t for t in BOUNDARY_INDICES if t > 64)]
LONG_MESSAGE_TEST_MACHINES = 3  # machines of the runs with long messages in all of `TESTED_ROUNDS`
SHORT_MESSAGE_TEST_PIXELS = 75  # features of the short messages, of three chunks, of runs with more machines
MAX_MACHINE_GROUPS = 128  # random groups, where there are more than twice as many


class MachineGroup(NamedTuple):
    """Machines whose masks are summed, and the colluders that know some of the masks."""

    machines: tuple[int, ...]
    colluders: tuple[int, ...]

    def __str__(self) -> str:
        machines, known = (", ".join(map(str, numbers)) for numbers in self)
        return f"the masks of machines {machines}" + f", less those that machines {known} know," * bool(known)


def attack_applies(constants: RunConstants) -> bool:
    """Whether secure aggregation masks the messages of the audited runs."""
    return hides_single_messages(constants) and constants.problem.trust_mode.reveals_messages


def run_attack(context: AttackContext) -> Finding:
    """Test the masks of few machines in many rounds, and of all audited machines in few rounds."""
    problem = context.constants.problem
    machines, colluders = problem.machines, problem.colluders
    servers = {"server": problem.server, "masks": problem.server_options.masks}
    batching = FreshSamples(MAX_STREAM_INDEX, MAX_STREAM_INDEX)
    sizes = {(LONG_MESSAGE_TEST_MACHINES, min(colluders, 1)): (MNIST_PIXELS, TESTED_ROUNDS)}
    sizes.setdefault((machines, colluders), (SHORT_MESSAGE_TEST_PIXELS, TESTED_ROUNDS[:MAX_ROUND_LAG]))
    refutations, key, n_groups, highest = [], derive_key(context.root_key, "noise", "masks"), 0, 0.0
    for (count, known), (pixels, rounds) in sizes.items():
        constants = mnist_sized_constants(pixels, machines=count, colluders=known, **servers)
        constants = replace(constants, batching=batching)
        groups = list(machine_groups(count, known, context.root_key))
        # Each half-byte is tested in each chunk and in differences.
        tests = 16 * max(1, len(groups)) * (constants.problem.d // CHUNK_WORDS + MAX_ROUND_LAG)
        threshold = math.log(tests * len(sizes) / context.error_probability)
        faults, evidence = _mask_faults(constants, key, rounds, groups, threshold)
        refutations += faults
        n_groups, highest = n_groups + len(groups), max(highest, evidence)
    summary = (
        f"Masks of real messages in {len(TESTED_ROUNDS)} rounds below 2^32: {n_groups} groups of machines; "
        f"log evidence of bytes that are not uniform {highest:.3g}, where more than {threshold:.3g} refutes."
    )
    return Finding(summary, tuple(refutations))


def machine_groups(machines: int, colluders: int, root_key: bytes) -> Iterator[MachineGroup]:
    """Yield groups of at most half of the machines with colluders: all such groups, or random ones."""
    if math.comb(machines, colluders) * 2 ** (machines - colluders) <= 2 * MAX_MACHINE_GROUPS:
        for known in combinations(range(machines), colluders):
            honest = [machine for machine in range(machines) if machine not in known]
            for size in range(1, len(honest) // 2 + 1):
                yield from (MachineGroup(group, known) for group in combinations(honest, size))
        return
    rng, max_size = np.random.default_rng(list(root_key)), (machines - colluders) // 2
    for n in range(MAX_MACHINE_GROUPS if max_size else 0):
        # Single machines, pairs, and groups of random size.
        size = min(n % 3 or int(rng.integers(1, max_size + 1)), max_size)
        order = rng.permutation(machines).tolist()
        yield MachineGroup(tuple(sorted(order[-size:])), tuple(sorted(order[:colluders])))


def _mask_faults(
    constants: RunConstants, key: bytes, rounds: list[int], groups: list[MachineGroup], min_evidence: float
) -> tuple[list[str], float]:
    """Return descriptions of faulty masks, and the largest evidence against uniform bytes of masks."""
    d = constants.problem.d

    def record_masks(rank: RecordedRank) -> tuple[IntArray, masks.Masks | None]:
        machines, server = create_single_machine(constants, rank.rank, rank, key)
        added = np.empty((len(rounds), d), np.int64)
        for row, t in zip(added, rounds, strict=True):
            rank.clear_record()
            server.run_round(t, machines, Timer())
            row[...] = (rank.sent[0] - server.unmasked_message).ravel()
        return added, server.masks

    records, faults, highest = run_on_ranks(constants.problem.machines, record_masks), [], 0.0
    if np.any(residual := np.add.reduce([added for added, _ in records]).any(axis=1)):
        faults.append(f"masks of real messages do not cancel in round {rounds[residual.argmax()]:,}")
    for group in groups:
        mask_sum: IntArray = np.sum([records[machine][0] for machine in group.machines], axis=0)
        for machine, colluder in product(group.machines, group.colluders):
            own = records[machine][1]
            if own is not None and colluder in own.peers:
                shared = own.masks_shared_with(colluder)
                for row, t in zip(mask_sum, rounds, strict=True):
                    flat, mask = padded_zeros((constants.problem.model_rows, constants.problem.features))
                    shared.add(flat, t)
                    row -= mask.ravel()
        early = mask_sum[:MAX_ROUND_LAG]
        starts = range(0, d, CHUNK_WORDS)
        tests = [(f"in chunk {n}", mask_sum[:, k : k + CHUNK_WORDS]) for n, k in enumerate(starts)]
        tests += [(f"{lag} rounds apart", early[lag:] - early[:-lag]) for lag in range(1, len(early))]
        evidence, where = max((float(uneven_byte_evidence(values).max()), where) for where, values in tests)
        highest = max(highest, evidence)
        if evidence > min_evidence:
            faults.append(f"{group} are not uniform modulo 2^64 {where} of real messages")
        # Among n uniform values, any two coincide up to sign with a probability below n^2 / 2^63.
        values = np.sort(np.minimum(mask_sum.view(np.uint64), (-mask_sum).view(np.uint64)), axis=None)
        if repeated := int(np.count_nonzero(values[1:] == values[:-1])):
            faults.append(f"{group}: {repeated:,} masks of real messages were used before")
    return faults, highest
