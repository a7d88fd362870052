"""Random access to Philox streams of random numbers, which are stable across NumPy versions."""

from __future__ import annotations

import hashlib
from typing import Any

from mu2mpi.core.arrays import FloatArray
from mu2mpi.core.lazy import NDArray, np

PHILOX_INTEGERS_PER_COUNTER = 4  # 64-bit words that Philox generates per counter value


def philox_key(key: bytes, purpose: str) -> int:
    """Derive a 128-bit Philox key from a key of 32 bytes and a use, a label that separates streams."""
    if len(key) != 32:
        raise ValueError(f"the key has {len(key)} bytes instead of 32")
    return int.from_bytes(hashlib.sha256(f"mu2mpi: {purpose}".encode() + key).digest()[:16], "little")


class SeedStream:
    """Random access to the Philox stream of a seed in ``0 .. 2**63 - 1`` or of a `philox_key`."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self._philox = np.random.Philox(key=seed | stream << 64)  # Repositioned, which is fast
        self._state: Any = self._philox.state

    def integers(self, substream: int, count: int, skipped: int = 0) -> NDArray[np.uint64]:
        """Return `count` 64-bit random integers of a substream, after its first `skipped` integers."""
        blocks, rest = divmod(skipped, PHILOX_INTEGERS_PER_COUNTER)
        self._state["state"]["counter"][:] = blocks, 0, substream, 0
        self._philox.state = self._state
        return self._philox.random_raw(rest + count)[rest:]


def unit_uniforms(integers: NDArray[np.uint64]) -> FloatArray:
    """Convert 64-bit random integers to uniform numbers in [0, 1), by their first 53 bits."""
    return (integers >> np.uint64(11)).astype(np.float64) * 2.0**-53
