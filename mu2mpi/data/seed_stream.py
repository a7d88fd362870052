"""Random numbers that are functions of a key and of where they are used, for what no account takes as secret.

They come from Philox, whose raw bits numpy promises to keep; its distributions may change.
"""

from __future__ import annotations

import hashlib
from typing import Any

from mu2mpi.core.lazy import NDArray, np

WORDS_A_COUNT = 4  # that Philox makes for each value of its counter


def philox_key(key: bytes, use: str) -> int:
    """Philox's key for one use of a key of 32 bytes."""
    if len(key) != 32:
        raise ValueError(f"the key has {len(key)} bytes instead of 32")
    return int.from_bytes(hashlib.sha256(f"mu2mpi: {use}".encode() + key).digest()[:16], "little")


class SeedStream:
    """The words of a stream of a seed in ``0 .. 2**63 - 1``, or of a key of Philox's, in numbered parts."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        # One generator that is moved about takes an eighth of the time that another start would.
        self._philox = np.random.Philox(key=seed | stream << 64)
        self._state: Any = self._philox.state

    def words(self, number: int, count: int, skipped: int = 0) -> NDArray[np.uint64]:
        """Return some words of a part, after some are skipped."""
        blocks, rest = divmod(skipped, WORDS_A_COUNT)
        self._state["state"]["counter"][:] = blocks, 0, number, 0
        self._philox.state = self._state
        return self._philox.random_raw(rest + count)[rest:]


def unit_uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number uniform in [0, 1) for each word, of its first 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
