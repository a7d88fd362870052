"""The best of a random number of runs: exact output distributions, dp-accounting's RDP, and calibration."""

import itertools
import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.stats import chi2, norm

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee
from mu2mpi.privacy.accounting.selection import RHO_RTOL, Selection
from mu2mpi.privacy.noise.sampler_error import SamplerError


def selection_of(mean=10.0):
    return Selection(select="test_loss", select_runs=mean)


def number_probabilities(selection, largest=4000):
    """Return P(K = k) for k from 0, from the definitions."""
    k = np.arange(1, largest + 1)
    weights = np.exp(k * math.log(selection.continuation) - np.log(k))
    return np.concatenate([[0.0], weights / weights.sum()])


def best_of_runs(selection, single):
    """Return the distribution of the best outcome (the last is best), after that of no outcome (K = 0)."""
    probabilities = number_probabilities(selection)
    below = np.concatenate([[0.0], np.cumsum(single)]).clip(0, 1)
    # P(all K outcomes are among the first j) = E[F_j^K]
    powers = below[:, np.newaxis] ** np.arange(len(probabilities))
    at_most = powers @ probabilities
    return np.concatenate([[probabilities[0]], np.diff(at_most)])


def quantised_gaussians(rho, cells):
    """Return two distributions of a rounded normal, whose means differ by rho: post-processed rho-GDP."""
    edges = np.concatenate([[-np.inf], np.linspace(-5, 5 + rho, cells - 1), [np.inf]])
    return [np.diff(norm.cdf(edges - mean)) for mean in (0.0, rho)]


def randomised_response(rho, _):
    """Return the answers to a bit: the sign of a normal number, so that exp(epsilon) = p / (1 - p)."""
    p = norm.cdf(rho / 2)
    return [np.array([p, 1 - p]), np.array([1 - p, p])]


@pytest.mark.parametrize("mean", [1.5, 10.0, 40.0])
@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("base", [randomised_response, quantised_gaussians])
def test_the_exact_hockey_stick_never_exceeds_the_claim(mean, rho, base):
    selection = selection_of(mean)
    guarantee = selection.guarantee(GaussianGuarantee(rho))
    cells = 60
    orders = [np.arange(cells), np.arange(cells)[::-1], np.random.default_rng(1).permutation(cells)]
    for order, delta in itertools.product(orders, (1e-2, 1e-4, 1e-6)):
        singles = base(rho, cells)
        order = order[order < len(singles[0])]
        P, Q = (best_of_runs(selection, single[order]) for single in singles)
        epsilon = guarantee.epsilon(delta)
        for p, q in ((P, Q), (Q, P)):
            assert np.maximum(0, p - math.exp(epsilon) * q).sum() <= delta * (1 + 1e-9)


def test_selection_costs_privacy_that_a_claim_for_one_run_would_hide():
    # The claim of a single run is refuted by exact distributions: they are no vacuous test.
    selection, rho, delta = selection_of(), 0.5, 1e-4
    P, Q = (best_of_runs(selection, single) for single in quantised_gaussians(rho, 400))
    sticks = [np.maximum(0, p - math.exp(epsilon_exact(rho, delta)) * q).sum() for p, q in ((P, Q), (Q, P))]
    assert max(sticks) > delta


def dp_accounting_rdp(selection, rho, orders):
    accountant = RdpAccountant(orders)
    event = RepeatAndSelectDpEvent(GaussianDpEvent(1 / rho), selection.select_runs, shape=0.0)
    return accountant.compose(event)


@pytest.mark.parametrize("mean", [2.0, 10.0, 100.0])
@pytest.mark.parametrize("rho", [0.05, 0.5, 3.0])
def test_renyi_divergences_are_those_of_dp_accounting(mean, rho):
    selection = selection_of(mean)
    # dp-accounting knows the best order of the second divergence if listed.
    best = max(1.0, math.sqrt(-2 * math.log1p(-selection.continuation)) / rho)
    orders = np.sort([*(1 + np.geomspace(1e-2, 1e3, 200)), best])
    theirs = dp_accounting_rdp(selection, rho, orders)._rdp
    guarantee = selection.guarantee(GaussianGuarantee(rho))
    own = np.array([guarantee.renyi(a) if a > 1 else math.inf for a in orders])
    # Divergences increase with their order.
    own = np.minimum.accumulate(own[::-1])[::-1]
    np.testing.assert_allclose(own, theirs, rtol=1e-9, atol=3e-9)  # 1e-9: their tolerance of gamma


def test_epsilon_is_that_of_dp_accounting():
    selection, rho = selection_of(), 0.3
    orders = 1 + np.geomspace(2, 100, 150)
    for delta in (1e-3, 1e-5, 1e-9):
        theirs = dp_accounting_rdp(selection, rho, orders).get_epsilon(delta)
        own = selection.guarantee(GaussianGuarantee(rho)).epsilon_exact_noise(delta)
        assert own <= theirs * (1 + 1e-9)
        assert own >= theirs * (1 - 1e-3)


@pytest.mark.parametrize("mean", [1.01, 10.0, 1000.0])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-3), (1.0, 1e-5), (4.0, 1e-5), (20.0, 1e-12)])
def test_the_budget_of_runs_uses_up_the_whole(mean, epsilon, delta):
    selection = selection_of(mean)
    rho = selection.rho_of_runs(epsilon, delta)
    spent = selection.guarantee(GaussianGuarantee(rho)).epsilon(delta)
    assert 0.99 * epsilon <= spent <= epsilon
    assert epsilon_exact(rho, delta) < epsilon


def test_more_runs_cost_more():
    run = GaussianGuarantee(0.5)
    few, many = (selection_of(mean).guarantee(run).epsilon(1e-5) for mean in (3.0, 30.0))
    assert epsilon_exact(0.5, 1e-5) < few < many


def test_a_share_of_epsilon_covers_the_sampler_error_of_each_run():
    selection, exact_run = selection_of(), GaussianGuarantee(0.5)
    exact = selection.guarantee(exact_run).epsilon_exact_noise(1e-5)
    covered = GaussianGuarantee(0.5, SamplerError(1e-9, 1e-9))
    stated = selection.guarantee(covered).epsilon(1e-5)
    assert stated == selection.guarantee(exact_run).epsilon(1e-5)
    # An error xi of the log ratio of a run adds at least 2 xi, and some times as much for the selection.
    xi = covered.sampler_error.log_ratio_bound(40)
    assert 4 * xi < stated - exact < exact / 128
    for error in (SamplerError(1e-7), SamplerError(0.0, 1e-3), SamplerError(0.0, 0.0, 1e-10)):
        assert selection.guarantee(GaussianGuarantee(0.5, error)).epsilon(1e-5) == math.inf


def test_a_run_without_noise_or_rho_has_no_guarantee():
    for run in (GaussianGuarantee(math.inf), selection_of().guarantee(GaussianGuarantee(1.0))):
        assert selection_of().guarantee(run).epsilon(1e-5) == math.inf


def test_the_number_of_runs_has_the_stated_distribution(monkeypatch):
    """Chi-squared test of 20,000 numbers from a fixed seed; one of 10^6 seeds would fail."""
    monkeypatch.setattr("secrets.randbelow", random.Random(5).randrange)
    selection, draws = selection_of(3.0), 20_000
    counts = Counter(selection.draw_run_count() for _ in range(draws))
    expected = number_probabilities(selection) * draws
    assert abs(expected @ np.arange(len(expected)) / draws - 3) < 1e-9
    kept = np.flatnonzero(expected > 20)
    found = np.array([counts[k] for k in kept])
    rest = draws - found.sum(), draws - expected[kept].sum()
    statistic = np.sum((found - expected[kept]) ** 2 / expected[kept]) + (rest[0] - rest[1]) ** 2 / rest[1]
    assert statistic < chi2.isf(1e-6, len(kept))


def test_a_number_with_a_large_mean_is_drawn(monkeypatch):
    # 999 of 1,000 geometric numbers are rejected, so that a draw is no recursion.
    monkeypatch.setattr("secrets.randbelow", random.Random(5).randrange)
    counts = [selection_of(1000.0).draw_run_count() for _ in range(30)]
    assert min(counts) >= 1
    assert max(counts) > 1000


def test_every_bit_comes_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr("secrets.randbelow", lambda n: asked.append(n) or n - 1)
    selection = selection_of(4.0)
    assert selection.draw_run_count() == 1
    assert asked == [selection.continuation.as_integer_ratio()[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"select_runs": 1.0},
        {"select_runs": math.nan},
        {"select_runs": 1e9},
    ],
)
def test_impossible_selections_have_errors(changes):
    good = selection_of()
    assert good.errors() == []
    assert replace(good, **changes).errors()


def test_rho_is_rounded_up_for_the_other_runs():
    guarantee = selection_of().guarantee(GaussianGuarantee(0.5))
    assert guarantee.run_rho == 0.5 * (1 + RHO_RTOL)
    assert guarantee.rho is None
