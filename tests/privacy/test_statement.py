"""What a statement claims follows from its own numbers, or is found out; files repeat all of it."""

import math
from dataclasses import fields
from functools import partial

import pytest
from helpers import reference as ref
from helpers.property_tests import given
from helpers.simulations import make_schedule
from hypothesis import strategies as st

from mu2mpi.core.errors import InputError
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee
from mu2mpi.privacy.accounting.tradeoff import TradeoffCurve
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.mechanisms.objective_perturbation_mechanism import ObjectivePerturbationMechanism
from mu2mpi.privacy.mechanisms.poisson_mechanism import PoissonMechanism
from mu2mpi.privacy.mechanisms.replacement_exact_mechanism import ReplacementExactMechanism
from mu2mpi.privacy.statement import PrivacyStatement, budget_concerns


def make_mechanism(rho, clip_norm, rounds):
    """Return the mechanism with the noise of the reference, and each sample in all messages."""
    return GaussianMechanism(
        rho=rho, clip_norm=clip_norm, sigma=ref.noise_scale(clip_norm, rounds, rho), grid_spacing=RESOLUTION,
        rounds=rounds, machines=10, parameters=7850, samples=rounds, batch_size=1.0, affected_sums=rounds,
    )  # fmt: skip


def make_statement(rho=4.0, delta=1e-5, clip_norm=1.5, rounds=600, seeded=False, **others):
    """Return a statement whose claims come from the reference alone."""
    exact = sampled(ref.epsilon_exact, rho, delta, clip_norm, rounds)
    return PrivacyStatement(
        mechanism=make_mechanism(rho, clip_norm, rounds),
        server="untrusted",
        delta=delta,
        epsilon=sampled(ref.epsilon_paper, rho, delta, clip_norm, rounds),
        epsilon_exact=exact,
        epsilon_sampler=exact - float(ref.epsilon_exact(rho, delta)),
        comparisons={
            "epsilon_replace": exact,
            "epsilon_zero_out": sampled(ref.epsilon_exact, rho / 2, delta, clip_norm, rounds, rho),
            **TradeoffCurve(make_mechanism(rho, clip_norm, rounds).guarantee(), delta).claims(),
        },
        S=118.5,
        noise_recomputable=seeded,
        **others,
    )


def changed(statement, **changes):
    """Return what a file says of which some attributes were changed."""
    return PrivacyStatement.from_attributes({**statement.file_attributes(), **changes})


RESOLUTION = 2.0**-14


def sampled(epsilon_at, rho, delta, clip_norm, rounds, noise_rho=None):
    """Return the epsilon of the reference, with what the draws of the noise (of `noise_rho`) add."""
    scale = ref.noise_scale(clip_norm, rounds, noise_rho or rho) / RESOLUTION
    return float(ref.epsilon_sampled(partial(epsilon_at, rho), delta, 7850 * rounds, scale))


STATEMENT = make_statement()


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("rho", 0.99), ("rho", 1 + 1e-7), ("epsilon", 0.9), ("epsilon_exact", 0.999),
        ("epsilon_sampler", 0.5), ("epsilon_replace", 0.99), ("epsilon_zero_out", 0.99), ("sigma", 0.5),
        ("sigma", 1.001), ("clip_norm", 2), ("delta", 0.5), ("rounds", 2), ("grid_spacing", 1.5),
        ("grid_spacing", 2**24), ("parameters", 10**18),
    ],
)  # fmt: skip
def test_a_changed_number_is_found_and_named(name, factor):
    stated = STATEMENT.file_attributes()[name]
    value = type(stated)(stated * factor)
    problems = changed(STATEMENT, **{name: value}).mismatches()
    assert problems
    if name.startswith("epsilon") or name in ("rho", "grid_spacing"):
        assert name in "\n".join(problems)


@pytest.mark.parametrize(
    "changes",
    [
        {"server": "honest"}, {"noise": "none"}, {"neighbours": "add-remove"}, {"delta": math.nan},
        {"delta": math.ulp(0.0)}, {"sigma": -1.0},
    ],
)  # fmt: skip
def test_a_claim_of_another_kind_is_refused(changes):
    assert changed(STATEMENT, **changes).mismatches()


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(st.integers(1, 50), st.integers(1, 10_000), st.floats(0.01, 20), st.none() | st.floats(0.1, 5))
def test_the_noise_of_a_schedule_is_that_of_its_rho(server, machines, rounds, rho, clip_norm):
    mechanism = make_schedule(
        server=server, machines=machines, rounds=rounds, classes=3, features=5, diameter=0.5, rho=rho,
        clip_norm=clip_norm,
    ).mechanism  # fmt: skip
    assert mechanism.guarantee().rho == pytest.approx(rho, rel=1e-12)
    # A sample moves each of the sums in which it is by twice the norm that its part in it keeps to.
    assert mechanism.affected_sums == rounds
    assert 2 * mechanism.clip_norm * math.sqrt(rounds) / mechanism.sigma == pytest.approx(rho, rel=1e-12)
    assert PrivacyStatement.of(mechanism, 1e-5, server=server, S=1.0).mismatches() == []


@given(st.floats(1e-3, 50), st.integers(1, 1000), st.data())
def test_spent_rho_is_the_privacy_of_the_first_releases(rho, T, data):
    """Theorem 5.1: rho_t = 2 S sqrt(sum of 1/sigma^2 over the rounds done)."""
    t = data.draw(st.integers(0, T))
    S = ref.increment_bound(5, 0.1)
    expected = 2 * S * math.sqrt(t / ref.noise_scale(S, T, rho) ** 2)
    assert make_mechanism(rho, S, T).rho_spent(t) == pytest.approx(expected, rel=1e-12)


def test_what_is_not_private_is_said():
    def briefly(statement):
        return [concern.brief for concern in statement.concerns()]

    assert briefly(make_statement(rho=0.5)) == []
    assert briefly(make_statement(rho=0.5, seeded=True)) == ["its seed is written down"]
    assert briefly(make_statement(rho=4)) == ["epsilon is beyond 10"]
    assert briefly(make_statement(rho=0.5, noise="aggregate")) == ["noise = aggregate"]
    # 10 machines and 600 rounds use 6,000 samples.
    assert briefly(make_statement(rho=0.1, delta=1 / 5999)) == ["delta is not below 1/n = 0.00017"]
    assert briefly(make_statement(rho=0.1, delta=1 / 6001)) == []
    silent = changed(
        STATEMENT, rho=math.inf, epsilon=math.inf, epsilon_exact=math.inf, epsilon_sampler=0.0, sigma=0.0,
        epsilon_replace=math.inf, epsilon_zero_out=math.inf,
        **TradeoffCurve(GaussianGuarantee(math.inf)).claims(),
    )  # fmt: skip
    assert briefly(silent) == ["no noise"]
    assert silent.mismatches() == []
    assert budget_concerns(1.0, 0.5, None) == []
    assert len(budget_concerns(11.0, 0.5, 10)) == 2


COMMON = {"clip_norm": 1.5, "grid_spacing": 2.0**-20, "rounds": 20, "machines": 3, "parameters": 40}
MECHANISMS = [
    GaussianMechanism(rho=4.0, sigma=3.354, affected_sums=20, samples=20, batch_size=1.0, **COMMON),
    ObjectivePerturbationMechanism(
        sigma=5.0,
        output_sigma=0.01,
        samples=20,
        batch_size=20.0,
        regularization=40.0,
        G=1.4,
        L=0.5,
        gradient_roundoffs=30.0,
        curvature=0.9,
        residual_vertices=9,
        loss_at_zero=2.3,
        **COMMON,
    ),
    PoissonMechanism(sigma=5.0, samples=100, batch_size=10.0, **COMMON),
    ReplacementExactMechanism(sigma=5.0, samples=100, batch_size=3.0, **COMMON),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
@pytest.mark.parametrize("noise", ["protocol", "aggregate"])
def test_a_file_repeats_every_statement(mechanism, noise):
    made = PrivacyStatement.of(mechanism, 1e-5, noise=noise, server="trusted", S=1.5, noise_recomputable=True)
    attributes = made.file_attributes()
    assert PrivacyStatement.from_attributes(attributes) == made
    # What is not known is not there, rather than no number.
    assert all(value == value and value is not None for value in attributes.values())
    assert ("rho" in attributes) == (made.rho is not None) == (mechanism.budget_parameter == "rho")
    assert attributes["mechanism"] == mechanism.name
    assert attributes["protects"] == mechanism.protected_outputs
    own = {f.name for kind in (made, mechanism) for f in fields(kind)}
    own -= {"mechanism", "selection", "comparisons"}
    own |= {"mu", "tpr_at_fpr_0.001", "tpr_at_fpr_0.01", "tpr_at_fpr_0.1", "attack_accuracy"}
    own |= {"epsilon_replace", "epsilon_zero_out"}
    own |= {"privacy_unit"}
    assert set(attributes) == {*own, "mechanism", "protects"}
    for name in own:
        assert getattr(made, name) == attributes[name]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_rates_of_an_attacker_are_recomputed_and_may_be_absent_together(mechanism):
    made = PrivacyStatement.of(mechanism, 1e-5, server="trusted", S=1.5)
    assert not [text for text in made.mismatches() if "mu" in text or "tpr" in text or "accuracy" in text]
    assert made.mu >= (made.rho or 0.0)
    for name, claim in made.comparisons.items():
        for factor in (0.999, 1.001):
            problems = changed(made, **{name: factor * claim}).mismatches()
            assert [text for text in problems if text.startswith(f"{name} = ")]
    absent = {"neighbours", *made.comparisons}
    earlier = {n: v for n, v in made.file_attributes().items() if n not in absent}
    read = PrivacyStatement.from_attributes(earlier)
    assert read.comparisons == {}
    assert read.file_attributes() == {**earlier, "neighbours": "replace"}
    assert read.mismatches() == made.mismatches()
    with pytest.raises(AttributeError):
        _ = read.mu


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_nothing_that_a_mechanism_states_may_be_absent(mechanism):
    attributes = PrivacyStatement.of(mechanism, 1e-5, server="trusted", S=1.5).file_attributes()
    for name in attributes:
        with pytest.raises(InputError):
            PrivacyStatement.from_attributes({n: v for n, v in attributes.items() if n != name})


@pytest.mark.parametrize(
    "changes",
    [
        {"sigma": "large"}, {"sigma": [1.0, 2.0]}, {"rounds": 600.5}, {"affected_sums": math.nan},
        {"noise_recomputable": 2}, {"server": 1}, {"mechanism": "magic"}, {"protects": "last iterate"},
    ],
)  # fmt: skip
def test_what_is_not_of_its_type_or_not_known_is_refused(changes):
    with pytest.raises(InputError):
        changed(STATEMENT, **changes)


def test_a_rho_is_refused_where_none_describes_the_releases():
    drawn = PrivacyStatement.of(MECHANISMS[-1], 1e-5, server="trusted", S=1.5)
    with pytest.raises(InputError):
        changed(drawn, rho=1.0)
