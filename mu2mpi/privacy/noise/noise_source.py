"""Noise sources: rounded noise of consecutive machines, or of the server, in each round.

Noise is independent over rounds or correlated with earlier ones. Under partial participation, a machine's
participation count numbers its draws. Correlated noise is norm_t (s z - sum of weights times buffers),
rounded to the grid, for a draw z. Buffers hold sums of these integers, so only released numbers are rounded.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import ROUNDING_SHIFT, aligned_empty, aligned_zeros, inline, kernel, round_to_integer
from mu2mpi.privacy.noise.box_muller import normal_pair
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK,
    PAIRS,
    Key,
    Streams,
    add_noise,
    add_signed_noise,
    dither_bits,
    fill_pairs,
)

# Callable(out, message, t): out = message + noise of round t (1-based); both arrays as of `padded_zeros`
NoiseSource = Callable[[IntArray, IntArray, int], None]


@inline
def _add_round(noise, fresh, past, buffers, dither, is_dithered, norm, weights, decays):  # type: ignore[no-untyped-def]
    """Add one machine's correlated noise to a chunk of ``noise``, from its ``fresh`` draw; update buffers."""
    past[:] = 0.0
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK):
            past[i] += weights[k] * row[i]
    if is_dithered:
        for i in range(CHUNK):
            rounded = ((fresh[i] - norm * past[i]) + ROUNDING_SHIFT) - ROUNDING_SHIFT
            fresh[i] = rounded + np.float64(dither[i])
            past[i] = 0.0
    for i in range(CHUNK):
        rounded = ((fresh[i] - norm * past[i]) + ROUNDING_SHIFT) - ROUNDING_SHIFT
        noise[i] += round_to_integer(rounded)
        fresh[i] = rounded / norm
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK):
            row[i] = decays[k] * row[i] + fresh[i]


@kernel
def add_correlated(  # type: ignore[no-untyped-def]
    noised, message, noise, is_cumulative, buffers, key, stream, first,
    participants, counts, std_units, thresholds, norms, weights, decays,
):  # fmt: skip
    """Set ``noised`` to ``message`` plus one round's correlated noise of machines, or of the server.

    ``noise`` holds the noise of the previous round, which is added to if ``is_cumulative``, else overwritten;
    ``buffers``, shape (machines, chunks, k, CHUNK), hold earlier draws. Both are updated, in grid units.
    ``participants`` are local indices, ``counts`` their participation counts (1-based), ``std_units`` and
    ``thresholds`` each machine's std and dither threshold in grid units; ``norms``, ``weights`` and
    ``decays`` are those of a `Correlation`.
    """
    keystream, extra = aligned_empty(CHUNK).view(np.uint64), aligned_empty(CHUNK).view(np.uint64)
    squares, values, dither = aligned_empty(PAIRS), aligned_empty(PAIRS), aligned_empty(CHUNK).view(np.int64)
    fresh, past = aligned_empty(CHUNK), aligned_empty(CHUNK)
    for chunk in range(message.size // CHUNK):
        place = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        part = noise[place]
        if not is_cumulative:
            part[:] = 0
        for n in range(participants.size):
            i, norm = participants[n], norms[counts[n] - 1]
            scale = norm * std_units[i]
            bits = dither_bits(scale, thresholds[i])
            fill_pairs(
                keystream, extra, squares, values, dither, bits, key, chunk, stream, first + i, counts[n]
            )
            for j in range(PAIRS):
                g, h = normal_pair(squares[j], keystream[PAIRS + j])
                fresh[j] = scale * g
                fresh[PAIRS + j] = scale * h
            _add_round(part, fresh, past, buffers[i, chunk], dither, bits >= 0, norm, weights, decays)
        noised_part, message_part = noised[place], message[place]
        for j in range(CHUNK):
            noised_part[j] = message_part[j] + part[j]


class CorrelatedNoiseSource:
    """Source of correlated noise of consecutive machines; skipped rounds are drawn again.

    `std_units` and `dither_thresholds`, shape (machines,), are in grid units; `participants`: None for all.
    """

    def __init__(
        self,
        correlation: Correlation,
        key: Key,
        stream: int,
        first: int,
        std_units: FloatArray,
        dither_thresholds: FloatArray,
        size: int,
        participants: Any = None,
    ) -> None:
        self._correlation, self._rounds_done, self._participants = correlation, 0, participants
        self._std_units, self._thresholds = std_units, dither_thresholds
        self._all_machines, self._counts = np.arange(len(std_units)), np.empty(len(std_units), np.int64)
        noise = aligned_zeros((size,), np.int64)
        shape = (len(std_units), size // CHUNK, len(correlation.weights), CHUNK)
        buffers: FloatArray = aligned_zeros(shape, np.float64)
        self._state = noise, correlation.is_cumulative, buffers, key, stream, first

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t; rounds must increase."""
        if t <= self._rounds_done:
            raise ValueError(f"the noise of round {t} was drawn before, and rounds must increase")
        for k in range(self._rounds_done + 1, t + 1):
            self._generate(noised, message, k)
        self._rounds_done = t

    def _generate(self, noised: IntArray, message: IntArray, t: int) -> None:
        if self._participants is None:
            self._counts.fill(t)
            participants = self._all_machines, self._counts
        else:
            participants = self._participants.participants(t)
        strategy, noise = self._correlation, (self._std_units, self._thresholds)
        coefficients = strategy.column_norms, strategy.weights, strategy.decays
        add_correlated(noised, message, *self._state, *participants, *noise, *coefficients)


def independent_source(
    key: Key, streams: Streams, round_sigma: Callable[[int], float], grid_spacing: float, factor: float
) -> NoiseSource:
    """Source of Gaussian noise, independent over rounds, of std ``factor * round_sigma(t)`` in round t."""

    def draw(noised: IntArray, message: IntArray, t: int) -> None:
        add_noise(noised, message, key, *streams, t, round_sigma(t) / grid_spacing * factor)

    return draw


class PerMachineNoiseSource:
    """Source of independent Gaussian noise of machines with unequal stds and partial participation.

    If messages are cumulative, a machine's new draw replaces its previous one, so that the sum of all
    messages contains one draw per machine. Arguments are as in `CorrelatedNoiseSource`.
    """

    def __init__(
        self,
        key: Key,
        first: int,
        std_units: FloatArray,
        dither_thresholds: FloatArray,
        size: int,
        participants: Any,
        is_cumulative: bool,
    ) -> None:
        self._key, self._first = key, first
        self._std_units, self._thresholds = std_units, dither_thresholds
        self._participants, self._is_cumulative = participants, is_cumulative
        self._noise, self._rounds_done = aligned_zeros((size,), np.int64), 0

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise that the sum of messages contains after round t."""
        machines, counts = self._participants.participants(t)
        if not self._is_cumulative:
            self._noise[:] = 0
        elif t == self._rounds_done + 1:
            again = counts > 1
            self._add(machines[again], counts[again] - 1, -1)
        else:  # a resumed run starts from all machines' latest draws
            self._noise[:] = 0
            counts = self._participants.counts_until(t)
            machines = np.flatnonzero(counts)
            counts = counts[machines]
        self._add(machines, counts, 1)
        self._rounds_done = t
        np.add(message, self._noise, out=noised)

    def _add(self, machines: IntArray, counts: IntArray, sign: int) -> None:
        stds, thresholds = self._std_units[machines], self._thresholds[machines]
        add_signed_noise(self._noise, self._key, machines + self._first, counts, stds, thresholds, sign)
