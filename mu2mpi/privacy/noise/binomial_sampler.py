"""Exact draws of centred binomial noise, Bin(2 n, 1/2) - n, as a function of (key, who, round).

A draw is proposed from a table of blocks, and accepted with the probability p(x) / bound: by 64 random bits
and a floating-point number, and where these are too close to tell, by further bits and 300 decimals. What
lies beyond `FARTHEST` standard deviations is never drawn.
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

from mu2mpi.core.errors import InputError
from mu2mpi.core.kernels import inline, kernel, scratch
from mu2mpi.privacy.noise.chacha20 import BLOCKS, fill_keystream
from mu2mpi.privacy.noise.noise_stream import CHUNK
from mu2mpi.privacy.noise.sampler_error import FARTHEST, FEWEST_COINS

Integers = NDArray[np.int64]
Words = NDArray[np.uint32]

# First word of the nonce, unlike those of all other keystreams; whose noise it is, is added
_USE = 0x62696E00
MOST_FLIPS = 2**58  # of coins whose number of heads is drawn: of more, integers would be too large
# Blocks are about as wide as this share of a standard deviation, and one is chosen by so many random
# bits, of which the first point to where to look for it
_BLOCKS_A_DEVIATION, TABLE_BITS, GUIDE_BITS = 16, 32, 8
# How close 64 random bits may be to a probability before more decide: far more than its error
CLOSE = 2.0**-38
# Decimals by which the others are decided, and terms of Stirling's series that they take
_DIGITS, _BERNOULLI = 300, 42


class Table(NamedTuple):
    """How Bin(2 n, 1/2) - n is proposed: a sign, a block of magnitudes, and a place in it."""

    n: int
    bits: int  # a block holds 2^bits magnitudes
    whole: float  # of 2^TABLE_BITS numbers, p(x) / p(0) times as many are enough for the x of a block
    heights: NDArray[np.float64]  # shape (blocks,): `whole` over how many each block has
    ends: NDArray[np.uint64]  # shape (blocks,): below which of 2^TABLE_BITS numbers it is one of the first
    guide: Integers  # the first block that the first bits of such a number leave open

    @property
    def scale(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.n / 2)


@cache
def table_of(flips: int) -> Table:
    """Return the table for an even number of coins."""
    if flips % 2 or not FEWEST_COINS <= flips <= MOST_FLIPS:
        raise ValueError(f"{flips} coins are not an even number from {FEWEST_COINS} to {MOST_FLIPS}")
    n = flips // 2
    scale = math.sqrt(n / 2)
    bits = math.floor(math.log2(scale / _BLOCKS_A_DEVIATION))
    count = math.ceil(FARTHEST * scale / 2**bits)
    # What is largest in a block comes first; more than errors of floating-point numbers is added.
    bounds = [math.exp(log_ratio(float(n), float(k << bits))) * (1 + 2.0**-30) for k in range(count)]
    whole = (2**TABLE_BITS - count - 1) / math.fsum(bounds)
    shares = [math.ceil(whole * bound) for bound in bounds]
    shares[0] += 2**TABLE_BITS - sum(shares)
    ends = np.cumsum(shares, dtype=np.uint64)
    firsts = np.arange(2**GUIDE_BITS, dtype=np.uint64) << np.uint64(TABLE_BITS - GUIDE_BITS)
    heights = np.array([whole / share for share in shares])
    return Table(n, bits, whole, heights, ends, np.searchsorted(ends, firsts, side="right").astype(np.int64))


@kernel
def log_ratio(n, x):  # type: ignore[no-untyped-def]
    """Return log p(x) / p(0) for floats, x at most 76 sqrt(n / 2): a series in x / n, after Stirling's."""
    square = (x / n) * (x / n)
    series = 0.0
    for k in range(12, 0, -1):  # other terms are below 10^-15
        series = square * (series + (0.5 - n / (2.0 * k - 1.0)) / k)
    return series - square / (6.0 * n * (1.0 - square))


@inline
def _block(word, ends, guide):  # type: ignore[no-untyped-def]
    """Return the block that the first bits of a word choose."""
    choice = word >> uint64(64 - TABLE_BITS)
    k = guide[choice >> uint64(TABLE_BITS - GUIDE_BITS)]
    while choice >= ends[k]:
        k += 1
    return k


@kernel
def add_binomial(  # type: ignore[no-untyped-def]
    noised, message, key, who, first, count, t, d, n, bits, heights, ends, guide, close, left
):
    """Set ``noised`` to ``message`` plus the noise of some machines, or of the server, in round t.

    It is drawn in the first d coordinates at most, by the entries of a `Table`. Returned is how many
    proposals are closer to their probability than `close`, and so left open: in their order they are written
    to `left`, shape (room, 6), as machine, coordinate, proposal, block, random bits, and the draw in their
    place.
    """
    words = scratch(CHUNK).view(np.uint64)
    number = 0
    noised[:] = message
    mask = (int64(1) << bits) - 1
    for machine in range(first, first + count):
        counter, place = 0, CHUNK
        for i in range(min(d, message.size)):
            known = number
            while True:
                if place == CHUNK:
                    halves = words.view(np.uint32)
                    fill_keystream(
                        halves, key, uint32(counter), uint32(_USE + who), uint32(machine), uint32(t)
                    )
                    counter, place = counter + BLOCKS, 0
                word, decider = words[place], words[place + 1]
                place += 2
                k = _block(word, ends, guide)
                x = (int64(k) << bits) + (int64(word >> uint64(1)) & mask)
                if word & uint64(1):
                    # 0 has no sign.
                    if x == 0:
                        continue
                    x = -x
                p = math.exp(log_ratio(np.float64(n), np.float64(x))) * heights[k]
                margin = np.float64(decider) * 2.0**-64 - p
                if margin > close:
                    continue
                if margin >= -close:
                    if number < left.shape[0]:
                        left[number, 0], left[number, 1], left[number, 2] = machine, i, x
                        left[number, 3], left[number, 4] = k, int64(decider)
                    number += 1
                    continue
                noised[i] += x
                for j in range(known, min(number, left.shape[0])):
                    left[j, 5] = x
                break
    return number


class BinomialDraws:
    """The noise of some machines, or of the server: of so many coins each in the first d coordinates."""

    def __init__(
        self, key: Words, who: tuple[int, int, int], flips: int, d: int, close: float = CLOSE
    ) -> None:
        if d > 2**30:  # the counter of blocks has 32 bits, and a coordinate takes some 20 bytes
            raise InputError(f"{d} coordinates are more than binomial noise is drawn for: {2**30}")
        self._key, self._who, self._d, self._close = key, who, d, close
        self._table = table_of(flips)
        self._left = np.empty((64, 6), np.int64)

    def __call__(self, noised: Integers, message: Integers, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t."""
        sizes = self._d, self._table.n, self._table.bits
        arrays = self._table.heights, self._table.ends, self._table.guide
        number = add_binomial(
            noised, message, self._key, *self._who, t, *sizes, *arrays, self._close, self._left
        )
        if number > len(self._left):
            self._left = np.empty((2 * number, 6), np.int64)
            return self(noised, message, t)
        decided: set[tuple[int, int]] = set()
        for machine, i, x, k, bits, instead in self._left[:number].tolist():
            if (machine, i) not in decided and self._takes(machine, i, x, k, bits, t):
                decided.add((machine, i))
                noised[i] += x - instead
        return None

    def _takes(self, machine: int, i: int, x: int, k: int, bits: int, t: int) -> bool:
        """Decide a proposal by as many bits as it takes."""
        table = self._table
        context = f"{self._who[0]} {machine} {t} {i} {x} {k} {bits}".encode()
        more = hashlib.shake_256(self._key.astype("<u4").tobytes() + context).digest(_DIGITS // 2)
        decider = (bits % 2**64 << 8 * len(more)) + int.from_bytes(more, "little")
        return is_accepted(table, k, x, Fraction(decider, 2 ** (64 + 8 * len(more))))


def is_accepted(table: Table, k: int, x: int, decider: Fraction) -> bool:
    """Return whether a number from 0 to 1 is below the probability with which x of a block is taken."""
    share = int(table.ends[k]) - (int(table.ends[k - 1]) if k else 0)
    # Exactly as many as a block has: its height, a floating-point number, would be another.
    bound = decider * share / Fraction(table.whole)
    with localcontext(Context(prec=_DIGITS + 40)):
        n, limit = table.n, Decimal(bound.numerator) / Decimal(bound.denominator)
        log = 2 * _log_factorial(n) - _log_factorial(n + x) - _log_factorial(n - x)
        return limit < log.exp()


def _log_factorial(n: int) -> Decimal:
    """Return log n! but for what Stirling's series leaves out, and the log of sqrt(2 pi)."""
    m = Decimal(n)
    found = (m + Decimal("0.5")) * m.ln() - m
    for k, number in enumerate(_bernoulli(), 1):
        found += Decimal(number.numerator) / (number.denominator * 2 * k * (2 * k - 1) * m ** (2 * k - 1))
    return found


@cache
def _bernoulli() -> list[Fraction]:
    """Return the Bernoulli numbers B_2, B_4, ..."""
    numbers = [Fraction(1)]
    for m in range(1, 2 * _BERNOULLI + 1):
        numbers.append(-sum(math.comb(m + 1, k) * b for k, b in enumerate(numbers)) / Fraction(m + 1))
    return numbers[2::2]
