"""Lower bounds from one run: error rates under the claim, power, and other ways to the same numbers."""

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from helpers.slow import slow
from scipy.optimize import linprog

from mu2mpi.audit.one_run import (
    Guesses,
    audit_run,
    audit_scores,
    count_guesses,
    independent_mu_lower_bound,
    is_mu_refuted,
    mu_lower_bound,
)
from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.results.canary_scores import CanaryScores, read_canary_scores
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import canary_scores_path

NORMAL = NormalDist()


def gaussian_scores(rng, m, mu, claimed_mu=None):
    """Scores of a Gaussian mechanism of some mu, in units of the claimed noise."""
    included = rng.random(m) < 0.5
    score = np.where(included, mu / 2, -mu / 2) + rng.standard_normal(m)
    return CanaryScores(score, included, claimed_mu or mu)


@pytest.mark.parametrize(
    ("m", "mu", "audits"),
    [(40, 0.5, 1000), *slow((100, 1.5, 1000), (100, 4.0, 1000), (30, 2.5, 1000))],
)
def test_bounds_exceed_the_truth_in_at_most_one_of_twenty_audits(m, mu, audits):
    """Jointly; 71 of 1,000 or more would have a probability below 0.2 % at an error rate of 5 %."""
    rng, exceeded, any_exceeded = np.random.default_rng(m), np.zeros(2, np.int64), 0
    for _ in range(audits):
        each = np.array(audit_scores(gaussian_scores(rng, m, mu))) > mu
        exceeded += each
        any_exceeded += bool(each.any())
    assert any_exceeded <= 70
    assert np.all(exceeded <= 41)  # of 1,000 at an error rate of 1 / 40: 42 have a probability below 0.1 %


@pytest.mark.parametrize("mu", [1.0, 2.0, 4.0])
def test_a_thousand_canaries_reach_half_of_mu(mu):
    """If noise is independent for any mu, and without assumption for mu up to 3; of 20 audits each."""
    rng = np.random.default_rng(5)
    bounds = np.array([audit_scores(gaussian_scores(rng, 1000, mu)) for _ in range(20)])
    assert np.all(bounds[:, 0] >= mu / 2)
    assert np.median(bounds[:, 1]) >= min(0.45 * mu, 1.5)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0, 4.0])
def test_half_of_the_noise_is_refuted_in_19_of_20_audits(mu):
    rng = np.random.default_rng(6)
    refuted = 0
    for _ in range(20):
        refuted += audit_scores(gaussian_scores(rng, 1000, 2 * mu, mu)).independent_mu > mu
    assert refuted >= 19


@pytest.mark.parametrize(("canaries", "error"), [(300, 0.02), (1000, 0.05)])
@pytest.mark.parametrize("accuracy", [0.8, 0.95, 0.99])
def test_a_mechanism_that_rarely_reveals_all_coins_meets_the_bound_without_assumption(
    canaries, accuracy, error
):
    """It reveals all coins with a probability of 2 `error` by randomised response, and nothing otherwise.

    By its trade-off curve it is mu-GDP. In half of the runs that reveal the coins, or more, at least so many
    guesses are right: an event of a probability of at least `error` must not refute mu.
    """
    revealing = 2 * error
    mu = NORMAL.inv_cdf(revealing * accuracy) - NORMAL.inv_cdf(revealing * (1 - accuracy))
    guesses = Guesses(canaries, canaries, math.floor(canaries * accuracy))
    bound = mu_lower_bound(guesses, error)
    assert 0.7 * mu <= bound <= mu
    # Noise that is independent over canaries is another matter.
    assert independent_mu_lower_bound(guesses, error) > mu


@pytest.mark.parametrize(("m", "k", "mu"), [(8, 8, 0.5), (8, 8, 1.0), (12, 6, 0.7), (20, 5, 1.5)])
def test_largest_tail_by_linear_programming(m, k, mu):
    """The largest P(v or more right) that all constraints allow, each by tangents to a concave curve."""
    f = lambda a: NORMAL.cdf(NORMAL.inv_cdf(a) + mu)  # noqa: E731
    points = np.concatenate([np.geomspace(1e-9, 0.5, 600), 1 - np.geomspace(1e-6, 0.5, 100)])
    slopes = [math.exp(-mu * NORMAL.inv_cdf(a) - mu * mu / 2) for a in points]
    rows, limits = [], []
    for i in range(1, k + 1):
        right = np.array([j if j >= i else 0.0 for j in range(k + 1)]) / m
        wrong = np.array([k - j if j >= i - 1 else 0.0 for j in range(k + 1)]) / m
        for a, slope in zip(points, slopes, strict=True):
            rows.append(right - slope * wrong)
            limits.append(f(a) - slope * a)
    for v in range(k // 2 + 1, k + 1):
        tail = -np.array([j >= v for j in range(k + 1)], float)
        solved = linprog(tail, np.array(rows), limits, np.ones((1, k + 1)), [1.0])
        largest = -solved.fun
        guesses = Guesses(m, k, v)
        assert not is_mu_refuted(guesses, mu, 0.99 * largest)
        if largest < 0.98:
            assert is_mu_refuted(guesses, mu, min(1.01 * largest, 0.999))


def test_the_most_extreme_scores_are_guessed():
    score = np.array([0.1, -3.0, 2.0, -0.2, 0.3])
    included = np.array([False, False, True, True, True])
    assert count_guesses(score, included, 2) == Guesses(5, 2, 2)
    assert count_guesses(score, included, 5) == Guesses(5, 5, 3)


def test_bounds_of_hopeless_scores_are_zero():
    rng = np.random.default_rng(2)
    scores = gaussian_scores(rng, 100, 0.0, 2.0)
    wrong = CanaryScores(-gaussian_scores(rng, 100, 3.0).score, scores.included, 2.0)
    for each in (scores, wrong):
        assert max(audit_scores(each)) < 1.0


@pytest.fixture
def audited(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    run = ["run", "--machines", "2", "--rounds", "8", "--seed", "3", "--output"]
    assert main([*run, "a.h5", "--canaries", "400"]) == 0
    assert main([*run, "plain.h5"]) == 0
    assert main([*run, "other.h5", "--canaries", "400", "--rho", "3"]) == 0
    return tmp_path


def test_audit_of_a_result(audited, capsys):
    capsys.readouterr()
    assert main(["audit", "a.h5"]) == 0
    out = capsys.readouterr().out
    assert "coins of 400 canaries" in out
    assert "Nothing is refuted." in out
    bounds = audit_scores(read_canary_scores(audited / "a.h5", read_result(audited / "a.h5")))
    claimed, *reached = (
        [float(cell) for cell in row.split()[-2:]] for row in out.split("\n") if ": at " in row
    )
    assert claimed == [4.0, 24.39]
    for (mu, epsilon), low in zip(reached, bounds, strict=True):
        assert mu == pytest.approx(low, rel=1e-3)
        assert epsilon == pytest.approx(epsilon_exact(low, 1e-5), rel=1e-3)
    path = canary_scores_path(audited / "a.h5")
    for arguments, text in [
        (["plain.h5"], "without canaries"),
        (["missing.h5"], "cannot read missing.h5"),
        (["a.h5", "--rho", "2"], "--rho"),
        (["a.h5", "--trials", "5"], "--trials"),
        (["a.canaries.h5"], "schema"),
    ]:
        assert main(["audit", *arguments]) == 2
        assert text in capsys.readouterr().err
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        audit_run(audited / "a.h5")
    canary_scores_path(audited / "other.h5").replace(path)
    with pytest.raises(InputError, match="of another run"):
        audit_run(audited / "a.h5")
    path.unlink()
    assert main(["audit", "a.h5"]) == 2
    assert "a.canaries.h5" in capsys.readouterr().err


def test_files_of_scores_are_no_results(audited, capsys):
    capsys.readouterr()
    assert main(["table", "."]) == 0
    assert "canaries.h5" not in capsys.readouterr().err


def test_a_refuted_claim_has_the_exit_code_1(audited, capsys, monkeypatch):
    from mu2mpi.privacy.noise.noise_stream import IndependentNoiseSource, add_noise

    def half(self, noised, message, t):
        add_noise(noised, message, self.key, *self.streams, t, self.std_units(t) / 2)

    monkeypatch.setattr(IndependentNoiseSource, "__call__", half)
    run = ["run", "--machines", "2", "--rounds", "8", "--seed", "3", "--canaries", "400", "--rho", "2"]
    assert main([*run, "--output", "b.h5"]) == 0
    capsys.readouterr()
    assert main(["audit", "b.h5"]) == 1
    captured = capsys.readouterr()
    assert "Refuted: mu, if noise is independent" in captured.out
    assert "refuted" in captured.err
