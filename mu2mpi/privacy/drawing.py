"""The noise of some machines, or of the server, round after round: fresh, or correlated with that before.

Correlated noise is in integers on the grid, as it is sent: d_t (s z - sum of weights times buffers), rounded,
for a fresh draw z of full precision. What buffers hold are sums of these integers over d_t. So given the
messages before, a message is the strategy's noisy value, shifted by what is known and rounded: nothing is
rounded before it is hidden.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mu2mpi.kernels import SHIFT, aligned_zeros, inline, kernel, round_to_integer, scratch
from mu2mpi.privacy.box_muller import normal_pair
from mu2mpi.privacy.correlation import Array, Correlation
from mu2mpi.privacy.mechanisms.base import Mechanism
from mu2mpi.privacy.noise import CHUNK, PAIRS, add_noise, fill_pairs, spreading_bits

Integers = NDArray[np.int64]

Draw = Callable[[Integers, Integers, int], None]
"""Sets an array to a message, both as of `padded_zeros`, plus the noise of a round, from 1."""


@inline
def _add_round(noised, message, carried, fresh, past, buffers, offsets, spreads, norm, weights, decays):  # type: ignore[no-untyped-def]
    """Add a chunk's noise to `carried`, given its fresh draw, and that to the message; buffers remember it.

    `past` is room for the sum of what they remember.
    """
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
        noised[i] = message[i] + carried[i]
        fresh[i] = whole / norm
    for k in range(weights.size):
        row = buffers[k]
        for i in range(CHUNK):
            row[i] = decays[k] * row[i] + fresh[i]


@kernel
def add_correlated(  # type: ignore[no-untyped-def]
    noised, message, carried, lasts, buffers, key, who, first, t, scale, finest, norm, weights, decays
):
    """Set ``noised`` to ``message`` plus the rounded noise of some machines, or of the server, in round t.

    Parameters
    ----------
    noised, message, carried : ndarray of int64, shape (padded,)
        As of `add_noise`; and the noise of all rounds before, which is brought up to date.
    lasts : bool
        Whether that is added, too. If not, it is forgotten.
    buffers : ndarray of float64, shape (machines, chunks, k, CHUNK)
        What was drawn before, in units of the grid, of machines ``first ..``; brought up to date.
    key, who, first, t
        As in `add_noise`.
    scale, finest, norm : float
        Standard deviation of the fresh draw, in units of the grid; beyond which draws are spread, as in
        `add_noise`; and d_t, which is part of the scale.
    weights, decays : ndarray of float64, shape (k,)
        Those of a `Correlation`.
    """
    words, further = scratch(CHUNK).view(np.uint64), scratch(CHUNK).view(np.uint64)
    squares, values, offsets = scratch(PAIRS), scratch(PAIRS), scratch(CHUNK).view(np.int64)
    fresh, past, bits = scratch(CHUNK), scratch(CHUNK), spreading_bits(scale, finest)
    for chunk in range(message.size // CHUNK):
        place = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
        part = carried[place]
        if not lasts:
            part[:] = 0
        for i in range(buffers.shape[0]):
            fill_pairs(words, further, squares, values, offsets, bits, key, chunk, who, first + i, t)
            for j in range(PAIRS):
                g, h = normal_pair(squares[j], words[PAIRS + j])
                fresh[j] = scale * g
                fresh[PAIRS + j] = scale * h
            parts = noised[place], message[place], part, fresh, past, buffers[i, chunk]
            _add_round(*parts, offsets, bits >= 0, norm, weights, decays)


class CorrelatedDraws:
    """The noise of consecutive rounds; that of earlier ones is drawn again where a run goes on after them."""

    def __init__(
        self,
        mechanism: Mechanism,
        correlation: Correlation,
        key: NDArray[np.uint32],
        who: tuple[int, int, int],
        factor: float,
        size: int,
    ) -> None:
        self._of, self._done = correlation, 0
        self._unit, self._finest = factor * mechanism.sigma / mechanism.resolution, mechanism.finest
        kind, first, machines = who
        carried = aligned_zeros((size,), np.int64)
        shape = (machines, size // CHUNK, len(correlation.weights), CHUNK)
        buffers: Array = aligned_zeros(shape, np.float64)
        self._sums = carried, correlation.lasts, buffers, key, kind, first

    def __call__(self, noised: Integers, message: Integers, t: int) -> None:
        """Set ``noised`` to ``message`` plus the noise of round t, which no earlier round may follow."""
        if t <= self._done:
            raise ValueError(f"round {t} is over, and its noise is gone")
        for k in range(self._done + 1, t + 1):
            self._draw(noised, message, k)
        self._done = t

    def _draw(self, noised: Integers, message: Integers, t: int) -> None:
        norm = self._of.norm(t)
        scales = norm * self._unit, self._finest, norm
        add_correlated(noised, message, *self._sums, t, *scales, self._of.weights, self._of.decays)


def make_draw(
    mechanism: Mechanism, key: NDArray[np.uint32], who: tuple[int, int, int], factor: float, size: int
) -> Draw:
    """Return what draws noise: of whom, from which machine on and of how many, as in `add_noise`.

    The standard deviation of a draw is multiplied by a factor; `size` is that of messages, padded.
    """
    if (correlation := mechanism.correlation) is not None:
        return CorrelatedDraws(mechanism, correlation, key, who, factor, size)

    def draw(noised: Integers, message: Integers, t: int) -> None:
        add_noise(noised, message, key, *who, t, mechanism.sigma_of(t) / mechanism.resolution * factor)

    return draw
