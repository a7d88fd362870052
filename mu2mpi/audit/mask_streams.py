"""Masks of messages of real size, in many rounds: uniform in every chunk, never repeated, and cancelling."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.boundaries import boundary_numbers
from mu2mpi.audit.canaries import Numbered
from mu2mpi.audit.check import Check
from mu2mpi.audit.chi_square import chi_square_evidence
from mu2mpi.audit.residues import VALUES
from mu2mpi.audit.tails import CLASSES, PIXELS, RHOS, ROUNDS, blank_supply, noise_experiment
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.execution.plan import resolve
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.federation.stopwatch import Stopwatch
from mu2mpi.privacy.masks import Masks
from mu2mpi.privacy.noise import CHUNK, MAX_NUMBER, derive_key, key_words, padded_zeros

Words = NDArray[np.uint64]

MAX_MACHINES = 4
"""Machines with a rank each, at most; other numbers of machines differ in their edges alone."""

CONSECUTIVE = 65
"""Consecutive rounds, counted from round 0, which there is not."""

LOWEST_BIT = 8
"""Exponent of the first power of two near which there are further rounds."""

BYTES = 8
"""Bytes of a mask."""


def check_mask_streams(audited: Schedule, root: bytes, risk: float) -> Check:
    """Attack the masks of messages of real size.

    The mask of a machine is the difference between what leaves its rank and its unmasked message; the mask of
    an edge is the part that both of its machines know.

    Parameters
    ----------
    audited : Schedule
        Constants of the audited runs, of a server with masks.
    root : bytes
        Secret of 32 bytes from which the keys follow.
    risk : float
        Largest probability of a complaint about faultless masks.
    """
    machines = min(audited.machines, MAX_MACHINES)
    colluders = min(audited.machines - audited.parts, machines - 1)
    schedule = schedule_with_masks(machines, colluders, audited.server_options.masks)
    key = derive_key(root, "noise", "masks")
    rounds = boundary_numbers(CONSECUTIVE, LOWEST_BIT)[1:]
    of_ranks = on_ranks(schedule.machines, lambda rank: _masks_of_rank(rank, schedule, key, rounds))
    of_machines, of_edges = zip(*of_ranks, strict=True)
    refutations = []
    total: Words = np.add.reduce(of_machines)
    if (left := np.flatnonzero(total.any(axis=1))).size:
        refutations.append(f"masks of real messages do not cancel in round {rounds[left[0]]:,}")
    edges = [mask for masks in of_edges for mask in masks]
    # Of either kind, each byte is tested in every chunk and in all; repeated words have the rest of the risk.
    chunks = -(-schedule.d // CHUNK)
    threshold, highest = math.log(2 * BYTES * (chunks + 1) / (risk / 2)), 0.0
    for name, masks in (("machines", of_machines), ("pairs of machines", edges)):
        if len(masks):
            evidence, where = _farthest_from_uniform(masks)
            highest = max(highest, evidence)
            if evidence > threshold:
                refutations.append(f"masks of {name} are not uniform modulo 2^64 in {where} of real messages")
            if repeated := _repeated_words(masks):
                refutations.append(f"masks of {name}: {repeated:,} words of real messages were used before")
    summary = (
        f"Masks of real messages: {len(rounds)} rounds below 2^32 of {schedule.machines} machines, "
        f"{len(edges)} pairs with a key; log evidence of bytes that are not uniform {highest:.3g}, where "
        f"more than {threshold:.3g} refutes."
    )
    return Check(summary, tuple(refutations))


def schedule_with_masks(machines: int, colluders: int, masks: str) -> Schedule:
    """Constants of a run with real messages, of as many rounds as there can be."""
    own = {"machines": machines, "colluders": colluders, "masks": masks}
    experiment = noise_experiment("aggregated", RHOS[0], None, **own)
    schedule = resolve(experiment, Numbered(machines * ROUNDS, CLASSES, PIXELS), 1).schedule
    return replace(schedule, rounds=MAX_NUMBER)


def _masks_of_rank(
    rank: RecordedRank, schedule: Schedule, key: bytes, rounds: list[int]
) -> tuple[Words, list[Words]]:
    """Masks of the machine on a rank, and of its edges with machines of larger numbers.

    Each has the shape (rounds, d).
    """
    hosted = range(rank.rank, rank.rank + 1)
    machines, server = machines_and_server(schedule, hosted, blank_supply(schedule), rank, key_words(key))
    found = np.empty((len(rounds), schedule.d), np.uint64)
    for of_round, t in zip(found, rounds, strict=True):
        server.round(t, machines, Stopwatch())
        (sent,), unmasked = rank.sent, server.unmasked
        if unmasked is None:
            raise RuntimeError("the server keeps no unmasked messages")
        of_round[...] = (sent - unmasked).ravel().view(np.uint64)
        rank.sent.clear()
        rank.received.clear()
    if (masks := server.masks) is None:
        return found, []
    others = [other for other in masks.others.tolist() if other > rank.rank]
    return found, [_masks_of_edge(masks.shared_with(other), schedule, rounds) for other in others]


def _masks_of_edge(masks: Masks, schedule: Schedule, rounds: list[int]) -> Words:
    found = np.empty((len(rounds), schedule.d), np.uint64)
    for of_round, t in zip(found, rounds, strict=True):
        flat, mask = padded_zeros((schedule.rows, schedule.features))
        masks.add(flat, t)
        of_round[...] = mask.ravel().view(np.uint64)
    return found


def _farthest_from_uniform(masks: Sequence[Words]) -> tuple[float, str]:
    """Largest evidence against uniform bytes, of a chunk or of all, and where it was found."""
    d = masks[0].shape[1]
    shape = -(-d // CHUNK), BYTES, VALUES
    # Where the counts of each byte of each coordinate begin.
    starts = np.arange(0, math.prod(shape), VALUES).reshape(shape[:2]).repeat(CHUNK, axis=0)[:d]
    counts = np.zeros(shape, np.int64)
    for of_one in masks:
        places = of_one.astype("<u8", copy=False).view(np.uint8).reshape(-1, d, BYTES) + starts
        counts += np.bincount(places.ravel(), minlength=counts.size).reshape(shape)
    evidence = chi_square_evidence(np.concatenate([counts, counts.sum(axis=0, keepdims=True)]))
    chunk, byte = np.unravel_index(evidence.argmax(), evidence.shape)
    where = (
        f"bits {8 * byte} to {8 * byte + 7} of {'all chunks' if chunk == len(counts) else f'chunk {chunk}'}"
    )
    return float(evidence.max()), where


def _repeated_words(masks: Sequence[Words]) -> int:
    """Count words that occurred before, with either sign.

    Among n uniform words there are any with a probability below n^2 / 2^64: 10^-5 for 10^7.
    """
    words = np.concatenate([of_one.ravel() for of_one in masks])
    np.minimum(words, -words, out=words)
    words.sort()
    return int(np.count_nonzero(words[1:] == words[:-1]))
