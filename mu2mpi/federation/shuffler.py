"""Messages of the shuffle model, one by one: a value v from -V to V is V + v ones and V - v zeros."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.mechanisms.binomial import BinomialReleases

Integers = NDArray[np.int64]
Messages = NDArray[np.uint32]  # twice the number of a coordinate, plus the bit
MOST_MESSAGES = 2**26  # of all machines in a round


def check_messages(mechanism: BinomialReleases) -> None:
    """Raise InputError if there are too many messages to make them one by one."""
    if (number := mechanism.machines * mechanism.messages) > MOST_MESSAGES:
        raise InputError(
            f"shuffle = messages would make {number:.3g} messages in each round, and {MOST_MESSAGES:,} are "
            "the most; take a smaller model, fewer machines or rounds, or leave it out, which has the same "
            "distribution"
        )


def throw_coins(mechanism: BinomialReleases, key: bytes, machine: int, t: int) -> NDArray[np.uint8]:
    """Return the coins of a machine in round t, shape (d, coins)."""
    d, coins = mechanism.parameters, mechanism.coins
    stream = hashlib.shake_256(key + b"coins" + f"{machine} {t}".encode())
    bits = np.unpackbits(np.frombuffer(stream.digest(-(-d * coins // 8)), np.uint8))
    return bits[: d * coins].reshape(d, coins)


def make_messages(
    mechanism: BinomialReleases, key: bytes, hosted: range, t: int, q: Integers, summed: int
) -> Messages:
    """Return the messages of a rank in round t: its values as bits, and the coins of its machines.

    Their number, which anybody sees, depends on how many machines may be summed up in q, not on data.
    """
    coordinates = np.arange(mechanism.parameters, dtype=np.uint32) * np.uint32(2)
    most = summed * mechanism.values
    sent = [np.repeat(coordinates + np.uint32(1), most + q), np.repeat(coordinates, most - q)]
    for machine in hosted:
        sent.append((throw_coins(mechanism, key, machine, t) + coordinates[:, np.newaxis]).ravel())
    return np.concatenate(sent)


def mixed(everyones: list[Messages], key: bytes, t: int) -> Messages:
    """Return the messages of all ranks in a random order, which knows nothing of what they are."""
    seed = hashlib.blake2b(f"order {t}".encode(), key=key, digest_size=32).digest()
    return np.random.default_rng(list(seed)).permutation(np.concatenate(everyones))


def count(mechanism: BinomialReleases, messages: Messages) -> Integers:
    """Return what the server makes of messages: the noised sum, half of ones less zeros, shape (d,)."""
    counts = np.bincount(messages, minlength=2 * mechanism.parameters).reshape(-1, 2)
    sums: Integers = (counts[:, 1] - counts[:, 0]) // 2
    return sums
