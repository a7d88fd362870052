"""Masks against ChaCha20 and circles in plain Python: they cancel, hide each message, and hold together."""

import math
from itertools import combinations

import numpy as np
import pytest
from helpers import reference as ref
from helpers.property_tests import given
from hypothesis import strategies as st
from scipy import stats

from mu2mpi.core.parallel import block_range
from mu2mpi.privacy.noise.masks import (
    STATISTICAL_SECURITY_BITS,
    Masks,
    edge_key,
    mask_edges,
    mask_neighbours_per_side,
)
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS

keys = st.binary(min_size=32, max_size=32)
BATCH_NONCE_WORD = int.from_bytes(b"ksam", "little")


def plain_mask(root, i, j, t, chunks):
    """The keystream of an edge in a round, by the block function in plain Python."""
    key = np.asarray(edge_key(root, i, j), "<u4").tobytes()
    return np.concatenate([ref.noise_words(key, (BATCH_NONCE_WORD, 0, t), chunk) for chunk in range(chunks)])


def masked(masks, t, size=CHUNK_WORDS):
    """What masks add to a message of zeros."""
    message = np.zeros(size, np.int64)
    masks.add(message, t)
    return message.view(np.uint64)


@st.composite
def federations(draw, most=24):
    machines = draw(st.integers(1, most))
    return machines, draw(st.integers(0, machines - 1))


@given(federations(), st.integers(1, 30), st.booleans(), keys, st.integers(1, 2**32 - 1), max_examples=40)
def test_masks_cancel_on_any_ranks_and_messages_come_through(federation, ranks, every, root, t):
    machines, colluders = federation
    rng = np.random.default_rng(list(root))
    total, expected = np.zeros(CHUNK_WORDS, np.uint64), np.zeros(CHUNK_WORDS, np.uint64)
    for rank in range(ranks):
        message = rng.integers(-(2**63), 2**63, CHUNK_WORDS)
        expected += message.view(np.uint64)
        Masks(machines, colluders, root, block_range(machines, ranks, rank), every).add(message, t)
        total += message.view(np.uint64)
    np.testing.assert_array_equal(total, expected)


@given(federations(), st.integers(2, 5), keys, max_examples=25)
def test_what_leaves_a_rank_is_the_same_if_all_masks_are_computed(federation, ranks, root):
    machines, colluders = federation
    for rank in range(ranks):
        hosted_machines = block_range(machines, ranks, rank)
        crossing, all_of_them = (
            Masks(machines, colluders, root, hosted_machines, every) for every in (False, True)
        )
        np.testing.assert_array_equal(masked(crossing, 3), masked(all_of_them, 3))
        # Where there is another rank with machines, something hides what leaves this one.
        assert bool(crossing) == (0 < len(hosted_machines) < machines)


@given(federations(6), st.integers(1, 3), st.integers(1, 2**32 - 1), keys, max_examples=4)
def test_a_machine_adds_the_keystreams_of_its_edges_or_takes_them_away(federation, chunks, t, root):
    machines, colluders = federation
    pairs = mask_edges(machines, colluders, root).tolist()
    for machine in (0, machines - 1):
        expected = np.zeros(chunks * CHUNK_WORDS, np.uint64)
        for i, j in pairs:
            if machine in (i, j):
                mask = plain_mask(root, i, j, t, chunks)
                expected += mask if machine == i else -mask
        for every in (False, True):
            masks = Masks(machines, colluders, root, range(machine, machine + 1), every)
            np.testing.assert_array_equal(masked(masks, t, chunks * CHUNK_WORDS), expected)


@pytest.mark.parametrize("group", [{0}, {4}, {0, 1}, {2, 5, 6}, {0, 1, 2, 3, 4, 5}])
def test_the_masked_sum_of_some_machines_is_uniform(group):
    """Bytes of the sums of each group but all seven, over rounds: each test fails with probability 1e-5."""
    pairs = mask_edges(7, 2, bytes(32))
    total = np.zeros(64 * CHUNK_WORDS, np.uint64)
    for machine in group:
        masks = Masks(7, 2, bytes(32), range(machine, machine + 1), includes_internal=True)
        total += np.concatenate([masked(masks, t) for t in range(1, 65)])
    # Of edges within the group nothing is left.
    assert any((i in group) != (j in group) for i, j in pairs.tolist())
    for shift in (0, 24, 56):
        counts = np.bincount((total >> np.uint64(shift)).astype(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-5


# --------------------------------------------------------------------------------------- who is connected


def is_connected(machines, pairs):
    """Whether pairs hold the machines together, by search."""
    reached, waiting = set(), [next(iter(machines))]
    while waiting:
        machine = waiting.pop()
        if machine not in reached:
            reached.add(machine)
            waiting += [b for pair in pairs for a, b in (pair, pair[::-1]) if a == machine and b in machines]
    return reached == set(machines)


def formula(machines, colluders, half):
    """A bound on that: over pairs of places, that runs of `half` colluders begin at both."""
    both = math.comb(machines - 2 * half, colluders - 2 * half) if colluders >= 2 * half else 0
    return math.comb(machines, 2) * both / math.comb(machines, colluders)


@given(st.integers(1, 5000), st.floats(0, 1), max_examples=60)
def test_neighbours_are_the_fewest_for_which_the_formula_is_small(machines, share):
    colluders = min(machines - 1, round(share * machines))
    half = mask_neighbours_per_side(machines, colluders)
    is_complete = 2 * half >= machines - 1
    assert is_complete or formula(machines, colluders, half) < 2.0**-STATISTICAL_SECURITY_BITS
    assert half == 1 or 2 * (half - 1) < machines - 1
    assert half == 1 or formula(machines, colluders, half - 1) >= 2.0**-STATISTICAL_SECURITY_BITS * (1 - 1e-9)


@given(federations(40), keys, max_examples=40)
def test_neighbours_are_on_a_circle_and_hold_together_whoever_does_not_collude(federation, root):
    machines, colluders = federation
    pairs = mask_edges(machines, colluders, root)
    assert len({frozenset(pair) for pair in pairs.tolist()}) == len(pairs)
    assert np.all(pairs[:, 0] < pairs[:, 1])
    degrees = np.bincount(pairs.ravel(), minlength=machines)
    assert np.all(degrees == min(2 * mask_neighbours_per_side(machines, colluders), machines - 1))
    known = set(np.random.default_rng(list(root)).choice(machines, colluders, replace=False).tolist())
    assert is_connected(set(range(machines)) - known, pairs.tolist())


def test_neighbours_are_random():
    """Rings of different runs share as few pairs with each other, and with the order, as random ones do."""
    machines = 300
    rings = [mask_edges(machines, 30, bytes([k]) * 32) for k in range(3)]
    steps = range(1, mask_neighbours_per_side(machines, 30) + 1)
    rings.append(np.sort([(i, (i + step) % machines) for i in range(machines) for step in steps]))
    for one, other in combinations([{*map(tuple, pairs.tolist())} for pairs in rings], 2):
        expected = len(one) * len(other) / math.comb(machines, 2)
        assert len(one & other) < expected + 6 * math.sqrt(expected)
