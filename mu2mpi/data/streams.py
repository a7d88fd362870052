"""Random numbers that are functions of a key and of where they are used, for what no account takes as secret.

They come from Philox, whose raw bits numpy promises to keep; its distributions may change.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray


def philox_key(key: bytes, use: str) -> int:
    """Return Philox's key for one use of a key of 32 bytes."""
    if len(key) != 32:
        raise ValueError(f"the key has {len(key)} bytes instead of 32")
    return int.from_bytes(hashlib.sha256(f"mu2mpi: {use}".encode() + key).digest()[:16], "little")


def seed_words(seed: int, stream: int, number: int, count: int) -> NDArray[np.uint64]:
    """Return the first words of one of the numbered parts of a stream of a seed in ``0 .. 2**63 - 1``."""
    return np.random.Philox(key=seed | stream << 64, counter=number << 128).random_raw(count)


def machine_words(key: bytes, use: str, machine: int, skipped: int, count: int) -> NDArray[np.uint64]:
    """Return some words of a machine, after some are skipped."""
    # Philox makes four words for each value of its counter.
    blocks, rest = divmod(skipped, 4)
    generator = np.random.Philox(key=philox_key(key, use), counter=machine << 128 | blocks)
    generator.random_raw(rest)
    return generator.random_raw(count)


def unit_uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return a number uniform in [0, 1) for each word, of its first 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
