"""Exact sampler of centred binomial noise, Bin(2 n, 1/2) - n, as a function of (key, stream, machine, round).

Rejection sampling: a table of blocks proposes x, which is accepted with probability p(x) / bound, decided by
64 random bits and floating point, or if these are too close, by further bits and 300 decimals. The
distribution is truncated at `TRUNCATION_STDS` standard deviations.
"""

import hashlib
import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
from numba import int64, uint32, uint64
from numpy.typing import NDArray

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import aligned_empty, inline, kernel
from mu2mpi.privacy.noise.chacha20 import KEYSTREAM_BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import CHUNK_WORDS, Key, StreamRange
from mu2mpi.privacy.noise.sampler_error import MIN_FAIR_BITS, TRUNCATION_STDS

# Base of the first word of the nonce, distinct from those of all other keystreams; the noise stream is added.
_NONCE_BASE = 0x62696E00
MAX_FAIR_BITS = 2**58  # more would overflow integers
_PROPOSAL_BLOCKS_PER_STD = 16  # approximate number of blocks per standard deviation
BLOCK_CHOICE_BITS = 32  # random bits that choose a block
GUIDE_TABLE_BITS = 8  # leading ones of these, which index the guide table
# Distance of 64 random bits from a probability below which further bits decide, far above rounding errors
ACCEPTANCE_MARGIN = 2.0**-38
_EXACT_DECISION_DIGITS = 300  # decimals of exact decisions
_STIRLING_TERMS = 42  # terms of Stirling's series for so many decimals


class ProposalTable(NamedTuple):
    """Proposal distribution for Bin(2 n, 1/2) - n: sign, block of magnitudes, and offset in the block."""

    n: int
    block_bits: int  # a block holds 2^block_bits magnitudes
    # Factor on p(x) / p(0), such that it is at most the number of choices of the block of x
    normalizer: float
    acceptance_factors: FloatArray  # shape (blocks,): `normalizer` over the number of choices of each block
    cumulative_choices: NDArray[np.uint64]  # shape (blocks,): of the 2^BLOCK_CHOICE_BITS choices of a block
    guide_table: IntArray  # shape (2^GUIDE_TABLE_BITS,): first block for the leading bits of a choice


@cache
def proposal_table(fair_bits: int) -> ProposalTable:
    """Build the proposal table of the noise of an even number of fair coins, `fair_bits`."""
    if fair_bits % 2 or not MIN_FAIR_BITS <= fair_bits <= MAX_FAIR_BITS:
        raise ValueError(f"{fair_bits} coins are not an even number from {MIN_FAIR_BITS} to {MAX_FAIR_BITS}")
    n = fair_bits // 2
    noise_std = math.sqrt(n / 2)
    block_bits = math.floor(math.log2(noise_std / _PROPOSAL_BLOCKS_PER_STD))
    blocks = math.ceil(TRUNCATION_STDS * noise_std / 2**block_bits)
    # p decreases, so that the first magnitude of a block bounds it; the margin covers rounding errors.
    starts = (float(k << block_bits) for k in range(blocks))
    bounds = [math.exp(log_pmf_ratio(float(n), x)) * (1 + 2.0**-30) for x in starts]
    normalizer = (2**BLOCK_CHOICE_BITS - blocks - 1) / math.fsum(bounds)
    choices = [math.ceil(normalizer * bound) for bound in bounds]
    choices[0] += 2**BLOCK_CHOICE_BITS - sum(choices)
    cumulative_choices = np.cumsum(choices, dtype=np.uint64)
    prefixes = np.arange(2**GUIDE_TABLE_BITS, dtype=np.uint64)
    first_choices = prefixes << np.uint64(BLOCK_CHOICE_BITS - GUIDE_TABLE_BITS)
    acceptance_factors = normalizer / np.array(choices)
    guide_table = np.searchsorted(cumulative_choices, first_choices, side="right").astype(np.int64)
    return ProposalTable(n, block_bits, normalizer, acceptance_factors, cumulative_choices, guide_table)


@kernel
def log_pmf_ratio(n, x):  # type: ignore[no-untyped-def]
    """Compute log(p(x) / p(0)) of Bin(2 n, 1/2) - n for |x| <= 76 sqrt(n / 2), by Stirling's series."""
    square = (x / n) * (x / n)
    series = 0.0
    for k in range(12, 0, -1):  # further terms are below 10^-15
        series = square * (series + (0.5 - n / (2.0 * k - 1.0)) / k)
    return series - square / (6.0 * n * (1.0 - square))


@inline
def _choose_block(table, uniform_bits):  # type: ignore[no-untyped-def]
    choice = uniform_bits >> uint64(64 - BLOCK_CHOICE_BITS)
    k = table.guide_table[choice >> uint64(BLOCK_CHOICE_BITS - GUIDE_TABLE_BITS)]
    while choice >= table.cumulative_choices[k]:
        k += 1
    return k


@kernel
def add_binomial_noise(  # type: ignore[no-untyped-def]
    noised, message, key, stream, first_machine, machines, t, d, table, acceptance_margin, undecided_proposals
):
    """Set ``noised`` to ``message`` plus round t's binomial noise of consecutive machines, or of the server.

    Noise goes into the first d coordinates; ``table`` is a `ProposalTable`. Returns the number of proposals
    closer to their acceptance probability than ``acceptance_margin``. These are skipped and listed in order
    in ``undecided_proposals``, shape (room, 6): machine, coordinate, proposal, block, random bits, and the
    draw in its place.
    """
    keystream = aligned_empty(CHUNK_WORDS).view(np.uint64)
    number = 0
    noised[:] = message
    mask = (int64(1) << table.block_bits) - 1
    for machine in range(first_machine, first_machine + machines):
        counter, place = 0, CHUNK_WORDS
        for i in range(min(d, message.size)):
            before = number
            while True:
                if place == CHUNK_WORDS:
                    words, nonce = keystream.view(np.uint32), uint32(_NONCE_BASE + stream)
                    fill_keystream(words, key, uint32(counter), nonce, uint32(machine), uint32(t))
                    counter, place = counter + KEYSTREAM_BLOCKS, 0
                uniform_bits, uniform = keystream[place], keystream[place + 1]
                place += 2
                k = _choose_block(table, uniform_bits)
                x = (int64(k) << table.block_bits) + (int64(uniform_bits >> uint64(1)) & mask)
                if uniform_bits & uint64(1):
                    if x == 0:  # is proposed with one sign only
                        continue
                    x = -x
                p = math.exp(log_pmf_ratio(np.float64(table.n), np.float64(x))) * table.acceptance_factors[k]
                margin = np.float64(uniform) * 2.0**-64 - p
                if margin > acceptance_margin:
                    continue
                if margin >= -acceptance_margin:
                    if number < undecided_proposals.shape[0]:
                        row = undecided_proposals[number]
                        row[0], row[1], row[2], row[3], row[4] = machine, i, x, k, int64(uniform)
                    number += 1
                    continue
                noised[i] += x
                for j in range(before, min(number, undecided_proposals.shape[0])):
                    undecided_proposals[j, 5] = x
                break
    return number


class BinomialNoiseSource:
    """Source of binomial noise of `fair_bits` fair coins per machine in the first d coordinates."""

    def __init__(
        self, key: Key, streams: StreamRange, fair_bits: int, d: int, margin: float = ACCEPTANCE_MARGIN
    ) -> None:
        if d > 2**30:  # the block counter has 32 bits, and a coordinate takes some 20 bytes
            raise InputError(f"Binomial noise supports at most {2**30} parameters, got {d}.")
        self._key, self._streams, self._d, self._acceptance_margin = key, streams, d, margin
        self._table = proposal_table(fair_bits)
        self._undecided_proposals = np.empty((64, 6), np.int64)

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the binomial noise of round t."""
        parameters = self._d, self._table, self._acceptance_margin, self._undecided_proposals
        number = add_binomial_noise(noised, message, self._key, *self._streams, t, *parameters)
        if number > len(self._undecided_proposals):
            self._undecided_proposals = np.empty((2 * number, 6), np.int64)
            return self(noised, message, t)
        accepted: set[tuple[int, int]] = set()
        for machine, i, x, k, bits, replacement in self._undecided_proposals[:number].tolist():
            if (machine, i) not in accepted and self._accepts_proposal(machine, i, x, k, bits, t):
                accepted.add((machine, i))
                noised[i] += x - replacement
        return None

    def _accepts_proposal(self, machine: int, i: int, x: int, block: int, uniform_bits: int, t: int) -> bool:
        """Decide exactly whether proposal x is accepted, by further random bits of SHAKE-256."""
        seed = self._key.astype("<u4").tobytes()
        seed += f"{self._streams[0]} {machine} {t} {i} {x} {block} {uniform_bits}".encode()
        further_bits = hashlib.shake_256(seed).digest(_EXACT_DECISION_DIGITS // 2)
        uniform = (uniform_bits % 2**64 << 8 * len(further_bits)) + int.from_bytes(further_bits, "little")
        return accepts_proposal(self._table, block, x, Fraction(uniform, 2 ** (64 + 8 * len(further_bits))))


def accepts_proposal(table: ProposalTable, block: int, x: int, uniform: Fraction) -> bool:
    """Whether a uniform number in [0, 1) is below the acceptance probability of proposal x in a block."""
    choices = int(table.cumulative_choices[block]) - int(table.cumulative_choices[block - 1] if block else 0)
    bound = uniform * choices / Fraction(table.normalizer)  # not by the acceptance factor, which is rounded
    with localcontext(Context(prec=_EXACT_DECISION_DIGITS + 40)):
        n, relative_bound = table.n, Decimal(bound.numerator) / Decimal(bound.denominator)
        log = 2 * _log_factorial(n) - _log_factorial(n + x) - _log_factorial(n - x)
        return relative_bound < log.exp()


def _log_factorial(n: int) -> Decimal:
    """Compute log n! - log sqrt(2 pi) by a truncated Stirling series."""
    m = Decimal(n)
    log = (m + Decimal("0.5")) * m.ln() - m
    for k, number in enumerate(_bernoulli_numbers(), 1):
        log += Decimal(number.numerator) / (number.denominator * 2 * k * (2 * k - 1) * m ** (2 * k - 1))
    return log


@cache
def _bernoulli_numbers() -> list[Fraction]:
    numbers = [Fraction(1)]
    for m in range(1, 2 * _STIRLING_TERMS + 1):
        numbers.append(-sum(math.comb(m + 1, k) * b for k, b in enumerate(numbers)) / Fraction(m + 1))
    return numbers[2::2]
