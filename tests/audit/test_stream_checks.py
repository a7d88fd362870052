"""Random streams of machines, rounds and masks: faultless ones pass, and each planted fault is refuted."""

import math

import numpy as np
import pytest
from slowly import slow

from mu2mpi.audit import mask_graph, noise_streams, tails, trials
from mu2mpi.audit.boundaries import boundary_numbers
from mu2mpi.audit.canaries import CLIPPED
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.mask_graph import check_mask_graph, required_half_neighbours
from mu2mpi.audit.mask_streams import check_mask_streams
from mu2mpi.audit.noise_streams import check_noise_streams, check_sample_streams
from mu2mpi.audit.streams import check_streams
from mu2mpi.config.experiment import Experiment
from mu2mpi.federation import draws
from mu2mpi.federation.machine import Machines
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import drawing, masks
from mu2mpi.privacy.binomial import BinomialDraws
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.privacy.masks import Masks
from mu2mpi.privacy.noise import add_noise

CORRELATIONS = [Correlation(0.8, 4, 10, True, False), Correlation(0.5, 8, 10, False, True)]


@pytest.fixture
def few_numbers(monkeypatch):
    """Fewer machines and rounds, up to the same largest ones."""
    monkeypatch.setattr(noise_streams, "CONSECUTIVE", 12)
    monkeypatch.setattr(noise_streams, "LOWEST_BIT", 15)


def audited(server="aggregated", machines=3, rounds=4, **settings):
    experiment = Experiment(server=server, machines=machines, rounds=rounds, rho=1.0, **settings)
    return trials._schedule(experiment, CLIPPED)


def root_of(seed):
    return seed.to_bytes(32, "little")


def test_numbers_cut_to_any_number_of_bits_coincide_with_others():
    numbers = boundary_numbers(21, 5)
    assert numbers[:21] == list(range(21))
    assert numbers[-1] == 2**32 - 2
    for bits in range(5, 32):
        assert len({number % 2**bits for number in numbers}) < len(numbers)
    assert len({np.float32(number) for number in numbers}) < len(numbers)


# ------------------------------------------------------------------------------------------- faultless code


@pytest.mark.parametrize("server", ["untrusted", "trusted", "aggregated", "shuffled"])
def test_faultless_noise_passes(few_numbers, server):
    for seed in range(3):
        check = check_noise_streams(server, root_of(seed), RISK, None)
        assert (check.refutations, check.alarms) == ((), ())


@pytest.mark.parametrize("correlation", CORRELATIONS)
@pytest.mark.parametrize("server", ["untrusted", *slow("trusted", "aggregated")])
def test_faultless_correlated_noise_passes(few_numbers, server, correlation):
    check = check_noise_streams(server, root_of(1), RISK, correlation)
    assert (check.refutations, check.alarms) == ((), ())


@pytest.mark.parametrize("chance", ["poisson", "replacement"])
def test_faultless_samples_pass(few_numbers, chance):
    assert check_sample_streams(chance, root_of(1)).refutations == ()


@pytest.mark.parametrize(
    ("machines", "colluders", "option"),
    [(3, 1, "crossing"), *slow((3, 0, "all"), (4, 2, "crossing"), (10, 1, "crossing"), (3, 2, "crossing"))],
)
def test_faultless_masks_pass(machines, colluders, option):
    schedule = audited(machines=machines, colluders=colluders, masks=option)
    for seed in range(2):
        for check in (check_mask_streams, check_mask_graph):
            found = check(schedule, root_of(seed), RISK)
            assert (found.refutations, found.alarms) == ((), ())


def test_an_audit_attacks_streams(monkeypatch, few_numbers):
    monkeypatch.setattr(trials, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(tails, "MESSAGES", 20)
    silent_from_machine_10_on(monkeypatch)
    experiment = Experiment(server="untrusted", machines=3, rounds=3, rho=8.0, seed=1)
    finding = trials.audit(experiment, 80, Communicator())
    # Of sensitivity, of the noise's streams and of transfers.
    assert len(finding.checks) == 3
    assert any("of machine 10" in refutation for refutation in finding.refutations)


def test_attacks_are_those_on_streams_that_are_used(monkeypatch):
    """Also that the risk is divided among them, and the correlation is that of the audited runs."""
    called = []
    for name in ("noise_streams", "sample_streams", "mask_streams", "mask_graph"):

        def record(*arguments, name=name):
            called.append((name, *arguments))

        monkeypatch.setattr(f"mu2mpi.audit.streams.check_{name}", record)
    check_streams(audited("untrusted", noise_correlation=0.5), bytes(32), 0.3)
    assert called[0][:3] == ("noise_streams", "untrusted", bytes(32))
    assert called[0][4].power == 0.5
    assert len(called) == 1
    for server, settings in (("trusted", {"method": "dp-sgd"}), ("aggregated", {})):
        check_streams(audited(server, **settings), bytes(32), 0.3)
    assert [name for name, *_ in called[1:]] == [
        "noise_streams", "sample_streams", "noise_streams", "mask_streams", "mask_graph"
    ]  # fmt: skip
    assert sum(call[3] for call in called[3:]) == pytest.approx(0.3)


# --------------------------------------------------------------------------------------------- noise streams


def change_noise(monkeypatch, change):
    """Call `add_noise` with what `change` makes of first, t and scale."""

    def changed(noised, message, key, who, first, count, t, scale):
        first, t, scale = change(first, t, scale)
        add_noise(noised, message, key, who, first, count, t, scale)

    monkeypatch.setattr(drawing, "add_noise", changed)


def noise_of_16_bit_rounds(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (first, t & 0xFFFF, scale))


def noise_of_16_bit_machines(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (first & 0xFFFF, t, scale))


def noise_of_rounded_rounds(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (first, int(np.float32(t)) % 2**32, scale))


def one_number_of_machine_and_round(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (0, (first + t) % 2**32, scale))


def silent_from_machine_10_on(monkeypatch):
    noised = Machines.noised
    monkeypatch.setattr(Machines, "noised", lambda self, t: self.q if self.first >= 10 else noised(self, t))


def silent_kernel_from_machine_10_on(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (first, t, 0.0 if first >= 10 else scale))


def weak_in_late_rounds(monkeypatch):
    change_noise(monkeypatch, lambda first, t, scale: (first, t, scale * (0.5 if t > 2**20 else 1)))


@pytest.mark.parametrize(
    ("server", "break_it", "words"),
    [
        ("untrusted", noise_of_16_bit_rounds, "used before"),
        ("trusted", noise_of_16_bit_rounds, "used before"),
        ("untrusted", noise_of_16_bit_machines, "used before"),
        ("trusted", noise_of_rounded_rounds, "used before"),
        ("untrusted", one_number_of_machine_and_round, "used before"),
        ("untrusted", silent_from_machine_10_on, "0 of its deviation in round 1 of machine 10"),
        ("aggregated", silent_kernel_from_machine_10_on, "0 of its deviation in round 1 of machine 10"),
        ("trusted", weak_in_late_rounds, "of its deviation in round"),
    ],
)
def test_noise_of_large_numbers_that_is_missing_or_repeated_is_refuted(
    monkeypatch, few_numbers, server, break_it, words
):
    break_it(monkeypatch)
    check = check_noise_streams(server, root_of(1), RISK, None)
    assert any(words in refutation for refutation in check.refutations)


@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_correlated_noise_of_large_machines_that_is_missing_is_refuted(monkeypatch, few_numbers, correlation):
    silent_from_machine_10_on(monkeypatch)
    check = check_noise_streams("untrusted", root_of(1), RISK, correlation)
    assert any("of its deviation in" in refutation for refutation in check.refutations)


def test_coins_of_16_bit_rounds_are_refuted(monkeypatch, few_numbers):
    call = BinomialDraws.__call__
    monkeypatch.setattr(
        BinomialDraws, "__call__", lambda self, noised, message, t: call(self, noised, message, t & 0xFFFF)
    )
    assert check_noise_streams("shuffled", root_of(1), RISK, None).refutations


@pytest.mark.parametrize(("chance", "name"), [("poisson", "_independent"), ("replacement", "_uniform")])
@pytest.mark.parametrize("place", [1, 2])
def test_samples_of_16_bit_numbers_are_refuted(monkeypatch, few_numbers, chance, name, place):
    """Of machines or of rounds: the numbers follow the key among a kernel's arguments."""
    draw = getattr(draws, name)

    def changed(*arguments):
        cut = list(arguments)
        cut[place] &= 0xFFFF
        return draw(*cut)

    monkeypatch.setattr(draws, name, changed)
    assert check_sample_streams(chance, root_of(1)).refutations


# --------------------------------------------------------------------------------------------- mask streams


def masks_of_the_first_chunk(monkeypatch):
    add = Masks.add
    monkeypatch.setattr(Masks, "add", lambda self, masked, t: add(self, masked[:256], t))


def masks_of_all_but_one_coordinate(monkeypatch):
    add = Masks.add

    def flawed(self, masked, t):
        kept = masked[4000]
        add(self, masked, t)
        masked[4000] = kept

    monkeypatch.setattr(Masks, "add", flawed)


def one_mask_for_all_chunks(monkeypatch):
    add = Masks.add

    def flawed(self, masked, t):
        mask = np.zeros(256, np.int64)
        add(self, mask, t)
        masked += np.tile(mask, len(masked) // 256)

    monkeypatch.setattr(Masks, "add", flawed)


def change_rounds(monkeypatch, change):
    add = Masks.add
    monkeypatch.setattr(Masks, "add", lambda self, masked, t: add(self, masked, change(t)))


def masks_repeated_after_13_rounds(monkeypatch):
    change_rounds(monkeypatch, lambda t: t % 13)


def masks_of_16_bit_rounds(monkeypatch):
    change_rounds(monkeypatch, lambda t: t & 0xFFFF)


def masks_of_31_bit_rounds(monkeypatch):
    change_rounds(monkeypatch, lambda t: t & 0x7FFFFFFF)


def overlapping_chunks(monkeypatch):
    """Each chunk begins where the one before has used a part of the keystream."""
    add = Masks.add

    def flawed(self, masked, t):
        masks_of_all = np.zeros(len(masked), np.int64)
        add(self, masks_of_all, t)
        masks_of_all[256:512] = np.roll(masks_of_all[:256], -8)
        masked += masks_of_all

    monkeypatch.setattr(Masks, "add", flawed)


def a_repeated_edge(monkeypatch):
    """One pair of machines repeats its masks, which those of other pairs hide in what machines send."""
    add = masks.add_masks
    repeated = []

    def flawed(masked, keys, signs, t):
        for key, sign in zip(keys, signs, strict=True):
            first = repeated or repeated.append(key.tobytes()) or repeated
            add(masked, key[np.newaxis], np.array([sign]), t % 13 if key.tobytes() == first[0] else t)

    monkeypatch.setattr(masks, "add_masks", flawed)


def one_end_left_out_late(monkeypatch):
    add = Masks.add

    def flawed(self, masked, t):
        if t < 2**24 or self.others[0] != 0:
            add(self, masked, t)

    monkeypatch.setattr(Masks, "add", flawed)


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (masks_of_the_first_chunk, "not uniform modulo 2^64"),
        (masks_of_all_but_one_coordinate, "of chunk 15 of real messages"),
        (one_mask_for_all_chunks, "used before"),
        (masks_repeated_after_13_rounds, "used before"),
        (masks_of_16_bit_rounds, "used before"),
        (masks_of_31_bit_rounds, "used before"),
        (overlapping_chunks, "used before"),
        (a_repeated_edge, "masks of pairs of machines: "),
        (one_end_left_out_late, "do not cancel in round 16,777,216"),
    ],
)
def test_masks_of_real_messages_that_leak_are_refuted(monkeypatch, break_it, words):
    break_it(monkeypatch)
    check = check_mask_streams(audited(), root_of(1), RISK)
    assert any(words in refutation for refutation in check.refutations)


def test_no_masks_are_refuted():
    schedule = audited(masks="none")
    assert check_mask_streams(schedule, root_of(1), RISK).refutations
    assert check_mask_graph(schedule, root_of(1), RISK).refutations


# ----------------------------------------------------------------------------------------------- neighbours


def in_the_order_of_machines(monkeypatch):
    monkeypatch.setattr(masks, "edges", lambda machines, colluders, root: _circle(np.arange(machines)))


def _circle(order):
    half = required_half_neighbours(len(order), len(order) // 10)
    pairs = [np.stack([order, np.roll(order, -step)], axis=1) for step in range(1, half + 1)]
    return np.sort(np.concatenate(pairs), axis=1)


def in_blocks(monkeypatch):
    """Only machines whose numbers are close change places."""

    def flawed(machines, colluders, root):
        order = np.random.default_rng(list(root)).permuted(np.arange(machines).reshape(-1, 50), axis=1)
        return _circle(order.ravel())

    monkeypatch.setattr(masks, "edges", flawed)


def one_circle_for_all_runs(monkeypatch):
    edges = masks.edges
    monkeypatch.setattr(
        masks, "edges", lambda machines, colluders, root: edges(machines, colluders, bytes(32))
    )


def too_few_neighbours(monkeypatch):
    half = masks.half_neighbours
    monkeypatch.setattr(masks, "half_neighbours", lambda *sizes: max(1, half(*sizes) - 1))


def no_neighbours_on_one_side(monkeypatch):
    edges = masks.edges
    monkeypatch.setattr(masks, "edges", lambda *sizes: edges(*sizes)[::2])


def keys_of_joined_numbers(monkeypatch):
    key = masks.edge_key
    monkeypatch.setattr(masks, "edge_key", lambda root, i, j: key(root, int(f"{i}{j}"), 0))


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (in_the_order_of_machines, "neighbours are not random: machines that follow each other"),
        (in_blocks, "neighbours are not random: machines that follow each other"),
        (
            one_circle_for_all_runs,
            "neighbours are not random: machines of run 0 are as often neighbours of run 1",
        ),
        (too_few_neighbours, "and needs"),
        (no_neighbours_on_one_side, "others, and needs 16"),
        (keys_of_joined_numbers, "have the key of another pair"),
    ],
)
def test_neighbours_that_do_not_protect_are_refuted(monkeypatch, break_it, words):
    break_it(monkeypatch)
    check = check_mask_graph(audited(), root_of(1), RISK)
    assert any(words in refutation for refutation in check.refutations)


def test_more_neighbours_than_needed_are_an_alarm(monkeypatch):
    half = masks.half_neighbours
    monkeypatch.setattr(masks, "half_neighbours", lambda *sizes: half(*sizes) + 1)
    check = check_mask_graph(audited(), root_of(1), RISK)
    assert check.refutations == ()
    assert check.alarms


def test_the_number_of_neighbours_is_the_smallest_that_suffices():
    for machines, colluders in ((10, 1), (60, 6), (150, 50), (5000, 500), (700, 699)):
        assert masks.half_neighbours(machines, colluders) == required_half_neighbours(machines, colluders)


def test_random_circles_are_complained_of_no_more_often_than_is_stated():
    rng = np.random.default_rng(1)
    half = required_half_neighbours(mask_graph.MACHINES, mask_graph.COLLUDERS)
    distances = np.subtract.outer(np.arange(mask_graph.MACHINES), np.arange(mask_graph.MACHINES))
    distances = np.abs(distances)
    whole = np.minimum(distances, mask_graph.MACHINES - distances)
    whole = (whole <= half) & (whole > 0)
    evidence = []
    for _ in range(500):
        order = rng.permutation(mask_graph.MACHINES)
        graph = whole[np.ix_(order, order)][mask_graph.EXAMINED]
        evidence.append(mask_graph._overlap_evidence(mask_graph._circle(half), graph))
    for risk in (0.3, 0.1, 0.01):
        assert np.mean(np.array(evidence) > -math.log(risk)) <= risk
