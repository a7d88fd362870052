"""The audit of masked messages: their sums keep the claim and reach it, and masks that leak are refuted."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from slowly import slow
from test_audit import found

from mu2mpi import cli
from mu2mpi.audit import tails, trials as trials_module, uniformity
from mu2mpi.audit.canaries import CLIPPED, Canaries
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.tails import attack_structure
from mu2mpi.audit.uniformity import check_masks
from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.machine import Machines
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import masks
from mu2mpi.privacy.correlation import Correlation
from mu2mpi.privacy.masks import Masks
from mu2mpi.privacy.noise import derive_key


@pytest.fixture(autouse=True)
def few_numbers(monkeypatch):
    monkeypatch.setattr(trials_module, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(trials_module, "check_streams", lambda *_: [])
    monkeypatch.setattr(tails, "MESSAGES", 20)
    monkeypatch.setattr(uniformity, "NUMBERS", 2**10)


@pytest.mark.parametrize(
    ("machines", "colluders", "settings"),
    [
        (3, 0, {}),
        (4, 2, {"method": "anytime-dp-mf"}),
        *slow(
            (3, 1, {}),
            (6, 2, {}),
            (4, 1, {"masks": "all"}),
            (3, 1, {"method": "anytime-sgd"}),
            (3, 1, {"method": "dp-gd"}),
            (4, 2, {"method": "dp-gd", "batch": 2}),
            (3, 0, {"method": "anytime-dp-mf"}),
            (5, 1, {"noise_correlation": 0.5}),
        ),
    ],
)
def test_the_claim_is_kept_and_reached(machines, colluders, settings):
    finding = found("aggregated", 60, machines=machines, colluders=colluders, rho=8.0, rounds=4, **settings)
    assert finding.complaints == []
    assert f"colluders = {colluders}" in finding.describe()
    for attack in finding.attacks:
        assert 0.85 < attack.judgement.overall.share.estimate < 1.15


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dp-sgd", "noisy-minibatch-sgd"])
def test_methods_that_draw_their_samples_keep_their_claim(method):
    assert found("aggregated", 200, rounds=4, rho=0.5, method=method, colluders=1).complaints == []


def said(machines: int = 3, colluders: int = 0, seed: int = 0, **settings) -> tuple[str, ...]:
    """Return what is said of the masks of some runs."""
    experiment = Experiment(
        server="aggregated", machines=machines, colluders=colluders, rounds=4, rho=1.0, **settings
    )
    schedule = trials_module._schedule(experiment, CLIPPED)
    canaries = Canaries(schedule, CLIPPED, bytes(32))
    root = seed.to_bytes(32, "little")
    keys = [derive_key(root, "noise", str(n)) for n in range(100)]
    kinds = trials_module._kinds(len(canaries), 50, root)
    found = check_masks(canaries, kinds, keys, RISK, root)
    assert found is not None
    return found.faults


@pytest.mark.parametrize(("machines", "colluders"), [(3, 0), (4, 2), *slow((3, 1), (5, 2), (6, 0))])
def test_faultless_masks_are_not_complained_of(machines, colluders):
    for seed in range(2):
        assert said(machines, colluders, seed) == ()


# Ways to break the code.


def masks_of_one_round(monkeypatch):
    add = Masks.add
    monkeypatch.setattr(Masks, "add", lambda self, masked, t: add(self, masked, 1))


def masks_that_come_twice(monkeypatch):
    add = Masks.add
    monkeypatch.setattr(Masks, "add", lambda self, masked, t: add(self, masked, (t + 1) // 2))


def change_ends(monkeypatch, change):
    """Let the ends of edges, with their signs, be what `change` makes of them."""
    touching = masks.touching
    monkeypatch.setattr(masks, "touching", lambda *where: change(touching(*where)))


def a_wrong_sign(monkeypatch):
    change_ends(monkeypatch, lambda ends: ((i, j, 1 if (i, j) == (0, 2) else s) for i, j, s in ends))


def one_end_left_out(monkeypatch):
    change_ends(monkeypatch, lambda ends: (end for end in ends if end != (0, 2, -1)))


def an_edge_left_out(monkeypatch):
    change_ends(monkeypatch, lambda ends: (end for end in ends if end[:2] != (0, 2)))


def one_key_for_all_edges(monkeypatch):
    monkeypatch.setattr(masks, "edge_key", lambda root, i, j: np.arange(8, dtype=np.uint32))


def no_masks(monkeypatch):
    monkeypatch.setattr(Masks, "__bool__", lambda self: False)


def half_of_the_bits(monkeypatch):
    """Of 64, the lower half is left as it is."""
    add = masks.add_masks

    def flawed(masked, keys, signs, t):
        for key, sign in zip(keys, signs.view(np.uint64), strict=True):
            mask = np.zeros_like(masked)
            add(mask, key[np.newaxis], np.ones(1, np.int64), t)
            masked += sign * (mask & np.uint64(2**64 - 2**32))

    monkeypatch.setattr(masks, "add_masks", flawed)


@pytest.mark.parametrize(
    ("break_it", "sizes", "words"),
    [
        (masks_of_one_round, (3, 0), "taken from each other 1 round apart, are not uniform modulo 2^64"),
        (masks_that_come_twice, (3, 1), "taken from each other 1 round apart, are not uniform"),
        (a_wrong_sign, (3, 0), "masks do not cancel: in round 1 the sum of all messages"),
        (one_end_left_out, (4, 2), "masks do not cancel: in round 1 the sum of all messages"),
        (an_edge_left_out, (4, 2), "less the masks that machines 1 and 3 know, are not uniform"),
        (one_key_for_all_edges, (3, 0), "the messages of machine 1 are not uniform modulo 2^64 in bits"),
        (no_masks, (4, 1), "less the masks that machine 0 knows, are not uniform"),
    ],
)
def test_masks_that_leak_are_refuted(monkeypatch, break_it, sizes, words):
    break_it(monkeypatch)
    assert any(words in sentence for sentence in said(*sizes))


def test_bits_that_masks_leave_alone_are_found(monkeypatch):
    half_of_the_bits(monkeypatch)
    (sentence,) = said()
    first, last = map(int, re.findall(r"in bits (\d+) to (\d+)", sentence)[0])
    assert 12 < first < last < 32


def test_masks_that_hide_enough_without_an_edge_are_not_complained_of(monkeypatch):
    """Of a circle of four, three edges hold all together."""
    edges = masks.edges
    monkeypatch.setattr(masks, "edges", lambda *sizes: edges(*sizes)[1:])
    assert said(4, 0) == ()


def parts_for_all_machines(monkeypatch):
    """Each draws as if none worked together with the server."""
    start = Machines.__init__

    def flawed(self, schedule, *rest):
        start(self, replace(schedule, parts=schedule.machines), *rest)

    monkeypatch.setattr(Machines, "__init__", flawed)


def test_noise_for_more_machines_than_are_honest_is_refuted(monkeypatch):
    parts_for_all_machines(monkeypatch)
    finding = found("aggregated", 60, colluders=2, rho=8.0, rounds=3)
    told = [words for words in finding.refutations if words.startswith("mu is at least ")]
    assert len(told) == 2


@pytest.mark.parametrize("correlation", [None, Correlation(0.8, 4, 10, True, False)])
def test_real_messages_have_no_fault_before_they_are_masked(monkeypatch, correlation):
    found = attack_structure("aggregated", bytes(32), 1, RISK, Communicator(), correlation)
    assert found.faults == ()
    assert found.log_evidence < -math.log(RISK)
    # One of ten works together with the server, and the others need more noise than a tenth.
    parts_for_all_machines(monkeypatch)
    found = attack_structure("aggregated", bytes(32), 1, RISK, Communicator(), correlation)
    assert any("has 0.94" in words and is_less for is_less, words in found.faults)


def test_command(capsys):
    """Also that no masks are no privacy, and that other servers have no such options."""
    arguments = ["audit", "--server", "aggregated", "--rounds", "3", "--trials", "60", "--seed", "1"]
    assert cli.main([*arguments, "--masks", "none"]) == 1
    out, err = capsys.readouterr()
    assert "Aggregated server: colluders = 1, masks = none, 3 machines" in " ".join(out.split())
    assert "Refuted: the messages of machine 0, less the masks that machine 1 knows" in " ".join(out.split())
    assert err.startswith("mu2mpi: error: the claim of privacy is refuted: aggregated server: the messages ")
    assert cli.main(["audit", "--server", "trusted", "--colluders", "1"]) == 2
    assert "colluders applies to server = aggregated or shuffled" in capsys.readouterr().err


def test_uniform_numbers_are_complained_of_no_more_often_than_is_stated():
    rng = np.random.default_rng(1)
    found = np.array(
        [
            uniformity._farthest_from_uniform(rng.integers(0, 2**64, 500, np.uint64, endpoint=False))[1]
            for _ in range(1000)
        ]
    )
    for risk in (0.5, 0.1, 0.01):
        assert np.mean(found > math.log(16 / risk)) <= risk
    # The bound is no looser than that.
    assert np.mean(found > math.log(16)) > 0.02


def test_bits_that_are_not_uniform_are_found_where_they_are():
    rng = np.random.default_rng(2)
    numbers = rng.integers(0, 2**64, 4000, np.uint64, endpoint=False)
    for place in (0, 20, 60):
        skewed = numbers.copy()
        skewed[:600] &= ~(np.uint64(15) << np.uint64(place))
        found, evidence = uniformity._farthest_from_uniform(skewed)
        assert found == place
        assert evidence > 30


def test_groups_are_all_there_are_or_of_all_sizes():
    few = set(uniformity._groups(4, 1, bytes(32)))
    assert few == {uniformity.Group((i,), (j,)) for i in range(4) for j in range(4) if i != j}
    many = list(uniformity._groups(40, 5, bytes(32)))
    assert len(many) == uniformity.MOST_GROUPS
    for group in many:
        assert len(group.known) == 5
        assert len({*group.machines, *group.known}) == len(group.machines) + 5
    assert {1, 2}.issubset(sizes := {len(group.machines) for group in many})
    assert max(sizes) > 10
    assert list(uniformity._groups(3, 2, bytes(32))) == []
