"""Neighbours of machines with masks: as many as needed, and in an order that is random.

Machines that collude must not be able to choose whose neighbours they are.
"""

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mu2mpi.audit.check import Check
from mu2mpi.audit.mask_streams import schedule_with_masks
from mu2mpi.audit.tails import blank_supply
from mu2mpi.federation.schedule import Schedule
from mu2mpi.federation.servers.base import machines_and_server
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import masks
from mu2mpi.privacy.noise import derive_key, key_words

Graph = NDArray[np.bool_]
"""Whether a machine examined shares masks with another: shape (examined, machines)."""
MACHINES = 300
"""Machines of a run."""

EXAMINED = np.arange(0, MACHINES, 12)
"""Those of which the neighbours are examined."""

COLLUDERS = 30
"""Those of them that collude."""

ROOTS = 3
"""Secrets from which different circles follow."""

SIZES = ((3, 0), (3, 1), (10, 1), (50, 25), (200, 20), (1000, 100), (1000, 900), (100_000, 10_000))
"""Machines and colluders for which the number of neighbours is compared with an exact computation."""

FAILURE_BITS = 40
"""Colluders part the other machines with a probability of less than 2^-40."""

NUMBERED = 128
"""Machines of which all pairs must have different keys."""


def check_mask_graph(audited: Schedule, root: bytes, risk: float) -> Check:
    """Attack the choice of neighbours.

    Parameters
    ----------
    audited : Schedule
        Constants of the audited runs, of a server with masks.
    root : bytes
        Secret of 32 bytes from which the keys follow.
    risk : float
        Largest probability of a complaint about faultless code.
    """
    schedule = schedule_with_masks(MACHINES, COLLUDERS, audited.server_options.masks)
    refutations, alarms = _wrong_sizes([*SIZES, (audited.machines, audited.machines - audited.parts)])
    roots = [derive_key(root, "noise", f"circle {n}") for n in range(ROOTS)]
    graphs = [_neighbours(schedule, key) for key in roots]
    half = required_half_neighbours(MACHINES, COLLUDERS)
    for graph in graphs:
        degrees = graph.sum(axis=1)
        if degrees.min() < 2 * half:
            refutations.append(f"a machine shares masks with {degrees.min()} others, and needs {2 * half}")
        if degrees.max() > 2 * half:
            alarms.append(f"a machine shares masks with {degrees.max()} others, and needs {2 * half}")
    names = ["that follow each other", *(f"of run {n}" for n in range(ROOTS))]
    named = list(zip(names, [_circle(half), *graphs], strict=True))
    threshold, highest = math.log(math.comb(len(named), 2) / risk), 0.0
    for (one, graph), (other, another) in combinations(named, 2):
        evidence = _overlap_evidence(graph, another)
        highest = max(highest, evidence)
        if evidence > threshold:
            refutations.append(f"neighbours are not random: machines {one} are as often neighbours {other}")
    keys = {masks.edge_key(root, i, j).tobytes() for i, j in combinations(range(NUMBERED), 2)}
    if (missing := math.comb(NUMBERED, 2) - len(keys)) > 0:
        refutations.append(f"{missing:,} pairs of machines have the key of another pair")
    summary = (
        f"Neighbours of {MACHINES} machines of which {COLLUDERS} collude, {ROOTS} runs: {2 * half} are "
        f"needed; log evidence of an order that is not random {highest:.3g}, where more than "
        f"{threshold:.3g} refutes."
    )
    return Check(summary, tuple(refutations), tuple(alarms))


def required_half_neighbours(machines: int, colluders: int) -> int:
    """Smallest number h of neighbours on either side that colluders occupy too rarely.

    Two runs of h machines occupy 2 h places, which hold nothing but colluders with the probability
    c! (M - 2 h)! / ((c - 2 h)! M!). There are M (M - 1) / 2 pairs of runs.
    """
    half, pairs = 1, math.comb(machines, 2)
    while 2 * half < machines - 1:
        if pairs * math.perm(colluders, 2 * half) << FAILURE_BITS < math.perm(machines, 2 * half):
            break
        half += 1
    return half


def _wrong_sizes(sizes: list[tuple[int, int]]) -> tuple[list[str], list[str]]:
    """Refutations and alarms of numbers of neighbours that differ from the exact ones."""
    refutations: list[str] = []
    alarms: list[str] = []
    for machines, colluders in sizes:
        needed, found = (
            required_half_neighbours(machines, colluders),
            masks.half_neighbours(machines, colluders),
        )
        if found != needed:
            (refutations if found < needed else alarms).append(
                f"of {machines:,} machines, {colluders:,} of which collude, each has {found} neighbours on "
                f"either side, and needs {needed}"
            )
    return refutations, alarms


def _neighbours(schedule: Schedule, key: bytes) -> Graph:
    """Which machines share masks with those examined, as the server of each of these has it."""
    graph = np.zeros((len(EXAMINED), MACHINES), bool)
    for row, machine in zip(graph, EXAMINED.tolist(), strict=True):
        hosted, supply = range(machine, machine + 1), blank_supply(schedule)
        _, server = machines_and_server(schedule, hosted, supply, Communicator(), key_words(key))
        if server.masks is not None:
            row[server.masks.others] = True
    return graph


def _circle(half: int) -> Graph:
    """Which machines would share masks on a circle in the order of their numbers."""
    distances = (np.arange(MACHINES) - EXAMINED[:, np.newaxis]) % MACHINES
    found: Graph = (np.minimum(distances, MACHINES - distances) <= half) & (distances > 0)
    return found


def _overlap_evidence(graph: Graph, other: Graph) -> float:
    """Evidence for more common pairs than two circles in random order have: -log of a bound on the p-value.

    It is Chernoff's bound for a Poisson number of the same mean. Pairs are drawn without replacement, so that
    their number varies less.
    """
    # Pairs of two machines that are both examined count once.
    once = np.arange(MACHINES) > EXAMINED[:, np.newaxis]
    once[:, np.setdiff1d(np.arange(MACHINES), EXAMINED)] = True
    common = int((graph & other & once).sum())
    expected = float((graph & once).sum()) * float((other & once).sum()) / float(once.sum())
    return common * math.log(common / expected) - common + expected if common > expected > 0 else 0.0
