"""Too little noise and predictable draws of methods that sample at random are refuted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from slowly import slow

from mu2mpi.audit import subsampling, trials as trials_module
from mu2mpi.audit.account import epsilon_at_least, round_pair, theorem_multiplier
from mu2mpi.audit.canaries import CLIPPED, Canaries
from mu2mpi.audit.finding import RISK
from mu2mpi.audit.multiplier import check_multiplier
from mu2mpi.audit.runs import see
from mu2mpi.audit.subsampling import check_subsampling
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution import keys as keys_module, simulation
from mu2mpi.execution.keys import Keys
from mu2mpi.federation import draws, sampling as sampling_module
from mu2mpi.federation.sampling import Poisson, WithReplacement
from mu2mpi.privacy import drawing
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.privacy.mechanisms.poisson import PoissonReleases
from mu2mpi.privacy.mechanisms.replacement import ReplacementReleases, with_replacement_sigma
from mu2mpi.privacy.mechanisms.replacement_exact import ExactReplacement
from mu2mpi.privacy.noise import add_draws, add_noise

DP_SGD = {"method": "dp-sgd", "server": "trusted"}
MINIBATCH = {"method": "noisy-minibatch-sgd", "server": "untrusted"}
EXACT = {**MINIBATCH, "mechanism": "replacement-exact", "batch": 2}
ALL = [
    DP_SGD,
    MINIBATCH,
    *slow(
        EXACT,
        *({**of, "server": "aggregated"} for of in (DP_SGD, MINIBATCH, EXACT)),
        *({**of, "server": "trusted"} for of in (MINIBATCH, EXACT)),
        {**DP_SGD, "mechanism": "gaussian"},
        {**DP_SGD, "participation": "bernoulli:0.5", "objective": "samples"},
        {**MINIBATCH, "participation": "uniform:2"},
    ),
]


@pytest.fixture(autouse=True)
def few_runs(monkeypatch):
    monkeypatch.setattr(subsampling, "RUNS", 400)


def canaries_of(**settings: Any):
    experiment = Experiment(**{"machines": 3, "rounds": 5, "rho": 1.0, "seed": 1, **settings})
    return experiment, Canaries(trials_module._schedule(experiment, CLIPPED), CLIPPED, bytes(32))


def noise_of(runs: int = 120, **settings: Any):
    experiment, canaries = canaries_of(**settings)
    keys = [run.to_bytes(32, "big") for run in range(runs)]
    kinds = np.random.default_rng(1).integers(0, 2, (runs, 1)).astype(bool)
    budget = Budget(experiment.rho, experiment.target_epsilon, experiment.delta)
    return check_multiplier(
        canaries, see(canaries.schedule, canaries, kinds, keys), kinds, keys, budget, RISK
    )


def draws_of(**settings: Any):
    experiment, canaries = canaries_of(**settings)
    return check_subsampling(canaries, experiment, bytes(range(32)), RISK)


def share_of_noise(monkeypatch, share):
    """Draw noise that is too small, under the same claims."""

    def changed(noised, message, key, who, first, count, t, scale):
        add_noise(noised, message, key, who, first, count, t, scale * share)

    def changed_draws(noise, key, machines, numbers, scales, *of):
        add_draws(noise, key, machines, numbers, scales * share, *of)

    monkeypatch.setattr(drawing, "add_noise", changed)
    monkeypatch.setattr(drawing, "add_draws", changed_draws)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ALL)
def test_faultless_noise_and_draws_are_not_complained_of(settings):
    for check in (noise_of(**settings), draws_of(**settings)):
        assert (check.refutations, check.alarms) == ((), ())


@pytest.mark.parametrize("settings", ALL)
def test_noise_that_is_too_small_is_refuted(monkeypatch, settings):
    share_of_noise(monkeypatch, 0.7)
    assert noise_of(**settings).refutations


@pytest.mark.parametrize("settings", [DP_SGD, *slow(MINIBATCH)])
def test_noise_that_is_too_large_is_an_alarm(monkeypatch, settings):
    share_of_noise(monkeypatch, 1.4)
    check = noise_of(**settings)
    assert check.refutations == ()
    assert check.alarms


def half_of_the_noise_asked_for(monkeypatch, kind):
    least = kind.least_sigma
    monkeypatch.setattr(kind, "least_sigma", staticmethod(lambda *sizes: least(*sizes) / 2))


def an_accountant_that_sees_twice_the_noise(monkeypatch, kind):
    """By its own account, the mechanism keeps to what is claimed."""
    half_of_the_noise_asked_for(monkeypatch, kind)
    account = kind.epsilon_by

    def epsilon_by(C, samples, drawn, rounds, sigma, delta):
        return account(C, samples, drawn, rounds, 2 * sigma, delta)

    monkeypatch.setattr(kind, "epsilon_by", staticmethod(epsilon_by))


@pytest.mark.parametrize("break_it", [half_of_the_noise_asked_for, an_accountant_that_sees_twice_the_noise])
@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (DP_SGD, PoissonReleases),
        (MINIBATCH, ReplacementReleases),
        *slow((EXACT, ExactReplacement), ({**DP_SGD, "server": "aggregated"}, PoissonReleases)),
    ],
)
def test_noise_that_is_wrongly_calibrated_is_complained_of(monkeypatch, break_it, settings, kind):
    """That of the theorem is far more than its epsilon takes, so half of it may refute nothing."""
    break_it(monkeypatch, kind)
    check = noise_of(**settings)
    assert check.alarms if kind is ReplacementReleases else check.refutations


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_too_little_noise_for_rho_is_refuted(monkeypatch, share):
    """If draws are not counted on."""
    make = trials_module._schedule

    def changed(experiment, case):
        schedule = make(experiment, case)
        mechanism = replace(schedule.mechanism, sigma=schedule.mechanism.sigma * share)
        return replace(schedule, mechanism=mechanism)

    monkeypatch.setattr(trials_module, "_schedule", changed)
    assert noise_of(**DP_SGD, mechanism="gaussian").refutations


@pytest.mark.parametrize("multiplier", [0.8, 1.6, 5.0])
def test_the_account_of_poisson_sampling_is_a_tight_lower_bound(multiplier):
    epsilon = epsilon_at_least(round_pair(Poisson(3, 1 / 3), multiplier), 6, 1e-5)
    known = PoissonReleases.epsilon_by(1.0, 3, 1.0, 6, multiplier, 1e-5)
    assert 0.99 * known < epsilon <= known


@pytest.mark.parametrize(("n", "K", "multiplier"), [(10, 1, 2.5), (4, 3, 5.0), (3, 3, 8.0)])
def test_the_account_of_sampling_with_replacement_is_a_tight_lower_bound(n, K, multiplier):
    epsilon = epsilon_at_least(round_pair(WithReplacement(n, K), multiplier), 6, 1e-5)
    known = ExactReplacement.epsilon_by(1.0, n, K, 6, multiplier, 1e-5)
    assert 0.95 * known < epsilon <= known


def test_the_account_knows_certain_draws_and_the_theorem():
    """One sample of one is a plain Gaussian mechanism, of mu = 2 sqrt(T) / multiplier."""
    from mu2mpi.privacy.accountant import epsilon_exact

    for sampling in (Poisson(1, 1.0), WithReplacement(1, 1)):
        epsilon = epsilon_at_least(round_pair(sampling, 4.0), 9, 1e-5)
        assert epsilon == pytest.approx(epsilon_exact(1.5, 1e-5), rel=1e-3)
        assert epsilon <= epsilon_exact(1.5, 1e-5)
    asked = theorem_multiplier(WithReplacement(50, 3), 7, 2.0, 1e-5)
    assert asked == pytest.approx(with_replacement_sigma(1.0, 50, 3, 7, 2.0, 1e-5))


# Draws that can be predicted.


def a_public_key(monkeypatch):
    draw = Keys.draw.__func__
    monkeypatch.setattr(
        Keys, "draw", classmethod(lambda cls, *of: replace(draw(cls, *of), sampling=bytes(32)))
    )


def a_key_of_the_experiment_alone(monkeypatch):
    def derive(root, purpose, context=""):
        return derive_key(bytes(32) if purpose == "sampling" else root, purpose, context)

    derive_key = keys_module.derive_key
    monkeypatch.setattr(keys_module, "derive_key", derive)


def a_key_of_half_of_the_secret(monkeypatch):
    derive_key = keys_module.derive_key
    monkeypatch.setattr(keys_module, "derive_key", lambda root, *of: derive_key(root[:16], *of))


def the_key_of_the_noise(monkeypatch):
    draw = Keys.draw.__func__

    def flawed(cls, *of):
        keys = draw(cls, *of)
        return replace(keys, sampling=keys.noise.tobytes())

    monkeypatch.setattr(Keys, "draw", classmethod(flawed))


def a_secret_of_the_seed_0(monkeypatch):
    monkeypatch.setattr(keys_module.os, "urandom", bytes)


def a_run_without_its_key(monkeypatch):
    make = simulation.make_supply
    monkeypatch.setattr(simulation, "make_supply", lambda *of: make(*of[:-1], bytes(32)))


def draws_without_a_key(monkeypatch):
    monkeypatch.setattr(draws, "key_words", lambda key: np.zeros(8, np.uint32))


def change_draws(monkeypatch, machines_of, rounds_of):
    """Let each machine draw in each round what another does, or the same does in another."""
    independently, uniformly = sampling_module.draw_independently, sampling_module.draw_uniformly

    def each(machines, rounds):
        return [(range(i, i + 1), range(t, t + 1)) for t in rounds_of(rounds) for i in machines_of(machines)]

    def draw_independently(key, machines, rounds, *sizes):
        cells = [independently(key, *cell, *sizes) for cell in each(machines, rounds)]
        counts = np.array([count for _, count in cells]).reshape(len(rounds), len(machines))
        return np.concatenate([places for places, _ in cells]), counts

    def draw_uniformly(key, machines, rounds, owned, number):
        cells = [uniformly(key, *cell, owned, number) for cell in each(machines, rounds)]
        return np.array(cells).reshape(len(rounds), len(machines), number)

    monkeypatch.setattr(sampling_module, "draw_independently", draw_independently)
    monkeypatch.setattr(sampling_module, "draw_uniformly", draw_uniformly)


def the_same_in_every_round(monkeypatch):
    change_draws(monkeypatch, list, lambda rounds: [1] * len(rounds))


def the_same_in_two_rounds(monkeypatch):
    change_draws(monkeypatch, list, lambda rounds: [2 if t == 5 else t for t in rounds])


def the_same_on_every_machine(monkeypatch):
    change_draws(monkeypatch, lambda machines: [0] * len(machines), list)


def more_than_claimed(monkeypatch):
    """A third more of the samples, or the first of them more often than others."""
    independently, uniformly = sampling_module.draw_independently, sampling_module.draw_uniformly
    monkeypatch.setattr(
        sampling_module, "draw_independently", lambda *of: independently(*of[:-1], of[-1] // 3 * 4)
    )
    monkeypatch.setattr(sampling_module, "draw_uniformly", lambda *of: uniformly(*of) % (of[3] - 1))


WAYS = [a_public_key, a_run_without_its_key, draws_without_a_key, the_same_in_every_round,
        the_same_on_every_machine, a_key_of_the_experiment_alone]  # fmt: skip
MORE = [a_key_of_half_of_the_secret, the_key_of_the_noise, a_secret_of_the_seed_0, the_same_in_two_rounds,
        more_than_claimed]  # fmt: skip


@pytest.mark.parametrize("break_it", [*WAYS, *MORE])
@pytest.mark.parametrize("settings", [DP_SGD, *slow(MINIBATCH)])
def test_predictable_draws_are_refuted(monkeypatch, break_it, settings):
    break_it(monkeypatch)
    assert draws_of(**settings).refutations


def test_draws_are_counted_by_machine_and_sample():
    _, canaries = canaries_of(**MINIBATCH, batch=3)
    counts = canaries.draws(range(3), bytes(32))
    taken = canaries.schedule.sampling.take(bytes(32), range(3), range(1, 6)).places.reshape(5, 3, 3)
    for t in range(5):
        for machine in range(3):
            assert counts[t, machine].tolist() == np.bincount(taken[t, machine], minlength=5).tolist()
    np.testing.assert_array_equal(canaries.draws(range(1, 2), bytes(32))[:, 0], counts[:, 1])
