"""How much of each class a machine gets where machines are to differ.

In all functions `sizes` are the numbers of samples of each class, and the shares that they return, of shape
(machines, classes), sum to at most these over the machines.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["dirichlet_shares", "label_shares", "shard_size", "sorted_shares"]


def dirichlet_shares(
    sizes: NDArray[np.int64], machines: int, each: int, concentration: float, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return how many samples of each class each machine gets, in proportions of its own.

    A machine's proportions are those of the classes in all data, each times a Gamma(A) variable of its
    own: a Dirichlet distribution where classes are of equal size. A = 0.1 leaves most machines one or
    two classes, and A = 100 is nearly iid. Machines draw one after the other, by their proportions from
    what is left, so that the last ones take what the others did not want. The stream of a RandomState is
    one that numpy promises never to change.
    See Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
    classification", 2019.
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
    """Return how many samples of each class each machine gets if they are dealt out class by class.

    Most machines then have one class, and few more than two.
    """
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
    """Return how many samples of each class each machine gets if each gets some shards of one class each.

    Shards are as large as they can be and dealt out at random, so that a machine has at most `labels`
    classes. What is left of a class is not used. See McMahan et al., "Communication-efficient learning of
    deep networks from decentralized data", 2017.
    """
    size = shard_size(sizes, machines * labels)
    class_of_shard = random.permutation(np.repeat(np.arange(len(sizes)), sizes // size))
    shares = np.zeros((machines, len(sizes)), np.int64)
    takers = np.repeat(np.arange(machines), labels)
    np.add.at(shares, (takers, class_of_shard[: len(takers)]), size)
    return shares
