"""The time of a round on many ranks, predicted from one rank and the usual model of messages.

A message of n bytes between two ranks takes alpha + beta n. With P ranks, an Allreduce of large messages
(reduce-scatter and allgather, Rabenseifner 2004) takes 2 log2(P) alpha + 2 (P - 1)/P n beta, and a Reduce of
that kind the same. A Bcast takes (log2(P) + P - 1) alpha + 2 (P - 1)/P n beta as scatter and allgather, or
log2(P) (alpha + n beta) as a binary tree, whichever is less.
"""

import math

ALPHA, BETA = 2e-6, 1 / 12.5e9
RANKS = (10, 100, 1000, 10_000)
BYTES = 8 * 7850


def allreduce(ranks: int) -> float:
    """Return the seconds of an Allreduce, or of a Reduce."""
    return 2 * math.log2(ranks) * ALPHA + 2 * (ranks - 1) / ranks * BYTES * BETA


def broadcast(ranks: int) -> float:
    """Return the seconds of a Bcast."""
    spread = (math.log2(ranks) + ranks - 1) * ALPHA + 2 * (ranks - 1) / ranks * BYTES * BETA
    return min(spread, math.ceil(math.log2(ranks)) * (ALPHA + BYTES * BETA))


def table(untrusted_round: float, noise: float) -> str:
    """Return predictions for one machine on each rank.

    They follow from measured seconds, of a round with one machine on one rank (untrusted), and of one draw.
    """
    lines = [
        "| ranks (one machine each) | untrusted: Allreduce | round | trusted: Reduce + Bcast | round |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for ranks in RANKS:
        together, apart = allreduce(ranks), allreduce(ranks) + broadcast(ranks)
        # The trusted server draws noise while the machines wait, as long as each machine would.
        cells = (together, untrusted_round + together, apart, untrusted_round + apart)
        lines.append(f"| {ranks:,} | " + " | ".join(f"{seconds * 1e6:.0f} µs" for seconds in cells) + " |")
    lines += [
        "",
        f"With α = {ALPHA * 1e6:.0f} µs, 1/β = {1e-9 / BETA:.1f} GB/s and {BYTES / 1000:.0f} kB a message; "
        f"a round on one rank: {untrusted_round * 1e6:.0f} µs, of which noise {noise * 1e6:.0f} µs.",
    ]
    return "\n".join(lines)
