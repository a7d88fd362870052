"""Training rows of machines: how many there are, and how they are dealt at random."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.data.streams import philox_key

# Takes numbers of samples among those of their machines, and these machines as numbers among some, all from
# 0, and returns the training rows
Rows = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]


def samples_per_machine(samples: int, machines: int) -> int:
    """Return how many samples each machine gets, which is also the largest number of rounds."""
    if machines > samples:
        raise InputError(
            f"more machines than samples: {machines} machines, but only {samples} training samples; "
            f"give at most --machines {samples}, or more data"
        )
    return samples // machines


def check_rounds(most: int, machines: int, rounds: int, needed: int) -> None:
    """Make sure that each machine has the samples that it needs, such as a fresh one a round."""
    if rounds == needed > most:
        raise InputError(
            f"{rounds} rounds are too many: each machine spends one fresh sample a round, and the samples "
            f"for {machines} machines allow at most {most} rounds; give at most --rounds {most}, or fewer "
            "machines"
        )
    if needed > most:
        raise InputError(
            f"{rounds} rounds are too many: they need {needed} samples of each machine, and {machines} "
            f"machines have {most} each; give fewer --rounds, fewer machines, or a larger rho"
        )


def machine_rows(samples: int, machines: int, rounds: int, key: bytes, block: range) -> NDArray[np.int64]:
    """Training rows that a block of machines uses, dealt at random by 32 bytes: shape (rounds, len(block)).

    All differ, ``samples % machines`` are left out, and none depends on which machines are asked for.
    """
    each = samples_per_machine(samples, machines)
    dealt = _order(samples, key)[: machines * each].reshape(machines, each)
    return np.ascontiguousarray(dealt[np.asarray(block, np.int64), :rounds].T)


def pooled_rows(
    pools: NDArray[np.generic],
    starts: NDArray[np.int64],
    shares: NDArray[np.int64],
    rounds: int,
    key: bytes,
    hosted: range,
) -> Rows:
    """Deal samples at random within pools, such as those of a class or of an owner, of which each has one.

    Each machine takes stretches of the samples sorted by pool, from `starts` on, of lengths `shares`: both of
    shape (M, stretches).
    """
    # One random order within each pool, and another for what a machine takes of several.
    order, use = _order(len(pools), key), _order(len(pools), key, "order of use")
    grouped = order[np.argsort(pools[order], kind="stable")]
    turn = np.empty_like(use)
    turn[use] = np.arange(len(use))
    rows = np.empty((rounds, len(hosted)), np.int64)
    for column, machine in enumerate(hosted):
        some = np.flatnonzero(shares[machine])
        stretches = zip(starts[machine, some], shares[machine, some], strict=True)
        own = np.concatenate([grouped[start : start + share] for start, share in stretches])
        # An owner may have fewer than another uses.
        own = own[np.argsort(turn[own])][:rounds]
        rows[: len(own), column] = own
    return lambda places, of: rows[places, of]


def _order(samples: int, key: bytes, use: str = "dealing of samples") -> NDArray[np.int64]:
    """Return all training rows in a random order."""
    # Sorting raw bits, unlike numpy's own shuffling, gives the same order in every version of numpy.
    bits = np.random.Philox(key=philox_key(key, use)).random_raw(samples)
    return np.argsort(bits, kind="stable").astype(np.int64, copy=False)
