"""Noise sources: rounded noise of consecutive machines, or of the server, in each round.

Noise is independent over rounds or correlated with earlier ones. Under partial participation, a machine's
participation count numbers its draws. Correlated noise is norm_t (s z - sum of weights times buffers),
rounded to the grid, for a draw z. Buffers hold sums of these integers, so only released numbers are rounded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import (
    ROUNDING_ADDEND,
    aligned_empty,
    aligned_zeros,
    inline,
    kernel,
    round_to_integer,
)
from mu2mpi.privacy.noise.box_muller import normal_pair
from mu2mpi.privacy.noise.correlation import Correlation
from mu2mpi.privacy.noise.noise_stream import (
    CHUNK_PAIRS,
    CHUNK_WORDS,
    Key,
    add_signed_noise,
    allocate_chunk_arrays,
    dither_bits,
    fill_normal_pairs,
)

# Callable(out, message, t): out = message + noise of round t (1-based); both arrays as of `padded_zeros`
NoiseSource = Callable[[IntArray, IntArray, int], None]

LOOK_AHEAD_ROUNDS = 8  # Largest number of rounds whose correlated noise is generated at once
LOOK_AHEAD_DRAWS = 2**26  # Largest number of normals generated at once, a quarter of a second


# Functions of one coordinate, since numba's loop variables would outlive inner loops and misalign vectors.
@inline
def _weighted_sum(weights, buffers, i):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(len(weights)):
        total += weights[k] * buffers[k * CHUNK_WORDS + i]
    return total


@inline
def _update_buffers(decays, buffers, i, draw):  # type: ignore[no-untyped-def]
    for k in range(len(decays)):
        buffers[k * CHUNK_WORDS + i] = decays[k] * buffers[k * CHUNK_WORDS + i] + draw


@inline
def _add_round_noise(  # type: ignore[no-untyped-def]
    noise, fresh_noise, buffers, dither, is_dithered, column_norm, weights, decays
):
    """Add one machine's correlated noise of one round to a chunk of ``noise``; update its buffers."""
    for i in range(CHUNK_WORDS):
        rounded = fresh_noise[i] - column_norm * _weighted_sum(weights, buffers, i)
        rounded = (rounded + ROUNDING_ADDEND) - ROUNDING_ADDEND
        if is_dithered:
            rounded += np.float64(dither[i])
        noise[i] += round_to_integer(rounded)
        _update_buffers(decays, buffers, i, rounded if column_norm == 1.0 else rounded / column_norm)


@kernel
def generate_correlated_noise(  # type: ignore[no-untyped-def]
    noise, is_cumulative, buffers, key, stream, first_machine, participation_counts,
    std_units, dither_thresholds, column_norms, weights, decays,
):  # fmt: skip
    """Overwrite ``noise``, one row per round, with the sum of machines' correlated noise, in grid units.

    If ``is_cumulative``, a row is also the sum over rounds, from the previous last row on. ``buffers``, shape
    (machines, chunks, k * CHUNK_WORDS), hold earlier draws and are updated. ``participation_counts``, shape
    (rounds, machines), are 0 for absent machines; ``std_units`` and ``dither_thresholds`` are as in
    `CorrelatedNoiseSource`, ``column_norms`` and the tuples ``weights`` and ``decays`` of a `Correlation`.
    """
    arrays = allocate_chunk_arrays()
    keystream, _, squared_radii, _, dither = arrays
    fresh_noise, total = aligned_empty(CHUNK_WORDS), aligned_empty(CHUNK_WORDS, np.int64)
    rounds, machines = participation_counts.shape
    for chunk in range(noise.shape[1] // CHUNK_WORDS):
        part = slice(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS)
        total[:] = noise[-1, part]
        for i in range(machines):
            for row in range(rounds):  # the machine's buffers stay in the first-level cache
                noise_part = noise[row, part]
                if i == 0:
                    noise_part[:] = 0
                count = participation_counts[row, i]
                if count > 0:
                    column_norm = column_norms[count - 1]
                    scale = column_norm * std_units[i]
                    bits = dither_bits(scale, dither_thresholds[i])
                    fill_normal_pairs(*arrays, bits, key, chunk, stream, first_machine + i, count)
                    for j in range(CHUNK_PAIRS):
                        g, h = normal_pair(squared_radii[j], keystream[CHUNK_PAIRS + j])
                        fresh_noise[j] = scale * g
                        fresh_noise[CHUNK_PAIRS + j] = scale * h
                    draw = fresh_noise, buffers[i, chunk], dither, bits >= 0
                    _add_round_noise(noise_part, *draw, column_norm, weights, decays)
                if is_cumulative and i == machines - 1:
                    for j in range(CHUNK_WORDS):
                        total[j] += noise_part[j]
                        noise_part[j] = total[j]


@dataclass(eq=False, repr=False)
class CorrelatedNoiseSource:
    """Source of correlated noise of consecutive machines; skipped rounds are drawn again.

    The noise of several rounds is generated at once, while each machine's buffers are in the cache.
    `std_units` and `dither_thresholds` (largest std without dither), shape (machines,), are in grid units.
    """

    correlation: Correlation
    key: Key
    stream: int
    first_machine: int
    std_units: FloatArray
    dither_thresholds: FloatArray
    padded_size: int
    participants: Any = None  # `RoundParticipants`, or None for all machines

    def __post_init__(self) -> None:
        machines, size, strategy = len(self.std_units), self.padded_size, self.correlation
        # The kernel is compiled for the number of buffers: without any, for one of weight 0.
        coefficients = strategy.weights, strategy.decays
        self._weights, self._decays = (tuple(values.tolist() or [0.0]) for values in coefficients)
        chunks, buffer_words = size // CHUNK_WORDS, len(self._weights) * CHUNK_WORDS
        self._buffers = aligned_zeros((machines, chunks, buffer_words), np.float64)
        # The rows take no more memory than the buffers. The last one is that of round `_rounds_generated`.
        rows = min(LOOK_AHEAD_ROUNDS, self._buffers.size // size, LOOK_AHEAD_DRAWS // (machines * size or 1))
        self._noise = aligned_zeros((max(1, rows), size), np.int64)
        self._rounds_done = self._rounds_generated = 0

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t; rounds must increase."""
        if t <= self._rounds_done:
            raise ValueError(f"the noise of round {t} was drawn before, and rounds must increase")
        while self._rounds_generated < t:
            self._generate()
        self._rounds_done = t
        np.add(message, self._noise[t - 1 - self._rounds_generated], out=noised)

    def _generate(self) -> None:
        """Generate the noise of the next rounds, as many as `_noise` has rows or the run has left."""
        t, strategy = self._rounds_generated + 1, self.correlation
        last = self.participants.last_known_round(t) if self.participants else strategy.rounds
        rounds = range(t, min(t + len(self._noise), last + 1))
        counts = np.zeros((len(rounds), len(self.std_units)), np.int64)
        for row, k in zip(counts, rounds, strict=True):
            hosted, row_counts = self.participants.participants(k) if self.participants else (..., k)
            row[hosted] = row_counts
        generate_correlated_noise(
            self._noise[-len(rounds) :], strategy.is_cumulative, self._buffers,
            self.key, self.stream, self.first_machine, counts, self.std_units, self.dither_thresholds,
            strategy.column_norms, self._weights, self._decays,
        )  # fmt: skip
        self._rounds_generated = rounds[-1]


@dataclass(eq=False, repr=False)
class PerMachineNoiseSource:
    """Source of independent Gaussian noise of machines with unequal stds and partial participation.

    If messages are cumulative, a machine's new draw replaces its previous one, so that the sum of all
    messages contains one draw per machine. Arguments are as in `CorrelatedNoiseSource`.
    """

    key: Key
    first_machine: int
    std_units: FloatArray
    dither_thresholds: FloatArray
    padded_size: int
    participants: Any
    is_cumulative: bool

    def __post_init__(self) -> None:
        self._noise, self._rounds_done = aligned_zeros((self.padded_size,), np.int64), 0

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise that the sum of messages contains after round t."""
        machines, participation_counts = self.participants.participants(t)
        if not self.is_cumulative:
            self._noise[:] = 0
        elif t == self._rounds_done + 1:
            again = participation_counts > 1
            self._add_draws(machines[again], participation_counts[again] - 1, -1)
        else:  # a resumed run starts from all machines' latest draws
            self._noise[:] = 0
            participation_counts = self.participants.counts_until(t)
            machines = np.flatnonzero(participation_counts)
            participation_counts = participation_counts[machines]
        self._add_draws(machines, participation_counts, 1)
        self._rounds_done = t
        np.add(message, self._noise, out=noised)

    def _add_draws(self, machines: IntArray, participation_counts: IntArray, sign: int) -> None:
        draws = machines + self.first_machine, participation_counts
        stds = self.std_units[machines], self.dither_thresholds[machines]
        add_signed_noise(self._noise, self.key, *draws, *stds, sign)
