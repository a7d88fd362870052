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


@inline
def _add_round_noise(  # type: ignore[no-untyped-def]
    noise, fresh_noise, buffered_noise, buffers, dither, is_dithered, column_norm, weights, decays
):
    """Add one machine's correlated noise to a chunk of ``noise``, from its fresh draw; update buffers."""
    buffered_noise[:] = 0.0
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK_WORDS):
            buffered_noise[i] += weights[k] * row[i]
    if is_dithered:
        for i in range(CHUNK_WORDS):
            rounded = ((fresh_noise[i] - column_norm * buffered_noise[i]) + ROUNDING_ADDEND) - ROUNDING_ADDEND
            fresh_noise[i] = rounded + np.float64(dither[i])
            buffered_noise[i] = 0.0
    for i in range(CHUNK_WORDS):
        rounded = ((fresh_noise[i] - column_norm * buffered_noise[i]) + ROUNDING_ADDEND) - ROUNDING_ADDEND
        noise[i] += round_to_integer(rounded)
        fresh_noise[i] = rounded / column_norm
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK_WORDS):
            row[i] = decays[k] * row[i] + fresh_noise[i]


@kernel
def add_correlated_noise(  # type: ignore[no-untyped-def]
    noised, message, noise, is_cumulative, buffers, key, stream, first_machine,
    participants, participation_counts, std_units, dither_thresholds, column_norms, weights, decays,
):  # fmt: skip
    """Set ``noised`` to ``message`` plus one round's correlated noise of machines, or of the server.

    ``noise`` holds the noise of the previous round, which is added to if ``is_cumulative``, else overwritten;
    ``buffers``, shape (machines, chunks, k, CHUNK_WORDS), hold earlier draws. Both are updated, in grid
    units. ``participants`` are local indices, ``participation_counts`` are 1-based, ``std_units`` and
    ``dither_thresholds`` each machine's std and largest std without dither in grid units;
    ``column_norms``, ``weights`` and ``decays`` are those of a `Correlation`.
    """
    arrays = allocate_chunk_arrays()
    keystream, _, squared_radii, _, dither = arrays
    fresh_noise, buffered_noise = aligned_empty(CHUNK_WORDS), aligned_empty(CHUNK_WORDS)
    for chunk in range(message.size // CHUNK_WORDS):
        place = slice(chunk * CHUNK_WORDS, (chunk + 1) * CHUNK_WORDS)
        part = noise[place]
        if not is_cumulative:
            part[:] = 0
        for n in range(participants.size):
            i, column_norm = participants[n], column_norms[participation_counts[n] - 1]
            scale = column_norm * std_units[i]
            bits = dither_bits(scale, dither_thresholds[i])
            fill_normal_pairs(*arrays, bits, key, chunk, stream, first_machine + i, participation_counts[n])
            for j in range(CHUNK_PAIRS):
                g, h = normal_pair(squared_radii[j], keystream[CHUNK_PAIRS + j])
                fresh_noise[j] = scale * g
                fresh_noise[CHUNK_PAIRS + j] = scale * h
            draw = fresh_noise, buffered_noise, buffers[i, chunk], dither, bits >= 0
            _add_round_noise(part, *draw, column_norm, weights, decays)
        noised_part, message_part = noised[place], message[place]
        for j in range(CHUNK_WORDS):
            noised_part[j] = message_part[j] + part[j]


@dataclass(eq=False, repr=False)
class CorrelatedNoiseSource:
    """Source of correlated noise of consecutive machines; skipped rounds are drawn again.

    `std_units` and `dither_thresholds`, shape (machines,), are in grid units; `participants`: None for all.
    """

    correlation: Correlation
    key: Key
    stream: int
    first_machine: int
    std_units: FloatArray
    dither_thresholds: FloatArray
    padded_size: int
    participants: Any = None

    def __post_init__(self) -> None:
        self._rounds_done, self._noise = 0, aligned_zeros((self.padded_size,), np.int64)
        chunks, buffers = self.padded_size // CHUNK_WORDS, len(self.correlation.weights)
        self._buffers = aligned_zeros((len(self.std_units), chunks, buffers, CHUNK_WORDS), np.float64)
        self._all_machines = np.arange(len(self.std_units))

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t; rounds must increase."""
        if t <= self._rounds_done:
            raise ValueError(f"the noise of round {t} was drawn before, and rounds must increase")
        for k in range(self._rounds_done + 1, t + 1):
            self._generate(noised, message, k)
        self._rounds_done = t

    def _generate(self, noised: IntArray, message: IntArray, t: int) -> None:
        if self.participants is None:
            machines, counts = self._all_machines, np.full(len(self._all_machines), t)
        else:
            machines, counts = self.participants.participants(t)
        strategy, noise = self.correlation, (self._noise, self.correlation.is_cumulative, self._buffers)
        streams = self.key, self.stream, self.first_machine, machines, counts
        stds = self.std_units, self.dither_thresholds
        coefficients = strategy.column_norms, strategy.weights, strategy.decays
        add_correlated_noise(noised, message, *noise, *streams, *stds, *coefficients)


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
