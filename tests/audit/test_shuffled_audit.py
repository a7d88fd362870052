"""The audit of a shuffler: its coins keep their claim and reach it, and fewer of them are refuted."""

from dataclasses import replace

import numpy as np
import pytest
from slowly import slow
from test_audit import found, no_noise_by_the_server

from mu2mpi.audit import tails, trials as trials_module
from mu2mpi.audit.canaries import CLIPPED, Canaries
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.resumption import check_resumption
from mu2mpi.audit.runs import check_layouts, tells_sums
from mu2mpi.audit.tails import attack_structure
from mu2mpi.config.experiment import Experiment
from mu2mpi.parallel import Communicator
from mu2mpi.privacy.binomial import BinomialDraws
from mu2mpi.privacy.mechanisms.binomial import BinomialReleases


@pytest.fixture(autouse=True)
def few_normals(monkeypatch):
    monkeypatch.setattr(trials_module, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(trials_module, "check_streams", lambda *_: [])
    monkeypatch.setattr(tails, "MESSAGES", 20)


def of_shuffler(trials=100, colluders=0, **settings):
    return found("shuffled", trials, colluders=colluders, **{"rho": 8.0, "rounds": 4, **settings})


@pytest.mark.parametrize(
    ("colluders", "settings"),
    [(0, {}), (1, {}), *slow((2, {"method": "anytime-sgd"}), (0, {"method": "dp-gd"}), (2, {"machines": 5}))],
)
def test_the_claim_is_kept_and_reached(colluders, settings):
    finding = of_shuffler(colluders=colluders, **settings)
    assert finding.complaints == []
    assert finding.reaches
    for attack in finding.attacks:
        assert 0.85 < attack.judgement.overall.share.estimate < 1.15


@pytest.mark.slow
@pytest.mark.parametrize("colluders", [0, 1])
def test_messages_one_by_one_keep_the_claim(colluders):
    """Where some are known, it is not reached: all throw their coins here, and nobody tells."""
    tiny = {"shuffle": "messages", "loss": "logistic", "rounds": 3}
    finding = of_shuffler(40, colluders, **tiny)
    assert finding.complaints == []
    assert finding.reaches == (colluders == 0)
    share = finding.attacks[0].judgement.overall.share
    assert share.low < ((3 - colluders) / 3) ** 0.5 < share.high


def test_messages_one_by_one_are_the_same_on_any_ranks_and_after_a_kill():
    settings = {"shuffle": "messages", "loss": "logistic", "machines": 3, "rounds": 3, "rho": 8.0}
    schedule = trials_module._schedule(Experiment(server="shuffled", **settings), CLIPPED)
    canaries = Canaries(schedule, CLIPPED, bytes(32))
    kinds = np.zeros((1, len(canaries)), bool)
    assert not tells_sums(schedule)
    assert check_layouts(canaries, kinds, [bytes(32)]) is None
    assert check_resumption(canaries, kinds[0], bytes(32)) is None


# Ways to break the code.


def half_of_the_coins(monkeypatch):
    make = BinomialReleases.make_draw
    monkeypatch.setattr(
        BinomialReleases,
        "make_draw",
        lambda self, *whose: make(replace(self, coins=self.coins // 4 * 2), *whose),
    )


def the_same_coins_in_every_round(monkeypatch):
    call = BinomialDraws.__call__
    monkeypatch.setattr(
        BinomialDraws, "__call__", lambda self, noised, message, t: call(self, noised, message, 1)
    )


@pytest.mark.parametrize(
    "break_it", [half_of_the_coins, the_same_coins_in_every_round, no_noise_by_the_server]
)
def test_the_audit_has_teeth(monkeypatch, break_it):
    break_it(monkeypatch)
    assert any(words.startswith("mu is at least ") for words in of_shuffler().refutations)


def test_coins_of_real_messages_have_their_size_and_come_once(monkeypatch):
    found = attack_structure("shuffled", bytes(32), 1, RISK, Communicator())
    assert found.faults == ()
    assert found.log_evidence < -np.log(RISK)
    half_of_the_coins(monkeypatch)
    found = attack_structure("shuffled", bytes(32), 1, RISK, Communicator())
    assert any("0.707" in words and is_less for is_less, words in found.faults)
    the_same_coins_in_every_round(monkeypatch)
    found = attack_structure("shuffled", bytes(32), 1, RISK, Communicator())
    assert any("were used before" in words for _, words in found.faults)


def coins_of_even_sums(monkeypatch):
    call = BinomialDraws.__call__

    def flawed(self, noised, message, t):
        call(self, noised, message, t)
        noised[:] = message + (noised - message) // 2 * 2

    monkeypatch.setattr(BinomialDraws, "__call__", flawed)


def test_coins_whose_sum_is_always_even_are_refuted(monkeypatch):
    coins_of_even_sums(monkeypatch)
    found = attack_structure("shuffled", bytes(32), 1, RISK, Communicator())
    assert [is_less for is_less, words in found.faults if "bits 0 to 7" in words][:1] == [True]
