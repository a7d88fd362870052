"""Who gets which sample, and when: the random dealing of the training set to the machines."""

import hashlib

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError

__all__ = ["check_rounds", "deal", "machine_rows", "samples_per_machine"]

KEY_BYTES = 32


def samples_per_machine(samples: int, machines: int) -> int:
    """Return how many samples each machine gets, which is also the largest number of rounds.

    Raises
    ------
    InputError
        If there are more machines than samples.
    """
    if machines > samples:
        raise InputError(
            f"more machines than samples: {machines} machines, but only {samples} training samples; "
            f"give at most --machines {samples}, or more data"
        )
    return samples // machines


def check_rounds(samples: int, machines: int, rounds: int) -> None:
    """Make sure that there is a fresh sample for every machine in every round.

    Raises
    ------
    InputError
        If there are more machines than samples, or more rounds than samples for each machine.
    """
    each = samples_per_machine(samples, machines)
    if rounds > each:
        raise InputError(
            f"{rounds} rounds are too many: each machine spends one fresh sample a round, and "
            f"{samples} samples for {machines} machines allow at most {each} rounds; "
            f"give at most --rounds {each}, or fewer machines"
        )


def deal(samples: int, machines: int, key: bytes) -> NDArray[np.int64]:
    """Deal the training set at random to the machines, an equal number to each.

    Parameters
    ----------
    samples : int
        Size of the training set.
    machines : int
        Number of machines M.
    key : bytes
        32 bytes that determine the order.

    Returns
    -------
    ndarray of int64, shape (machines, samples // machines)
        Row i holds the training rows of machine i, in the order in which it uses them. All entries
        differ; ``samples % machines`` training rows are left out.

    Raises
    ------
    InputError
        If there are more machines than samples.
    """
    each = samples_per_machine(samples, machines)
    return _order(samples, key)[: machines * each].reshape(machines, each)


def machine_rows(samples: int, machines: int, rounds: int, key: bytes, block: range) -> NDArray[np.int64]:
    """Return the training rows that a block of machines uses, round by round.

    A machine's rows depend on its own index and on the other arguments, never on the block that it is in.

    Parameters
    ----------
    samples, machines : int
        Size of the training set, and number of machines M in all.
    rounds : int
        Number of rounds T.
    key : bytes
        32 bytes that determine the dealing.
    block : range
        Indices of the machines asked for, in ``0 .. machines - 1``.

    Returns
    -------
    ndarray of int64, shape (rounds, len(block))
        Row t, column i: what machine ``block[i]`` uses in round t + 1.

    Raises
    ------
    InputError
        If there are more machines than samples, or more rounds than samples for each machine.
    """
    check_rounds(samples, machines, rounds)
    if len(block) and (min(block) < 0 or max(block) >= machines):
        raise IndexError(f"machines {block} are not among the {machines}")
    return np.ascontiguousarray(deal(samples, machines, key)[np.asarray(block, np.int64), :rounds].T)


def _order(samples: int, key: bytes) -> NDArray[np.int64]:
    """Return all training rows in a random order."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes instead of {KEY_BYTES}")
    seed = hashlib.sha256(b"mu2mpi: dealing of samples" + key).digest()[:16]
    # Sorting raw bits, unlike numpy's own shuffling, gives the same order in every version of numpy.
    bits = np.random.Philox(key=int.from_bytes(seed, "little")).random_raw(samples)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)
