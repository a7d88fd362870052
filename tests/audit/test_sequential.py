"""An audit stops at the first look that decides its claims, and is as often wrong as one of fixed length."""

import numpy as np
import pytest
from helpers.faults import found, half_sigma, only
from scipy.stats import binom

from mu2mpi.audit import trials as trials_module
from mu2mpi.audit.evidence import MIN_LOOK_TRIALS, MeanSeparation, schedule_looks

UNLIKELY = 1e-4  # probability below which the count of an event refutes its stated probability


@pytest.mark.parametrize("trials", [1, 73, 999, 1000, 2000, 2001, 10_007])
@pytest.mark.parametrize("min_trials", [1, 600])
def test_looks_are_after_growing_numbers_of_trials_and_share_the_error(trials, min_trials):
    looks = schedule_looks(trials, min_trials)
    numbers, shares = zip(*looks, strict=True)
    assert list(numbers) == sorted(set(numbers))
    assert numbers[-1] == trials
    assert all(number >= max(min_trials, MIN_LOOK_TRIALS) for number in numbers[:-1])
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0


def test_intervals_of_all_looks_hold_jointly():
    """Of 1,500 audits with an error of 0.1 at each end, and of those that do not divide it."""
    rng, error, mu, wrong = np.random.default_rng(1), 0.1, 1.0, np.zeros((1500, 2), bool)
    for row in wrong:
        half = rng.integers(0, 2, (2000, 1)).astype(bool)
        variants = np.stack([half, ~half], axis=1).reshape(-1, 1)
        scores = rng.standard_normal(variants.shape) + mu * variants
        for trials, error_share in schedule_looks(2000, 1):
            separation = MeanSeparation(scores[: 2 * trials], variants[: 2 * trials])
            for k, share in enumerate((error_share, 1.0)):
                (interval,) = separation.weighted_sums(np.eye(1), error * share)
                row[k] |= interval.low > mu
    divided, undivided = wrong.sum(axis=0)
    assert binom.sf(divided - 1, len(wrong), error) > UNLIKELY
    assert binom.sf(undivided - 1, len(wrong), error) < UNLIKELY
    assert divided > 0.5 * error * len(wrong)


@pytest.fixture
def simulated(monkeypatch):
    """Return a function that lets audits observe ideal noise of a relative size, without runs."""
    effects_of_case = {}
    real_observe, real_effects = trials_module.observe_runs, trials_module.canary_effects
    only(monkeypatch)

    def effects(canaries, root_key):
        if (key := (canaries.case, canaries.constants.mechanism.sigma)) not in effects_of_case:
            effects_of_case[key] = real_effects(canaries, root_key)
        return effects_of_case[key]

    def simulate(noise_scale):
        def observe(constants, canaries, variants, keys):
            if not constants.mechanism.sigma:
                return real_observe(constants, canaries, variants, keys)
            rng = np.random.default_rng(list(keys[0]))
            signals = [
                variants @ effect for effect in effects_of_case[canaries.case, constants.mechanism.sigma]
            ]
            return [signal + noise_scale * rng.standard_normal(signal.shape) for signal in signals]

        monkeypatch.setattr(trials_module, "canary_effects", effects)
        monkeypatch.setattr(trials_module, "observe_runs", observe)

    return simulate


@pytest.mark.parametrize(
    ("confidence", "audits"), [(0.8, 60), pytest.param(0.99, 2000, marks=pytest.mark.slow)]
)
def test_faithful_code_is_refuted_no_more_often_than_is_stated(monkeypatch, simulated, confidence, audits):
    """An audit of one of two servers has half of the error probability."""
    simulated(1.0)
    monkeypatch.setattr(trials_module, "AUDIT_CONFIDENCE", confidence)
    reports = [found("untrusted", 1000, rounds=3, rho=4.0, seed=seed) for seed in range(audits)]
    failures = sum(bool(report.failures) for report in reports)
    assert binom.sf(failures - 1, audits, (1 - confidence) / 2) > UNLIKELY
    stops = [verdict.trials for report in reports for verdict in report.verdicts]
    assert set(stops) <= {500, 1000}
    assert np.mean(np.array(stops) < 1000) > 0.8


@pytest.mark.parametrize("seed", range(5))
def test_broken_code_is_refuted_at_the_first_look_and_small_faults_at_a_later_one(simulated, seed):
    simulated(0.5)
    report = found("untrusted", 2000, rounds=3, seed=seed)
    assert [verdict.trials for verdict in report.verdicts] == [500, 500]
    assert len(report.refutations) >= 2
    # A fault of more than the tolerance of a tenth is not mistaken for a reached claim.
    simulated(1 / 1.12)
    report = found("untrusted", 2000, rounds=3, seed=seed)
    assert all(verdict.refutations for verdict in report.verdicts)


def test_more_trials_reveal_smaller_faults(simulated):
    simulated(1 / 1.05)
    report = found("untrusted", 10_000, rounds=3)
    assert all(verdict.refutations for verdict in report.verdicts)


def test_real_audits_stop_early_and_state_after_how_many_runs(monkeypatch):
    only(monkeypatch)
    report = found("trusted", 2000, rounds=3, rho=4.0)
    assert report.failures == []
    text = report.to_text()
    assert "up to 2,000 runs" in " ".join(text.split())
    for verdict in report.verdicts:
        assert verdict.trials < 2000
        assert f"{verdict.case.capitalize()}: {verdict.trials:,} runs" in text
        _, low, high = verdict.overall_separation.relative_mu
        assert 0.9 <= low < high <= 1.1
    half_sigma(monkeypatch)
    report = found("trusted", 2000, rounds=3, rho=4.0)
    assert [verdict.trials for verdict in report.verdicts] == [500, 500]
    assert all(verdict.refutations for verdict in report.verdicts)


def test_claims_that_need_not_be_reached_take_all_trials(monkeypatch):
    only(monkeypatch)
    report = found("trusted", 500, rounds=5, method="objective-perturbation", machines=1, rho=0.5)
    assert report.failures == []
    assert [verdict.trials for verdict in report.verdicts] == [500]
