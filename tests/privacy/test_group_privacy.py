"""What is said of persons with several samples is what all messages together show, or more."""

import itertools
import math

import numpy as np
import pytest
from helpers import reference as ref
from hypothesis import given, strategies as st

from mu2mpi.analysis.privacy_reports import GroupSize, group_privacy_guarantee
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run
from mu2mpi.privacy.accounting.group_privacy import PersonSamples, person_guarantee
from mu2mpi.privacy.accounting.guarantee import GaussianGuarantee, GroupGuarantee, PrivacyCurveGuarantee
from mu2mpi.privacy.mechanisms.correlated_mechanism import CorrelatedMechanism
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism

SIZES = {"machines": 3, "parameters": 4, "samples": 9, "batch_size": 1.0, "grid_spacing": 2.0**-20}


def releases(rounds, affected_sums, sigma=1.0, clip_norm=1.0, **sizes):
    """Return releases of this noise."""
    rho = 2 * clip_norm * math.sqrt(affected_sums) / sigma
    stated = {**SIZES, "rounds": rounds, "affected_sums": affected_sums, "clip_norm": clip_norm, **sizes}
    return GaussianMechanism(sigma=sigma, rho=rho, **stated)


def moved(rounds, chosen, is_cumulative):
    """Return by how much every message is moved by samples of these rounds, in units of 2 C."""
    terms = np.isin(np.arange(rounds), chosen).astype(float)
    return np.cumsum(terms) if is_cumulative else terms


def worst(rounds, number, is_cumulative):
    """Return the largest norm of what any so many samples move, one a round."""
    chosen = itertools.combinations(range(rounds), min(number, rounds))
    return max(float(np.linalg.norm(moved(rounds, some, is_cumulative))) for some in chosen)


@given(st.integers(1, 7), st.integers(1, 7), st.booleans(), st.floats(0.1, 10))
def test_samples_one_a_round_move_messages_by_no_more_than_is_said(rounds, number, is_cumulative, sigma):
    number = min(number, rounds)
    found = releases(rounds, rounds if is_cumulative else 1, sigma).group_guarantee(
        number, one_sample_per_round=True
    )
    assert found.rho == pytest.approx(2 / sigma * worst(rounds, number, is_cumulative))
    together = releases(rounds, rounds if is_cumulative else 1, sigma).group_guarantee(
        number, one_sample_per_round=False
    )
    assert together.rho >= found.rho * (1 - 1e-12)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 12))
def test_samples_of_passes_move_messages_by_no_more_than_is_said(n, batch, number, rounds):
    batch, number = min(batch, n), min(number, n)
    taken = (np.arange(rounds * batch) % n).reshape(rounds, batch)
    norms = [
        float(np.linalg.norm(np.isin(taken, some).sum(axis=1)))
        for some in itertools.combinations(range(n), number)
    ]
    mechanism = releases(rounds, -(-rounds * batch // n), samples=n, batch_size=float(batch))
    found = mechanism.group_guarantee(number, one_sample_per_round=batch == 1)
    assert 2 * max(norms) <= found.rho * (1 + 1e-12)
    if n == batch or (batch == 1 and rounds % n == 0):
        assert found.rho == pytest.approx(2 * max(norms))


@pytest.mark.parametrize("is_cumulative", [True, False])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_samples_under_correlated_noise_move_the_strategy_by_no_more_than_is_said(number, is_cumulative):
    own = {"power": 0.7, "buffers": 4, "is_cumulative": is_cumulative}
    mechanism = CorrelatedMechanism(sigma=1.0, rho=1.0, rounds=6, clip_norm=1.0, **{**SIZES, **own})
    strategy = mechanism.correlation
    columns = np.array([strategy.apply_strategy(_sent(one, is_cumulative)) for one in np.eye(6)])[..., 0]
    found = [
        2 * float(np.linalg.norm(columns[list(some)].sum(axis=0)))
        for some in itertools.combinations(range(6), number)
    ]
    assert max(found) <= mechanism.group_guarantee(number, one_sample_per_round=True).rho
    assert max(found) > mechanism.group_guarantee(number, one_sample_per_round=True).rho / number * (1 - 1e-3)


def _sent(terms, is_cumulative):
    """Return messages that hold these terms of a stream, and no noise."""
    return (np.cumsum(terms) if is_cumulative else terms).reshape(-1, 1).copy()


@given(
    st.lists(st.tuples(st.floats(0.1, 3), st.floats(0.1, 3), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(1, 5),
    st.booleans(),
)
def test_machines_count_by_their_squares_unless_they_share_their_noise(machines, most, is_shared):
    """Of all choices of machines the worst is found, and it is what their messages show together."""
    T, held, shifts = 4, [], []
    sigma = 1.3
    for clip_norm, own, number in machines:
        of = sigma if is_shared else own
        held.append(PersonSamples(releases(T, T, of, clip_norm), number))
        shifts.append(2 * clip_norm * moved(T, range(number), is_cumulative=True) / of)
    found = person_guarantee(held, most, is_shared, one_sample_per_round=True, delta=1e-5)
    some = itertools.combinations(shifts, min(most, len(shifts)))
    # With one draw for all, what they move adds up before; else each message has noise of its own.
    seen = [np.sum(one, axis=0) if is_shared else np.concatenate(one) for one in some]
    largest = max(float(np.linalg.norm(one)) for one in seen)
    if is_shared:
        assert largest <= found.rho * (1 + 1e-12)
        if len({number for *_, number in machines}) == 1:
            assert found.rho == pytest.approx(largest)
    else:
        assert found.rho == pytest.approx(largest)


@given(st.floats(0.01, 1), st.integers(1, 8), st.floats(1e-9, 1e-2))
def test_a_group_is_hidden_by_what_hides_each(rho, number, delta):
    """Where the truth for groups is known, it is true, and no worse than the rule allows."""
    grouped = GroupGuarantee(PrivacyCurveGuarantee(GaussianGuarantee(rho).epsilon_exact_noise), number)
    epsilon = grouped.epsilon(delta)
    assert epsilon >= GaussianGuarantee(number * rho).epsilon_exact_noise(delta) * (1 - 1e-9)
    assert ref.gaussian_delta(epsilon, number * rho) <= delta * (1 + 1e-9)
    if 0 < epsilon < math.inf and number > 1:
        each = epsilon / number
        inner = float(ref.gaussian_delta(each, rho))
        total = inner * sum(math.exp(j * each) for j in range(number))
        assert delta * (1 - 1e-3) <= total <= delta * (1 + 1e-6)


SAME = {"data": "synthetic", "samples": 120, "features": 3, "machines": 3, "seed": 1}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with results of machines that are the same, and of some that are not."""
    folder = tmp_path_factory.mktemp("persons")
    for name, settings in {
        "same": {"rho": 1.0, "rounds": 8},
        "trusted": {"rho": 1.0, "rounds": 8, "server": "trusted"},
        "gradients": {"rho": 1.0, "rounds": 8, "estimator": "gradient"},
        "drawn": {"method": "noisy-minibatch-sgd", "epsilon": 0.1, "rounds": 8},
        "hidden": {"method": "objective-perturbation", "epsilon": 1.0, "rounds": 20, "server": "trusted"},
        "differing": {"rho": 1.0, "participation": "bernoulli:0.5", "participation_seed": 3, "rounds": 16},
        "public": {"rho": math.inf, "rounds": 8},
    }.items():
        run(Experiment(**{**SAME, **settings}), output=folder / f"{name}.h5")
    return folder


@pytest.fixture
def read(made):
    from mu2mpi.results.reader import read_result

    return lambda name: read_result(made / f"{name}.h5")


@pytest.mark.parametrize("name", ["same", "trusted", "gradients", "drawn", "hidden", "differing", "public"])
def test_one_sample_is_what_the_file_states(read, name):
    result = read(name)
    found = group_privacy_guarantee(result, GroupSize())
    assert found.epsilon(result.privacy.delta) == pytest.approx(result.privacy.epsilon_exact, rel=1e-6)
    assert found.rho == pytest.approx(result.privacy.rho) if result.privacy.rho else found.rho is None


@pytest.mark.parametrize(
    ("name", "person", "rho"),
    [
        ("same", GroupSize(3), math.sqrt((1 + 4 + 6 * 9) / 8)),
        ("same", GroupSize(3, 2), math.sqrt(2 * (1 + 4 + 6 * 9) / 8)),
        ("same", GroupSize(None), math.sqrt(8 * 9 * 17 / 6 / 8)),
        ("same", GroupSize(1, 100), math.sqrt(3)),
        ("trusted", GroupSize(3, 2), 2 * math.sqrt((1 + 4 + 6 * 9) / 8)),
        ("gradients", GroupSize(4), 2.0),
        ("gradients", GroupSize(None, 3), math.sqrt(8 * 3)),
        ("public", GroupSize(2), math.inf),
    ],
)
def test_files_say_what_holds_of_a_person(read, name, person, rho):
    assert group_privacy_guarantee(read(name), person).rho == pytest.approx(rho)


def test_draws_at_random_are_composed_over_machines_or_grouped(read):
    """By the curve of epsilon over delta, on a grid that is finer than that of the search."""
    result = read("drawn")
    delta, one = result.privacy.delta, result.privacy.mechanism.guarantee().epsilon_exact_noise

    def of_group(k, delta):
        """Return the smallest k epsilon(d) with d (e^(k epsilon) - 1) / (e^epsilon - 1) <= delta."""
        d = np.geomspace(1e-12, delta, 2001)
        epsilons = np.array([one(x) for x in d])
        return k * float(epsilons[d * np.expm1(k * epsilons) / np.expm1(epsilons) <= delta].min())

    for person, truth in {
        GroupSize(2): of_group(2, delta),
        GroupSize(2, 3): 3 * of_group(2, delta / 3),
    }.items():
        assert group_privacy_guarantee(result, person).epsilon_exact_noise(delta) == pytest.approx(
            truth, rel=1e-2
        )
    machines = [PersonSamples(result.privacy.mechanism, 2)] * 3
    found = person_guarantee(machines, 3, machines_share_noise=True, one_sample_per_round=False, delta=delta)
    assert found.epsilon_exact_noise(delta) == pytest.approx(of_group(6, delta), rel=1e-2)
