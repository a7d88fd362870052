"""Who gets which sample, and when: dealt to the machines at random, or so that their populations differ."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.data.source import Source
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


def most_rounds(source: Source, machines: int, partition: str) -> int:
    """Return for how many rounds each machine has a fresh sample; an InputError if it can have none so."""
    kind, _, amount = partition.partition(":")
    if kind == "owner":
        sizes = source.owner_sizes
        if len(sizes) != machines:
            raise InputError(
                f"{source.name} names {len(sizes)} owners, so --machines must be {len(sizes)}; or deal the "
                "samples anew with --partition iid"
            )
        return int(sizes.min())
    each = samples_per_machine(source.training_samples, machines)
    if kind != "labels":
        return each
    labels = int(amount)
    if labels > source.classes:
        raise InputError(
            f"partition = {partition} asks for more than the {source.classes} classes that there are"
        )
    each = labels * shard_size(source.class_sizes, machines * labels)
    if each == 0:
        raise InputError(
            f"{source.name} has too few samples to give {amount} classes to each of {machines} machines; "
            "give fewer --machines"
        )
    return each


def partition_rows(
    source: Source, partition: str, machines: int, rounds: int, key: bytes, hosted: range
) -> Rows:
    """Decide which training rows the hosted of M machines have, which need so many each, and in which order.

    A partition is ``iid``, ``contiguous``, ``sorted``, ``dirichlet:A``, ``labels:N`` or ``owner``. The key of
    32 bytes determines it, and a machine's rows do not depend on which others are hosted.
    """
    if partition == "contiguous":
        first = samples_per_machine(source.training_samples, machines) * np.asarray(hosted, np.int64)
        return lambda places, of: first[of] + places
    if partition == "iid":
        dealt = machine_rows(source.training_samples, machines, rounds, key, hosted)
        return lambda places, of: dealt[places, of]
    # Machines take shares of pools: of classes, or of owners.
    kind, _, amount = partition.partition(":")
    each = most_rounds(source, machines, partition)
    if kind == "owner":
        # Each machine takes the whole of one pool.
        pools, sizes = source.training_owners(), source.owner_sizes
        shares = sizes[:, np.newaxis]
        starts = np.cumsum(sizes)[:, np.newaxis] - shares
    else:
        pools, sizes = source.training_labels(), source.class_sizes
        # Its stream, unlike that of a Generator, is one that numpy promises never to change.
        random = np.random.RandomState(np.random.Philox(key=philox_key(key, "shares of machines")))
        if kind == "dirichlet":
            shares = dirichlet_shares(sizes, machines, each, float(amount), random)
        elif kind == "labels":
            shares = label_shares(sizes, machines, int(amount), random)
        else:
            shares = sorted_shares(sizes, machines, each)
        starts = (np.cumsum(sizes) - sizes) + (np.cumsum(shares, axis=0) - shares)
    # One random order within each pool, and another for what a machine takes of several.
    order, use = _order(source.training_samples, key), _order(source.training_samples, key, "order of use")
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


def dirichlet_shares(
    sizes: NDArray[np.int64], machines: int, each: int, concentration: float, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Numbers of samples that each machine (row) gets of each class (column), in proportions of its own.

    These are those of the classes in all data, each times a Gamma(A) variable. Machines draw one after the
    other from what is left. See Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution
    for federated visual classification", 2019.
    """
    left, shares = sizes.copy(), np.zeros((machines, len(sizes)), np.int64)
    for share in shares:
        # The logarithm of a Gamma(A) variable, which itself may be too small for a floating-point number.
        log_gamma = np.log(random.standard_gamma(concentration + 1, len(sizes)))
        log_gamma += np.log1p(-random.random_sample(len(sizes))) / concentration
        log_gamma[sizes == 0] = -np.inf
        weights = np.exp(log_gamma - log_gamma.max()) * sizes
        while (wanted := each - share.sum()) > 0:
            weights = np.where(left > 0, weights, 0.0)
            likely = weights if weights.sum() > 0 else left.astype(float)
            drawn = np.minimum(random.multinomial(wanted, likely / likely.sum()), left)
            share += drawn
            left -= drawn
    return shares


def sorted_shares(sizes: NDArray[np.int64], machines: int, each: int) -> NDArray[np.int64]:
    """Return the same shares where samples are dealt out class by class: most machines then have one."""
    ends = np.minimum(np.cumsum(sizes), machines * each)
    bounds = each * np.arange(machines + 1)[:, np.newaxis]
    return np.diff(np.clip(ends, bounds[:-1], bounds[1:]) - bounds[:-1], axis=1, prepend=0)


def shard_size(sizes: NDArray[np.int64], shards: int) -> int:
    """Return the largest size of which so many shards, each of one class, can be cut; 0 if there is none."""
    low, high = 0, int(sizes.sum()) // shards
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (sizes // middle).sum() >= shards else (low, middle - 1)
    return low


def label_shares(
    sizes: NDArray[np.int64], machines: int, labels: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the same shares where each machine gets some shards of one class each, dealt out at random.

    Shards are as large as they can be; what is left of a class is not used. See McMahan et al.,
    "Communication-efficient learning of deep networks from decentralized data", 2017.
    """
    size = shard_size(sizes, machines * labels)
    class_of_shard = random.permutation(np.repeat(np.arange(len(sizes)), sizes // size))
    shares = np.zeros((machines, len(sizes)), np.int64)
    takers = np.repeat(np.arange(machines), labels)
    np.add.at(shares, (takers, class_of_shard[: len(takers)]), size)
    return shares
