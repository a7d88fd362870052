"""The audit of correlated noise: it keeps its claim, and what breaks it is refuted."""

import numpy as np
import pytest
from slowly import slow
from test_audit import found

from mu2mpi.audit import tails, trials
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.tails import attack_structure
from mu2mpi.parallel import Communicator
from mu2mpi.privacy import drawing
from mu2mpi.privacy.correlation import Correlation

SETTINGS = [{"method": "anytime-dp-mf"}, {"noise_correlation": 0.5, "noise_buffers": 2}]


CASES = [("untrusted", SETTINGS[0]), ("trusted", SETTINGS[1])]
CASES += slow(("trusted", SETTINGS[0]), ("untrusted", SETTINGS[1]))


@pytest.fixture(autouse=True)
def few_real_messages(monkeypatch):
    monkeypatch.setattr(tails, "MESSAGES", 60)
    monkeypatch.setattr(trials, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(trials, "check_streams", lambda *_: [])


@pytest.mark.parametrize(("server", "settings"), CASES)
def test_its_claim_is_kept_and_reached(server, settings):
    finding = found(server, 200, rounds=5, **settings)
    assert finding.complaints == []
    for attack in finding.attacks:
        share = attack.judgement.overall.share
        assert share.low < 1
        assert 0.9 < share.estimate < 1.1


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_columns_that_are_not_normalized_are_refuted(monkeypatch, server):
    """As if noise for columns of norm 1 hid those of the power itself."""
    draw = drawing.CorrelatedDraws._draw

    def flawed(self, *message):
        norms = self._of.norms
        self._of.__dict__["norms"] = np.ones_like(norms)
        draw(self, *message)
        self._of.__dict__["norms"] = norms

    monkeypatch.setattr(drawing.CorrelatedDraws, "_draw", flawed)
    assert found(server, 200, method="anytime-dp-mf", rounds=5).refutations


@pytest.mark.parametrize(("server", "settings"), CASES)
def test_buffers_that_are_empty_after_a_kill_are_refuted(monkeypatch, server, settings):
    """What was sent before the kill and after it hides the same sums, and its difference has no noise."""
    call = drawing.CorrelatedDraws.__call__

    def flawed(self, noised, message, t):
        if self._done == 0:
            self._done = t - 1
        call(self, noised, message, t)

    monkeypatch.setattr(drawing.CorrelatedDraws, "__call__", flawed)
    refutations = found(server, 200, rounds=5, **settings).refutations
    assert len(refutations) == 2
    assert "after a kill sends other messages than before" in refutations[0]


def rounded_before(values, past, norm, is_drawn):
    """Return noise of a chunk that was rounded before it was scaled: the draw, or that with the buffers'."""
    fresh = values / norm
    fresh = np.rint(fresh) - past if is_drawn else np.rint(fresh - past)
    return np.rint(norm * fresh)


@pytest.mark.parametrize("is_drawn", [False, True])
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_noise_that_is_rounded_before_the_buffers_is_refuted(monkeypatch, server, is_drawn):
    def add(noised, message, carried, lasts, buffers, key, who, first, *draws):
        there, numbers, units, _, norms, weights, decays = draws
        noised[:] = message
        for i, t in zip(there, numbers, strict=True):
            norm = norms[t - 1]
            scale = norm * units[i]
            for chunk, state in enumerate(buffers[i]):
                part = slice(chunk * drawing.CHUNK, (chunk + 1) * drawing.CHUNK)
                z = scale * np.random.default_rng([*key, first + i, t, chunk]).standard_normal(drawing.CHUNK)
                sent = rounded_before(z, weights @ state, norm, is_drawn)
                noised[part] += sent.astype(np.int64)
                state[...] = decays[:, np.newaxis] * state + sent / norm

    monkeypatch.setattr(drawing, "add_correlated", add)
    correlation = Correlation(0.8, 4, 10, True, False)
    found = attack_structure(server, bytes(32), 1, RISK, Communicator(), correlation)
    assert any("was rounded before it was scaled" in words for _, words in found.faults)


@pytest.mark.parametrize(
    "correlation", [Correlation(0.8, 4, 10, True, False), Correlation(0.5, 8, 10, False, True)]
)
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_real_messages_have_no_fault(server, correlation):
    found = attack_structure(server, bytes(32), 1, RISK, Communicator(), correlation)
    assert found.faults == ()
    assert found.log_evidence < -np.log(RISK)
