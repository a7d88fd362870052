"""Noise of messages of real size: its standard deviation, its low bits, and whether it is always fresh."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np

from mu2mpi.audit.adversary_view import Finding, View
from mu2mpi.audit.canaries import BOUNDARIES, Integers, one_machine, real_schedule
from mu2mpi.audit.evidence import chi_square_evidence, count_bytes
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import find
from mu2mpi.federation.batching import Fresh
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.timer import Stopwatch
from mu2mpi.losses.loss import Array
from mu2mpi.privacy.noise.noise_stream import CHUNK, MAX_NUMBER, PAIRS, derive_key

RHOS = 4.0, 0.25  # of two runs: with the last, the grid is so fine that draws are spread
MORE_ROUNDS = range(1, 1001)  # of a central server, which draws for all machines at once
# Factors of the first coordinates of a chunk of noise in a sum that tells it from any other.
SIGNATURE: Integers = np.random.default_rng(0).integers(2**62, size=6) * 2 + 1
# Bytes that are counted, and of what.
LOW_BYTES = (
    (0, "the noise"),
    (1, "the noise"),
    (2, "the noise"),
    (0, "the difference of neighbouring coordinates of the noise"),
    (0, "the difference of the coordinates of a pair of normals of the noise"),
)


def applies(_: RunConstants) -> bool:
    """Whether there is noise: an audit is of nothing else."""
    return True


def run(view: View) -> Finding:
    """Examine the messages, and judge all of them together."""
    schedules = [_constants(view.constants, rho) for rho in RHOS]
    d, machines, rounds = schedules[0].task.d, *_numbers(schedules[0])
    # With one key both runs would have the same normals.
    keys = [derive_key(view.root, "noise", f"real messages, rho {rho}") for rho in RHOS]
    runs = zip(schedules, keys, strict=True)
    found = [noise_statistics(constants, key, machines, rounds) for constants, key in runs]
    all_squares, all_sums, repeated, counts = zip(*found, strict=True)
    squares, sums = np.sum(all_squares, axis=0), np.concatenate(all_sums)
    refutations, alarms = list[str](), list[str]()
    limit = NormalDist().inv_cdf(1 - view.risk / (4 * (d + sums.size + 1)))
    for name, of_each, size in (
        ("all messages", np.array([math.fsum(sums)]), sums.size * d),
        ("coordinate", squares, sums.size),
        ("round", sums, d),
    ):
        far = deviations(of_each, size)
        for is_less, worst in ((True, int(far.argmin())), (False, int(far.argmax()))):
            if abs(far[worst]) > limit and is_less == (far[worst] < 0):
                where = f"{name} {worst}" if of_each.size > 1 else name
                if name == "round":
                    machine, place = divmod(worst % (len(machines) * len(rounds)), len(rounds))
                    where = f"round {rounds[place]:,} of machine {machines[machine]:,}"
                share = math.sqrt(of_each[worst] / size)
                words = f"noise of real messages has {share:.4g} of its deviation in {where}"
                (refutations if is_less else alarms).append(words)
    if any(repeated):
        refutations.append(f"{sum(repeated):,} chunks of the noise of real messages were used before")
    for constants, of_rho in zip(schedules, counts, strict=True):
        refutations += low_bit_faults(of_rho, _noise_scale(constants), view.risk / (2 * len(RHOS)))
    summary = (
        f"Noise of {sums.size:,} real messages of {d:,} coordinates, of machines and rounds below "
        f"2^32: {len(refutations) + len(alarms) or 'no'} faults of size, low bits or repetition."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _constants(audited: RunConstants, rho: float) -> RunConstants:
    """Constants of a run without masks: 2^32 machines have too many neighbours."""
    correlation, own = audited.mechanism.correlation, dict[str, Any](rho=rho, server=audited.task.server)
    if "masks" in find("servers", audited.task.server).options.model_fields:
        own["masks"] = "none"
    if correlation is not None:
        own |= {"noise_correlation": correlation.power, "noise_buffers": correlation.buffers}
        own |= {"method": "mu2-sgd" if correlation.lasts else "anytime-dp-mf", "rounds": len(MORE_ROUNDS) + 1}
    return real_schedule(**own)


def _numbers(constants: RunConstants) -> tuple[list[int], list[int]]:
    """Machines and rounds that are examined: consecutive ones of correlated noise."""
    machines = [0] if constants.task.trust.is_central else BOUNDARIES
    if constants.mechanism.correlation is not None:
        return machines, list(MORE_ROUNDS[: len(MORE_ROUNDS) // len(machines)])
    return machines, sorted({*BOUNDARIES[1:], *(MORE_ROUNDS if constants.task.trust.is_central else ())})


def noise_statistics(
    constants: RunConstants, key: bytes, machines: list[int], rounds: list[int]
) -> tuple[Array, list[float], int, Integers]:
    """Return squares of fresh draws by coordinate and message, repeated chunks, and counts of `LOW_BYTES`."""
    scale, d = _noise_scale(constants), constants.task.d
    if not constants.task.trust.is_central:
        constants = constants.with_task(machines=MAX_NUMBER)
    if constants.mechanism.correlation is None:
        constants = replace(constants, sampling=Fresh(MAX_NUMBER, MAX_NUMBER))
    squares, sums, counts = np.zeros(d), [], np.zeros((len(LOW_BYTES), 256), np.int64)
    signatures, whole = [], d // CHUNK * CHUNK
    for noise, fresh in chain.from_iterable(_noise_of_machine(constants, key, i, rounds) for i in machines):
        of_message = np.square(fresh / scale)
        squares += of_message
        sums.append(float(of_message.sum()))
        signatures.append(fresh[:whole].reshape(-1, CHUNK)[:, : len(SIGNATURE)] @ SIGNATURE)
        count_bytes(counts[:3], noise)
        count_bytes(counts[3:4], noise[1:] - noise[:-1])
        count_bytes(counts[4:], noise[PAIRS:] - noise[:-PAIRS])
    found = np.concatenate(signatures)
    return squares, sums, found.size - np.unique(found).size, counts


def deviations(sums: Array, n: int) -> Array:
    """Return by how many deviations sums of n squares of normals are large (Wilson and Hilferty, 1931)."""
    variance = 2 / (9 * n)
    found: Array = (np.cbrt(sums / n) - (1 - variance)) / math.sqrt(variance)
    return found


def low_bit_faults(counts: Integers, scale: float, risk: float) -> list[str]:
    """Say which bits are not uniform: those up to 2^k <= scale are, up to 2 exp(-2 pi^2) relative."""
    found, bits = [], math.floor(math.log2(scale))
    for row, (byte, whose) in zip(counts, LOW_BYTES, strict=True):
        width = max(0, min(8, bits - 8 * byte))
        uniform = row.reshape(-1, 2**width).sum(axis=0)
        if width and chi_square_evidence(uniform) > math.log(len(counts) / risk):
            found.append(f"bits {8 * byte} to {8 * byte + width - 1} of {whose} are not uniform")
    return found


def _noise_scale(constants: RunConstants) -> float:
    """Return the standard deviation of what a machine, or a central server, draws, in units of the grid."""
    variance = constants.task.variances / (1 if constants.task.trust.is_central else constants.task.machines)
    return math.sqrt(variance) * constants.mechanism.sigma / constants.mechanism.resolution


def _noise_of_machine(
    constants: RunConstants, key: bytes, machine: int, rounds: list[int]
) -> Iterator[tuple[Integers, Integers]]:
    """Yield a machine's or central server's noise, and it less what follows from that of earlier rounds."""
    machines, server = one_machine(constants, machine, Communicator(), key)
    before: Any = 0
    if (correlation := constants.mechanism.correlation) is not None:
        buffers = np.zeros((len(correlation.weights), constants.task.d))
    for t in rounds:
        server.round(t, machines, Stopwatch())
        message = server.iterates.direction if server.unmasked is None else server.unmasked
        if message is None:
            raise RuntimeError("the server took no step")
        noise = fresh = (message - machines.q).ravel()
        if correlation is not None:
            y = (noise - before) / correlation.norm(t)
            before = noise * correlation.lasts
            fresh = np.rint(y + correlation.weights @ buffers).astype(np.int64)
            buffers = buffers * correlation.decays[:, np.newaxis] + y
        yield noise, fresh
