"""The noise of some machines, or of the server, round after round: fresh, or correlated with that before.

Where machines are away, the number of a draw is that of how often its machine was there. Correlated noise is
in integers on the grid, as it is sent: d_t (s z - sum of weights times buffers), rounded, for a fresh draw z.
Buffers hold sums of these integers over d_t, so that nothing is rounded before it is hidden.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.kernels import SHIFT, aligned_zeros, inline, kernel, round_to_integer, scratch
from mu2mpi.privacy.noise.box_muller import normal_pair
from mu2mpi.privacy.noise.correlation import Array, Correlation
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK,
    PAIRS,
    add_draws,
    add_noise,
    fill_pairs,
    spreading_bits,
)

Integers = NDArray[np.int64]

# Callable(out, message, t): out = message + noise of round t, from 1; both arrays as of `padded_zeros`
NoiseSource = Callable[[Integers, Integers, int], None]


@inline
def _add_round(carried, fresh, past, buffers, offsets, spreads, norm, weights, decays):  # type: ignore[no-untyped-def]
    """Add a chunk's noise to `carried`, given its fresh draw, and to buffers, summed up in `past`."""
    past[:] = 0.0
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK):
            past[i] += weights[k] * row[i]
    if spreads:
        for i in range(CHUNK):
            fresh[i] = (((fresh[i] - norm * past[i]) + SHIFT) - SHIFT) + np.float64(offsets[i])
            past[i] = 0.0
    for i in range(CHUNK):
        whole = ((fresh[i] - norm * past[i]) + SHIFT) - SHIFT
        carried[i] += round_to_integer(whole)
        fresh[i] = whole / norm
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK):
            row[i] = decays[k] * row[i] + fresh[i]


@kernel
def add_correlated(  # type: ignore[no-untyped-def]
    noised, message, carried, lasts, buffers, key, who, first,
    there, numbers, units, finests, norms, weights, decays,
):  # fmt: skip
    """Set ``noised`` to ``message`` plus the rounded noise of some machines, or of the server, in a round.

    `carried` is the noise of all rounds before, which is added if it `lasts`, and else forgotten; `buffers`,
    shape (machines, chunks, k, CHUNK), are what was drawn before. Both are brought up to date, in units of
    the grid. Machines that are `there` draw for the time that `numbers` say, counted from 1, with the noise
    of a strategy of `units`, spread beyond `finests`, times its norms; weights and decays are those of a
    `Correlation`.
    """
    words, further = scratch(CHUNK).view(np.uint64), scratch(CHUNK).view(np.uint64)
    squares, values, offsets = scratch(PAIRS), scratch(PAIRS), scratch(CHUNK).view(np.int64)
    fresh, past = scratch(CHUNK), scratch(CHUNK)
    for chunk in range(message.size // CHUNK):
        place = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        part = carried[place]
        if not lasts:
            part[:] = 0
        for n in range(there.size):
            i, norm = there[n], norms[numbers[n] - 1]
            scale = norm * units[i]
            bits = spreading_bits(scale, finests[i])
            fill_pairs(words, further, squares, values, offsets, bits, key, chunk, who, first + i, numbers[n])
            for j in range(PAIRS):
                g, h = normal_pair(squares[j], words[PAIRS + j])
                fresh[j] = scale * g
                fresh[PAIRS + j] = scale * h
            _add_round(part, fresh, past, buffers[i, chunk], offsets, bits >= 0, norm, weights, decays)
        sent, hidden = noised[place], message[place]
        for j in range(CHUNK):
            sent[j] = hidden[j] + part[j]


class CorrelatedDraws:
    """The noise of consecutive rounds; that of earlier ones is drawn again where a run goes on after them.

    All machines draw in each round, or those that a register calls; `units` and `finests` are of each.
    """

    def __init__(
        self,
        correlation: Correlation,
        key: NDArray[np.uint32],
        who: int,
        first: int,
        units: Array,
        finests: Array,
        size: int,
        participants: Any = None,
    ) -> None:
        self._of, self._done, self._participants = correlation, 0, participants
        self._units, self._finests = units, finests
        # Of a round in which all draw.
        self._everyone, self._numbers = np.arange(len(units)), np.empty(len(units), np.int64)
        carried = aligned_zeros((size,), np.int64)
        shape = (len(units), size // CHUNK, len(correlation.weights), CHUNK)
        buffers: Array = aligned_zeros(shape, np.float64)
        self._sums = carried, correlation.lasts, buffers, key, who, first

    def __call__(self, noised: Integers, message: Integers, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t, which no earlier round may follow."""
        if t <= self._done:
            raise ValueError(f"round {t} is over, and its noise is gone")
        for k in range(self._done + 1, t + 1):
            self._draw(noised, message, k)
        self._done = t

    def _draw(self, noised: Integers, message: Integers, t: int) -> None:
        if self._participants is None:
            self._numbers.fill(t)
            draws = self._everyone, self._numbers
        else:
            draws = self._participants.participants(t)
        of, deviations = self._of, (self._units, self._finests)
        add_correlated(noised, message, *self._sums, *draws, *deviations, of.norms, of.weights, of.decays)


def fresh_source(
    key: NDArray[np.uint32],
    who: tuple[int, int, int],
    sigma_of: Callable[[int], float],
    resolution: float,
    factor: float,
) -> NoiseSource:
    """Return a source of fresh Gaussian noise of standard deviation ``factor * sigma_of(t)`` in round t."""

    def draw(noised: Integers, message: Integers, t: int) -> None:
        add_noise(noised, message, key, *who, t, sigma_of(t) / resolution * factor)

    return draw


def correlated_source(
    correlation: Correlation,
    key: NDArray[np.uint32],
    who: tuple[int, int, int],
    unit: float,
    finest: float,
    size: int,
) -> NoiseSource:
    """Return a source of correlated noise, the same for all of its machines, for `size` coordinates."""
    kind, first, count = who
    units, finests = np.full(count, unit), np.full(count, finest)
    return CorrelatedDraws(correlation, key, kind, first, units, finests, size)


class MemberDraws:
    """Fresh noise of machines that are not always there.

    If messages last, each takes back its machine's draw before, so that their sum holds one draw of each.
    """

    def __init__(
        self,
        key: NDArray[np.uint32],
        first: int,
        units: Array,
        finests: Array,
        size: int,
        participants: Any,
        lasts: bool,
    ) -> None:
        self._key, self._first, self._units, self._finests = key, first, units, finests
        self._participants, self._lasts = participants, lasts
        self._noise, self._done = aligned_zeros((size,), np.int64), 0

    def __call__(self, noised: Integers, message: Integers, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise that is in what was sent by the end of round t."""
        there, numbers = self._participants.participants(t)
        if not self._lasts:
            self._noise[:] = 0
        elif t == self._done + 1:
            back = numbers > 1
            self._add(there[back], numbers[back] - 1, -1)
        else:
            # Rounds before were taken by another process, or are taken again.
            self._noise[:] = 0
            numbers = self._participants.counts_until(t)
            there = np.flatnonzero(numbers)
            numbers = numbers[there]
        self._add(there, numbers, 1)
        self._done = t
        np.add(message, self._noise, out=noised)

    def _add(self, there: Integers, numbers: Integers, sign: int) -> None:
        draws = there + self._first, numbers, self._units[there], self._finests[there]
        add_draws(self._noise, self._key, *draws, sign)
