"""Whether it gives more away that a rank hosts several machines: it must not change a bit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.canaries import Canaries
from mu2mpi.audit.runs import play
from mu2mpi.audit.wire import RecordedRank, on_ranks
from mu2mpi.federation.schedule import Schedule
from mu2mpi.parallel import block
from mu2mpi.privacy.noise import derive_key, key_words

__all__ = ["check_layouts"]


def check_layouts(
    schedule: Schedule, canaries: Canaries, kinds: NDArray[np.bool_], keys: Sequence[bytes]
) -> str | None:
    """Compare runs of which ranks host several machines with those of one machine a rank.

    What leaves a rank of an untrusted server has to be the sum of what leaves the ranks of its machines, to
    the bit, and what a rank without machines receives the same. Then it is a function of what was attacked,
    and gives no more away.

    Parameters
    ----------
    schedule, canaries, kinds, keys
        As of `see`.

    Returns
    -------
    str or None
        What differs, in words; nothing if all is the same.
    """
    count = schedule.machines
    alone = [block(count, count, i) for i in range(count)]
    for kind, key in zip(kinds, keys, strict=True):
        base = _ranks_of(schedule, canaries, kind, key, alone)
        for parts in {1, min(2, count)}:
            layout = [block(count, parts, part) for part in range(parts)]
            ranks = _ranks_of(schedule, canaries, kind, key, layout)
            if not _equal(ranks[-1].received, base[-1].received):
                return f"with {count} machines on {parts} ranks others are sent than with one on each"
            if schedule.server == "trusted":
                continue
            for hosted, rank in zip(layout, ranks[:-1], strict=True):
                together = zip(*(base[i].sent for i in hosted), strict=True)
                if not _equal(rank.sent, [np.sum(arrays, axis=0) for arrays in together]):
                    return f"what leaves a rank with {len(hosted)} machines is not the sum of what they send"
    return None


def _ranks_of(
    schedule: Schedule, canaries: Canaries, kind: NDArray[np.bool_], key: bytes, layout: list[range]
) -> list[RecordedRank]:
    """Return the ranks of a run, with what they sent and received, and one more that hosts no machine."""
    nobody = range(schedule.machines, schedule.machines)
    hosted_by = [*layout, nobody]

    def act(rank: RecordedRank) -> RecordedRank:
        hosted = hosted_by[rank.rank]
        supply = canaries.supply(hosted, kind, derive_key(key, "sampling"))
        play(schedule, hosted, supply, rank, key_words(key), canaries.case)
        return rank

    return on_ranks(len(hosted_by), act)


def _equal(ones: list[NDArray[np.generic]], others: list[NDArray[np.generic]]) -> bool:
    return len(ones) == len(others) and all(map(np.array_equal, ones, others))
