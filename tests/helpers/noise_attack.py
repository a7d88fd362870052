"""Attack on the noise of MNIST-sized messages: its standard deviation, low bits and freshness."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from statistics import NormalDist
from typing import Any

import numpy as np

from mu2mpi.audit.adversary_view import AttackContext, Finding
from mu2mpi.audit.canaries import BOUNDARY_INDICES, create_single_machine, mnist_sized_constants
from mu2mpi.audit.evidence import chi_square_evidence
from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.kernels import kernel
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import lookup
from mu2mpi.federation.batching import FreshSamples
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.timer import Timer
from mu2mpi.privacy.noise.noise_stream import CHUNK_PAIRS, CHUNK_WORDS, MAX_STREAM_INDEX, derive_key

TESTED_RHOS = 4.0, 0.25  # of two runs; the second has a grid so fine that the sampler extends its bits
CONSECUTIVE_TESTED_ROUNDS = range(1, 1001)  # of a central server, which adds noise for all machines at once
IDENTIFYING_COORDINATES = 6  # first coordinates of a chunk of noise, which identify the chunk
# Tested bytes (0: the lowest), and the integers that contain them
TESTED_NOISE_BYTES = (
    *((byte, "the noise") for byte in range(3)),
    (0, "the difference of neighbouring coordinates of the noise"),
    (0, "the difference of the coordinates of a pair of normals of the noise"),
)


def attack_applies(_: RunConstants) -> bool:
    """Return True: this attack applies to all run constants, as every audited run has noise."""
    return True


def run_attack(context: AttackContext) -> Finding:
    """Test standard deviation, low bits and freshness of the noise in all messages jointly."""
    noisy_constants = [_noise_constants(context.constants, rho) for rho in TESTED_RHOS]
    d, machines, rounds = noisy_constants[0].problem.d, *_tested_machines_and_rounds(noisy_constants[0])
    # With equal keys, both runs would have the same noise.
    keys = [derive_key(context.root_key, "noise", f"real messages, rho {rho}") for rho in TESTED_RHOS]
    runs = zip(noisy_constants, keys, strict=True)
    statistics = [noise_statistics(*run, machines, rounds) for run in runs]
    all_squares, all_sums, repeated, counts = zip(*statistics, strict=True)
    squares, sums = np.sum(all_squares, axis=0), np.concatenate(all_sums)
    refutations, alarms = list[str](), list[str]()
    limit = NormalDist().inv_cdf(1 - context.error_probability / (4 * (d + sums.size + 1)))
    for name, totals, size in (
        ("all messages", np.array([math.fsum(sums)]), sums.size * d),
        ("coordinate", squares, sums.size),
        ("round", sums, d),
    ):
        scores = standard_scores(totals, size)
        for is_too_small, worst in ((True, int(scores.argmin())), (False, int(scores.argmax()))):
            if abs(scores[worst]) > limit and is_too_small == (scores[worst] < 0):
                where = f"{name} {worst}" if totals.size > 1 else name
                if name == "round":
                    machine, position = divmod(worst % (len(machines) * len(rounds)), len(rounds))
                    where = f"round {rounds[position]:,} of machine {machines[machine]:,}"
                share = math.sqrt(totals[worst] / size)
                text = f"noise of real messages has {share:.4g} of its standard deviation in {where}"
                (refutations if is_too_small else alarms).append(text)
    if any(repeated):
        refutations.append(f"{sum(repeated):,} chunks of the noise of real messages were used before")
    error_each = context.error_probability / (2 * len(TESTED_RHOS))
    for constants, byte_counts in zip(noisy_constants, counts, strict=True):
        refutations += low_bit_faults(byte_counts, _noise_std(constants), error_each)
    summary = (
        f"Noise of {sums.size:,} real messages of {d:,} coordinates, of machines and rounds below "
        f"2^32: {len(refutations) + len(alarms) or 'no'} faults of size, low bits or repetition."
    )
    return Finding(summary, tuple(refutations), tuple(alarms))


def _noise_constants(constants: RunConstants, rho: float) -> RunConstants:
    """Run constants with MNIST-sized messages and no masks; 2^32 machines would need too many masks."""
    settings: dict[str, Any] = {"rho": rho, "server": constants.problem.server}
    if "masks" in lookup("servers", constants.problem.server).options.model_fields:
        settings["masks"] = "none"
    if (correlation := constants.mechanism.correlation) is not None:
        settings |= {"noise_correlation": correlation.power, "noise_buffers": correlation.buffers}
        settings["method"] = "mu2-sgd" if correlation.is_cumulative else "anytime-dp-mf"
        settings["rounds"] = len(CONSECUTIVE_TESTED_ROUNDS) + 1
    return mnist_sized_constants(**settings)


def _tested_machines_and_rounds(constants: RunConstants) -> tuple[list[int], list[int]]:
    """Select the machines (from 0) and rounds (from 1) whose noise is tested."""
    is_central = constants.problem.trust_mode.is_central
    machines = [0] if is_central else BOUNDARY_INDICES
    if constants.mechanism.correlation is not None:
        return machines, list(CONSECUTIVE_TESTED_ROUNDS[: len(CONSECUTIVE_TESTED_ROUNDS) // len(machines)])
    return machines, sorted({*BOUNDARY_INDICES[1:], *(CONSECUTIVE_TESTED_ROUNDS if is_central else ())})


def noise_statistics(
    constants: RunConstants, key: bytes, machines: list[int], rounds: list[int]
) -> tuple[FloatArray, list[float], int, IntArray]:
    """Return squared noise by coordinate and by message, repeated chunks, and histograms of low bytes."""
    noise_std, d = _noise_std(constants), constants.problem.d
    if not constants.problem.trust_mode.is_central:
        constants = constants.with_problem(machines=MAX_STREAM_INDEX)
    if constants.mechanism.correlation is None:
        constants = replace(constants, batching=FreshSamples(MAX_STREAM_INDEX, MAX_STREAM_INDEX))
    squares, sums, counts = np.zeros(d), [], np.zeros((len(TESTED_NOISE_BYTES), 256), np.int64)
    chunks, chunked = list[bytes](), d // CHUNK_WORDS * CHUNK_WORDS
    for noise, fresh in chain.from_iterable(_machine_noise(constants, key, i, rounds) for i in machines):
        message_squares = np.square(fresh / noise_std)
        squares += message_squares
        sums.append(float(message_squares.sum()))
        starts = fresh[:chunked].reshape(-1, CHUNK_WORDS)[:, :IDENTIFYING_COORDINATES]
        chunks += [start.tobytes() for start in starts]
        add_byte_counts(counts[:3], noise)
        add_byte_counts(counts[3:4], noise[1:] - noise[:-1])
        add_byte_counts(counts[4:], noise[CHUNK_PAIRS:] - noise[:-CHUNK_PAIRS])
    return squares, sums, len(chunks) - len(set(chunks)), counts


@kernel
def add_byte_counts(byte_counts, values):
    """Add the bytes of int64 values, shape (n,), from the lowest on, to counts, shape (bytes, 256)."""
    for value in values:
        for byte in range(len(byte_counts)):
            byte_counts[byte, value >> 8 * byte & 255] += 1


def standard_scores(square_sums: FloatArray, n: int) -> FloatArray:
    """Return standard scores of sums of n squared standard normals (Wilson and Hilferty, 1931)."""
    variance = 2 / (9 * n)
    return np.asarray((np.cbrt(square_sums / n) - (1 - variance)) / math.sqrt(variance))


def low_bit_faults(byte_counts: IntArray, noise_std: float, error_probability: float) -> list[str]:
    """Return descriptions of low noise bits, below the noise std, that are not uniform."""
    faults, bits = [], math.floor(math.log2(noise_std))
    for row, (byte, values) in zip(byte_counts, TESTED_NOISE_BYTES, strict=True):
        width = max(0, min(8, bits - 8 * byte))
        bit_counts = row.reshape(-1, 2**width).sum(axis=0)
        if width and chi_square_evidence(bit_counts) > math.log(len(byte_counts) / error_probability):
            faults.append(f"bits {8 * byte} to {8 * byte + width - 1} of {values} are not uniform")
    return faults


def _noise_std(constants: RunConstants) -> float:
    """Noise std of one machine's message, or of a central server's sum, in grid spacings."""
    senders = 1 if constants.problem.trust_mode.is_central else constants.problem.machines
    variance = constants.problem.variance_factor / senders
    return math.sqrt(variance) * constants.mechanism.sigma / constants.mechanism.grid_spacing


def _machine_noise(
    constants: RunConstants, key: bytes, machine: int, rounds: list[int]
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the noise of a machine in each round, and its part that is independent of earlier rounds."""
    machines, server = create_single_machine(constants, machine, Communicator(), key)
    previous: Any = 0
    if (correlation := constants.mechanism.correlation) is not None:
        buffers = np.zeros((len(correlation.weights), constants.problem.d))
    for t in rounds:
        server.run_round(t, machines, Timer())
        message = server.iterates.noised_sum if server.unmasked_message is None else server.unmasked_message
        noise = fresh = (message - machines.message_sum).ravel()
        if correlation is not None:
            y = (noise - previous) / correlation.column_norm(t)
            previous = noise * correlation.is_cumulative
            fresh = np.rint(y + correlation.weights @ buffers).astype(np.int64)
            buffers = buffers * correlation.decays[:, np.newaxis] + y
        yield noise, fresh
