"""An attack on masks: whether messages of some machines, less what others know of their masks, are uniform.

Those who work together know the masks that they share with others. If these are taken away, what the rest of
the machines send has to cancel in the sum over all of them, and nowhere before: to any fewer it is a uniform
number modulo 2^64, and so are the differences between rounds.
"""

import math
from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.audit.chi_square import chi_square_evidence
from mu2mpi.audit.runs import hides_parts, messages
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.noise import key_words, padded_zeros

Words = NDArray[np.uint64]

NUMBERS = 2**12
"""How many of each group of machines are looked at, about: so many runs are enough."""

FARTHEST = 12
"""Differences are taken between rounds that are less far apart."""

MOST_GROUPS = 128
"""If there are more than twice as many ways to choose a group and who works together, so many are drawn."""

BITS, VALUES = 4, 16
"""Bits are looked at in pieces, of so many each, which have so many values."""


class Group(NamedTuple):
    """Machines whose messages are added up, and those that know some of their masks."""

    machines: tuple[int, ...]
    known: tuple[int, ...]

    @property
    def words(self) -> str:
        """Whose messages they are, and who looks at them."""
        whose = f"the messages of {_named(self.machines)}{' together' * (len(self.machines) > 1)}"
        if not self.known:
            return whose
        return f"{whose}, less the masks that {_named(self.known)} know{'s' * (len(self.known) == 1)},"


class Uniformity(NamedTuple):
    """What was found in masked messages, of so many groups of machines."""

    groups: int
    log_evidence: float  # for bits that are not uniform, which there are if it is beyond the threshold
    threshold: float
    faults: tuple[str, ...]  # what masks leave open, in words


def _named(machines: tuple[int, ...]) -> str:
    *most, last = map(str, machines)
    return f"machines {', '.join(most)} and {last}" if most else f"machine {last}"


def check_masks(
    canaries: Canaries, kinds: Kinds, keys: list[bytes], risk: float, seed: bytes
) -> Uniformity | None:
    """Look at what some runs send, as of `see`, and say what masks leave open; None where none are needed.

    Faultless masks may be complained of with probability `risk`. The 32 bytes of the seed choose among
    groups of machines if there are many.
    """
    schedule = canaries.schedule
    if not (hides_parts(schedule) and schedule.trust.shows_messages):
        return None
    runs = -(-NUMBERS // (schedule.rounds * schedule.d))
    kinds, keys, found = kinds[:runs], keys[:runs], []
    sent, unmasked = (of_all.view(np.uint64) for of_all in messages(schedule, canaries, kinds, keys))
    left = np.flatnonzero((sent.sum(axis=0) != unmasked.sum(axis=0)).any(axis=(0, 2)))
    if len(left):
        found.append(
            f"masks do not cancel: in round {left[0] + 1} the sum of all messages is not that of what they "
            "hide"
        )
    groups = list(_groups(schedule.machines, schedule.machines - schedule.parts, seed))
    lags = range(min(schedule.rounds, FARTHEST))
    worst, words, threshold = 0.0, "", math.log(max(1, len(groups)) * len(lags) * 64 / BITS / risk)
    for group, known in zip(groups, _known_masks(canaries, kinds, keys, groups), strict=True):
        numbers = sent[list(group.machines)].sum(axis=0) - known
        for lag in lags:
            of_lag = numbers[:, lag:] - numbers[:, :-lag] if lag else numbers
            place, evidence = _farthest_from_uniform(of_lag.ravel())
            if evidence > worst:
                apart = f", taken from each other {lag} round{'s' * (lag > 1)} apart," * (lag > 0)
                bits = f"bits {place} to {place + BITS - 1}"
                words = f"{group.words}{apart} are not uniform modulo 2^64 in {bits}"
                worst = evidence
    if worst > threshold:
        found.append(words)
    return Uniformity(len(groups), worst, threshold, tuple(found))


def _groups(machines: int, colluders: int, seed: bytes) -> Iterator[Group]:
    """Return groups of machines, each with so many others that work together: all there are, or some.

    The rest of the others is left out: it sends the opposite, but for a small number.
    """
    if math.comb(machines, colluders) * 2 ** (machines - colluders) <= 2 * MOST_GROUPS:
        for known in combinations(range(machines), colluders):
            others = [machine for machine in range(machines) if machine not in known]
            for size in range(1, len(others) // 2 + 1):
                yield from (Group(of, known) for of in combinations(others, size))
        return
    rng, most = np.random.default_rng(list(seed)), (machines - colluders) // 2
    for n in range(MOST_GROUPS if most else 0):
        # Machines by themselves, in pairs, and any number of them.
        size = min(n % 3 or int(rng.integers(1, most + 1)), most)
        order = rng.permutation(machines).tolist()
        yield Group(tuple(sorted(order[-size:])), tuple(sorted(order[:colluders])))


def _known_masks(canaries: Canaries, kinds: Kinds, keys: list[bytes], groups: list[Group]) -> Words:
    """Return what is known of the masks that each group adds to its messages.

    The shape is (groups, runs, rounds, d).
    """
    schedule, count = canaries.schedule, canaries.schedule.machines
    found = np.zeros((len(groups), len(keys), schedule.rounds, schedule.d), np.uint64)
    if not groups:
        return found
    adds, knows = (np.array([np.isin(range(count), of) for of in sets]) for sets in zip(*groups, strict=True))
    for (run, key), machine in product(enumerate(keys), range(count)):
        hosted = range(machine, machine + 1)
        supply = canaries.supply(hosted, kinds[run])
        _, server = machines_and_server(schedule, hosted, supply, Communicator(), key_words(key))
        if (every := server.masks) is None:
            continue
        for other in every.others.tolist():
            concerned, masks = adds[:, machine] & knows[:, other], every.shared_with(other)
            for t in range(schedule.rounds if concerned.any() else 0):
                flat, mask = padded_zeros((schedule.rows, schedule.features))
                masks.add(flat, t + 1)
                found[concerned, run, t] += mask.ravel().view(np.uint64)
    return found


def _farthest_from_uniform(numbers: Words) -> tuple[int, float]:
    """Place of the bits that look least like uniform ones, and the evidence of that."""
    places = np.arange(0, 64, BITS, dtype=np.uint64)
    pieces = (numbers[:, np.newaxis] >> places).astype(np.int64) % VALUES
    pieces += VALUES * np.arange(len(places))
    counts = np.bincount(pieces.ravel(), minlength=VALUES * len(places)).reshape(-1, VALUES)
    evidence = chi_square_evidence(counts)
    farthest = int(evidence.argmax())
    return int(places[farthest]), float(evidence[farthest])
