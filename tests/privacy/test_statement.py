"""What a statement claims follows from its own numbers, or is found out."""

import math
from dataclasses import replace
from functools import partial

import pytest
import reference as ref
from hypothesis import strategies as st
from relaxed import given

from mu2mpi.methods.schedule import make_schedule
from mu2mpi.privacy.ledger import PrivacyStatement, concerns, mismatches, recomputed, releases, size_concerns


def make_statement(rho=4.0, delta=1e-5, clip_norm=1.5, rounds=600, seeded=False, **others):
    """Return a statement whose claims come from the reference alone."""
    return PrivacyStatement(
        server="untrusted",
        rho=rho,
        delta=delta,
        epsilon=sampled(ref.epsilon_paper, rho, delta, clip_norm, rounds),
        epsilon_exact=sampled(ref.epsilon_exact, rho, delta, clip_norm, rounds),
        S=118.5,
        clip_norm=clip_norm,
        sigma=ref.noise_scale(clip_norm, rounds, rho),
        rounds=rounds,
        machines=10,
        touched=rounds,
        parameters=7850,
        resolution=RESOLUTION,
        noise_recomputable=seeded,
        epsilon_sampler=sampled(ref.epsilon_exact, rho, delta, clip_norm, rounds)
        - float(ref.epsilon_exact(rho, delta)),
        **others,
    )


RESOLUTION = 2.0**-14


def sampled(epsilon_at, rho, delta, clip_norm, rounds):
    """Return the epsilon of the reference, with what the draws of the noise add."""
    scale = ref.noise_scale(clip_norm, rounds, rho) / RESOLUTION
    return float(ref.epsilon_sampled(partial(epsilon_at, rho), delta, 7850 * rounds, scale))


STATEMENT = make_statement()


@pytest.mark.slow
@given(
    st.floats(math.log(1e-3), math.log(20)).map(math.exp),
    st.floats(math.log(1e-15), math.log(0.1)).map(math.exp),
    st.integers(1, 10**6),
    max_examples=20,
)
def test_claims_of_the_reference_are_true(rho, delta, rounds):
    assert mismatches(make_statement(rho, delta, rounds=rounds)) == []


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("rho", 0.99), ("rho", 1 + 1e-7), ("epsilon", 0.9), ("epsilon_exact", 0.999),
        ("epsilon_sampler", 0.5), ("sigma", 0.5),
        ("sigma", 1.001), ("clip_norm", 2), ("delta", 0.5), ("rounds", 2), ("resolution", 1.5),
        ("resolution", 2**24), ("parameters", 10**18),
    ],
)  # fmt: skip
def test_a_changed_number_is_found_and_named(name, factor):
    value = type(getattr(STATEMENT, name))(getattr(STATEMENT, name) * factor)
    problems = mismatches(replace(STATEMENT, **{name: value}))
    assert problems
    if name in ("rho", "epsilon", "epsilon_exact", "epsilon_sampler", "resolution"):
        assert name in "\n".join(problems)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": "honest"}, "server is 'honest'"),
        ({"noise": "none"}, "noise is 'none'"),
        ({"adjacency": "add-remove"}, "adjacency is 'add-remove'"),
        ({"unit": "one machine"}, "unit is 'one machine'"),
        ({"delta": 0.0}, "out of range"),
        ({"delta": math.nan}, "out of range"),
        ({"sigma": -1.0}, "out of range"),
    ],
)
def test_a_claim_of_another_kind_is_refused(changes, words):
    assert words in "\n".join(mismatches(replace(STATEMENT, **changes)))


def test_the_smaller_sigma_gives_the_larger_rho():
    halved = replace(STATEMENT, sigma=STATEMENT.sigma / 2)
    assert recomputed(halved).rho == pytest.approx(8)
    assert recomputed(halved).epsilon_exact == pytest.approx(float(ref.epsilon_exact(8, 1e-5)), rel=1e-4)
    assert "rho = 4 is claimed" in mismatches(halved)[0]
    assert "give 8" in mismatches(halved)[0]


@pytest.mark.parametrize("server", ["untrusted", "trusted"])
@given(st.integers(1, 50), st.integers(1, 10_000), st.floats(0.01, 20), st.none() | st.floats(0.1, 5))
def test_the_noise_of_a_schedule_is_that_of_its_rho(server, machines, rounds, rho, clip_norm):
    schedule = make_schedule(
        server=server, machines=machines, rounds=rounds, classes=3, features=5, diameter=0.5, rho=rho,
        clip_norm=clip_norm,
    )  # fmt: skip
    statement = replace(
        STATEMENT,
        sigma=schedule.sigma,
        clip_norm=schedule.clip_norm,
        rounds=schedule.rounds,
        touched=schedule.touched,
    )
    assert recomputed(statement).rho == pytest.approx(rho, rel=1e-12)
    (kind,) = releases(statement, rounds)
    assert kind.sensitivity == 2 * schedule.clip_norm


def test_what_is_not_private_is_said():
    def briefly(statement):
        return [concern.brief for concern in concerns(statement)]

    assert briefly(make_statement(rho=0.5)) == []
    assert briefly(make_statement(rho=0.5, seeded=True)) == ["its seed is written down"]
    assert briefly(make_statement(rho=4)) == ["epsilon is beyond 10"]
    assert briefly(make_statement(rho=0.5, noise="aggregate")) == ["noise = aggregate"]
    # 10 machines and 600 rounds use 6,000 samples.
    assert briefly(make_statement(rho=0.1, delta=1 / 5999)) == ["delta is not below 1/n = 0.00017"]
    assert briefly(make_statement(rho=0.1, delta=1 / 6001)) == []
    silent = replace(
        STATEMENT, rho=math.inf, epsilon=math.inf, epsilon_exact=math.inf, epsilon_sampler=0.0, sigma=0.0
    )
    assert briefly(silent) == ["no noise"]
    assert mismatches(silent) == []
    assert size_concerns(1.0, 0.5, None) == []
    assert len(size_concerns(11.0, 0.5, 10)) == 2
