"""Lattices in the noise, noise of another size or that comes twice are found; ideal normals have none."""

import math

import numpy as np
import pytest
from scipy.stats import binom
from slowly import slow

from mu2mpi.audit import tails
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.residues import count_residues, residue_faults, zero_residue_counts
from mu2mpi.audit.structure import ANGLE_BITS, RADIUS_BITS, TAIL_BITS, collect_tail, lattice_evidence
from mu2mpi.audit.tails import RHOS, add_squares, attack_structure, signatures, size_faults
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.trusted import TrustedServer
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import drawing
from mu2mpi.privacy.noise import add_noise
from mu2mpi.privacy.sampler import FINEST

FINE, COARSE = 2.0**30.5, 2.0**15.5
PAIRS = 120
"""As many as lie in the tail of 10^9 normals."""


def tail_of(rng, pairs, scale, u_bits=None, angle_bits=None):
    """Return pairs of ideal normals in the tail, or of some that have few bits, rounded to the grid."""
    u, turns = rng.random(pairs) * 2.0**-TAIL_BITS, rng.random(pairs)
    if u_bits is not None:
        u = np.maximum(1, np.floor(np.ldexp(u, u_bits))) * 2.0**-u_bits
    if angle_bits is not None:
        turns = np.rint(np.ldexp(turns, angle_bits)) * 2.0**-angle_bits
    r = np.sqrt(-2 * np.log(u))
    pair = np.array([r * np.cos(2 * np.pi * turns), r * np.sin(2 * np.pi * turns)])
    return np.rint(pair * scale) / scale


@pytest.mark.parametrize("scale", [FINE, *slow(COARSE, 2.0**9)])
def test_ideal_normals_raise_the_alarm_no_more_often_than_is_stated(scale):
    rng = np.random.default_rng(1)
    logs = np.array([lattice_evidence(tail_of(rng, PAIRS, scale), scale)[0] for _ in range(200)])
    for risk in (0.5, 0.1, 0.02):
        alarms = int(np.sum(logs > -math.log(risk)))
        assert binom.sf(alarms - 1, 200, risk) > 1e-6
    assert np.mean(np.exp(np.minimum(logs, 5))) < 2
    assert logs.max() < -math.log(RISK)


@pytest.mark.slow
def test_normals_drawn_by_numpy_raise_no_alarm():
    """Whole, not the tail alone: as many as take a second."""
    rng, tail, count = np.random.default_rng(2), np.empty((2, 1000)), 0
    hidden = np.arange(20_000_000).reshape(20, -1)
    for _ in range(2):
        noise = np.rint(rng.standard_normal(hidden.size) * FINE).astype(np.int64)
        count = collect_tail(hidden + noise.reshape(hidden.shape), hidden, FINE, tail, count)
    assert 0 < count < 30
    assert lattice_evidence(tail[:, :count], FINE)[0] < -math.log(RISK)


@pytest.mark.parametrize(
    ("scale", "pairs", "u_bits", "angle_bits"),
    [
        (FINE, 5, 40, None),
        (FINE, PAIRS, 50, None),
        (FINE, 2 * PAIRS, 52, None),
        (COARSE, 6, 32, None),
        (FINE, 5, None, 24),
        (FINE, 40, None, 31),
        (COARSE, 40, None, 12),
    ],
)
def test_lattices_are_found_and_named(scale, pairs, u_bits, angle_bits):
    rng = np.random.default_rng(3)
    name = f"radii on a lattice of 2^-{u_bits}" if u_bits else f"angles on a lattice of 2^-{angle_bits}"
    for _ in range(5):
        evidence, strongest = lattice_evidence(tail_of(rng, pairs, scale, u_bits, angle_bits), scale)
        assert evidence > -math.log(RISK)
        if pairs > 6:
            assert strongest == name


def test_a_lattice_that_messages_do_not_resolve_is_not_seen():
    rng = np.random.default_rng(4)
    for u_bits, angle_bits in ((52, None), (None, 40)):
        assert lattice_evidence(tail_of(rng, PAIRS, COARSE, u_bits, angle_bits), COARSE)[0] < 3


def test_a_lattice_between_whole_numbers_is_found():
    rng = np.random.default_rng(5)
    u = (np.floor(rng.random(20) * 2.0**18) + 0.5) * 2.0**-40
    r, angle = np.sqrt(-2 * np.log(u)), rng.random(20)
    pairs = np.rint(np.array([r * np.cos(angle), r * np.sin(angle)]) * FINE) / FINE
    assert lattice_evidence(pairs, FINE)[0] > 20


def test_pairs_of_the_tail_are_found_where_the_noise_puts_them():
    hidden = np.arange(500).reshape(2, 250)
    noise, scale = np.zeros(500, np.int64), 1000.0
    # The last chunk has 244 coordinates, of which 116 are pairs.
    for i, pair in ((0, (5600, 0)), (300, (-4000, 4000)), (371, (0, -5600)), (50, (5500, 0))):
        noise[i], noise[i + 128] = pair
    noise[372] = 9000
    tail = np.zeros((2, 10))
    assert collect_tail(hidden + noise.reshape(hidden.shape), hidden, scale, tail, 1) == 4
    np.testing.assert_array_equal(tail[:, 1:4].T, [[5.6, 0], [-4, 4], [0, -5.6]])
    assert collect_tail(hidden + noise.reshape(hidden.shape), hidden, scale, tail[:, :2], 1) == 2


def test_lattices_are_looked_for_where_messages_can_resolve_them():
    assert set(range(48, 71)) <= set(RADIUS_BITS)
    assert min(RADIUS_BITS) >= TAIL_BITS
    assert set(range(4, 53)) <= set(ANGLE_BITS)


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_real_messages_are_searched_for_lattices(monkeypatch, server):
    """With noise on few rings in place of theirs, and with what numpy draws."""
    rng = np.random.default_rng(6)
    rings = True

    def noised(q, schedule):
        scale = schedule.mechanism.sigma / schedule.mechanism.resolution
        noise = np.zeros((q.size // 256 + 1, 2, 128))
        noise[0, :, :1] = tail_of(rng, 1, scale, 30 if rings else None)
        flat = np.rint(noise.ravel()[: q.size] * scale).astype(np.int64)
        return q + flat.reshape(q.shape)

    monkeypatch.setattr(Machines, "noised", lambda self, t: noised(self.q, self.schedule))
    monkeypatch.setattr(
        TrustedServer, "_noised", lambda self, t, flat: noised(flat[:7850].reshape(10, 785), self._schedule)
    )
    found = attack_structure(server, bytes(32), 1, RISK, Communicator())
    assert (found.normals, found.pairs) == (len(RHOS) * 7_850_000, len(RHOS) * 119)
    assert found.strongest == "radii on a lattice of 2^-30"
    assert found.log_evidence > 100
    rings = False
    found = attack_structure(server, bytes(32), 1, RISK, Communicator())
    assert found.pairs == len(RHOS) * 119
    assert found.log_evidence < -math.log(RISK)
    # One pair of each message is all the noise that there is.
    assert any("of its deviation in coordinate" in words for _, words in found.faults)


# ------------------------------------------------------------------------------- size, and noise used twice


def test_sums_of_squares_of_ideal_normals_are_complained_of_no_more_often_than_is_stated():
    rng = np.random.default_rng(7)
    complaints, d, messages = 0, 300, 1000
    for _ in range(300):
        squares, sums = rng.chisquare(messages, d), rng.chisquare(d, messages)
        sums *= squares.sum() / sums.sum()
        pairs = rng.poisson(messages * 150 * 2.0**-TAIL_BITS)
        complaints += bool(size_faults(squares, sums, 0, pairs, 0.2))
    assert binom.sf(complaints - 1, 300, 0.2) > 1e-6


def test_squares_are_those_of_each_coordinate_and_message():
    rng = np.random.default_rng(8)
    hidden, squares = rng.integers(-1000, 1000, (3, 7)), np.zeros(21)
    noise = rng.integers(-50, 50, (2, 3, 7))
    sums = [add_squares(squares, hidden + of_one, hidden, 10.0) for of_one in noise]
    np.testing.assert_allclose(squares, ((noise / 10.0) ** 2).sum(axis=0).ravel())
    np.testing.assert_allclose(sums, ((noise / 10.0) ** 2).sum(axis=(1, 2)))


def test_equal_chunks_have_equal_signatures_and_others_have_others():
    noise = np.random.default_rng(9).integers(-(2**20), 2**20, (2, 1, 5 * 256 + 7))
    noise[1, 0, 512:768] = noise[0, 0, 256:512]
    one, other = map(signatures, noise)
    assert len(one) == len(other) == 5
    assert one[1] == other[2]
    assert len({*one.tolist(), *other.tolist()}) == 9


def silent_from_the_second_chunk(noised, message, key, *where):
    add_noise(noised, message, key, *where)
    noised[256:] = message[256:]


def silent_in_one_coordinate(noised, message, key, *where):
    add_noise(noised, message, key, *where)
    noised[4000] = message[4000]


def too_small_on_fine_grids(noised, message, key, who, first, count, t, scale):
    add_noise(noised, message, key, who, first, count, t, min(scale, FINEST))


def repeated_after_64_rounds(noised, message, key, who, first, count, t, scale):
    add_noise(noised, message, key, who, first, count, t % 64, scale)


def a_tenth_too_large(noised, message, key, who, first, count, t, scale):
    add_noise(noised, message, key, who, first, count, t, scale * 1.1)


@pytest.mark.parametrize("server", ["untrusted", *slow("trusted")])
@pytest.mark.parametrize(
    ("fault", "is_less", "words"),
    [
        (silent_from_the_second_chunk, True, "has 0 of its deviation in coordinate 256"),
        (silent_in_one_coordinate, True, "has 0 of its deviation in coordinate 4000"),
        (too_small_on_fine_grids, True, "of its deviation in message"),
        (repeated_after_64_rounds, True, "chunks of the noise of real messages were used before"),
        (a_tenth_too_large, False, "has 1.1 of its deviation"),
    ],
)
def test_noise_of_real_messages_that_has_another_size_or_comes_twice_is_found(
    monkeypatch, server, fault, is_less, words
):
    monkeypatch.setattr(drawing, "add_noise", fault)
    found = attack_structure(server, bytes(32), 1, RISK, Communicator())
    assert [less for less, said in found.faults if words in said][:1] == [is_less]


# ------------------------------------------------------------------------------------------------- low bits


def multiples_of(step):
    def coarse(noised, message, *where):
        add_noise(noised, message, *where)
        noised[:] = message + (noised - message + step // 2) // step * step

    return coarse


def a_bit_that_is_always_set(noised, message, *where):
    add_noise(noised, message, *where)
    noised[:] = message + ((noised - message) | 2**17)


def neighbours_of_equal_low_bits(noised, message, *where):
    add_noise(noised, message, *where)
    noise = noised - message
    noised[1::2] = message[1::2] + (noise[1::2] & ~15) + (noise[::2] & 15)


def pairs_of_equal_low_bits(noised, message, *where):
    add_noise(noised, message, *where)
    noise = (noised - message).reshape(-1, 2, 128)
    noise[:, 1] += noise[:, 0] % 16 - noise[:, 1] % 16
    noised[:] = message + noise.ravel()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (multiples_of(2), "bits 0 to 7 of the noise"),
        (multiples_of(256), "bits 0 to 7 of the noise"),
        (multiples_of(2**16), "bits 8 to 15 of the noise"),
        (a_bit_that_is_always_set, "bits 16 to 19 of the noise"),
        (neighbours_of_equal_low_bits, "bits 0 to 7 of the difference of neighbouring coordinates"),
        (pairs_of_equal_low_bits, "bits 0 to 7 of the difference of the coordinates of a pair"),
    ],
)
def test_low_bits_of_the_noise_that_are_not_uniform_are_refuted(monkeypatch, fault, words):
    monkeypatch.setattr(tails, "MESSAGES", 40)
    monkeypatch.setattr(drawing, "add_noise", fault)
    found = attack_structure("untrusted", bytes(32), 1, RISK, Communicator())
    assert any(is_less and said.startswith(words) for is_less, said in found.faults)


@pytest.mark.parametrize("scale", [2.0**5, 2.0**12, 2.0**20.3, FINE])
def test_low_bits_of_ideal_normals_are_complained_of_no_more_often_than_is_stated(scale):
    rng, complaints = np.random.default_rng(10), 0
    for _ in range(100):
        counts = zero_residue_counts()
        for _ in range(4):
            count_residues(counts, np.rint(rng.standard_normal((40, 512)) * scale).astype(np.int64))
        complaints += bool(residue_faults(counts, scale, 0.1))
    assert binom.sf(complaints - 1, 100, 0.1) > 1e-6


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_real_messages_have_no_fault(server):
    found = attack_structure(server, bytes(32), 1, RISK, Communicator())
    assert found.faults == ()
    assert found.log_evidence < -math.log(RISK)
