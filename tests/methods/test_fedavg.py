"""FedAvg against plain NumPy, its accounts, step sizes and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers.local_steps import PlainRun
from helpers.property_tests import given
from helpers.simulations import make_schedule, make_task, simulation_of
from helpers.sources import ArraySource, random_source
from hypothesis import strategies as st

from mu2mpi.analysis.privacy_reports import claim_contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import Samples
from mu2mpi.execution.plan import resolve_plan

SAMPLES, ROUNDS = 7, 6
losses = st.sampled_from(["softmax", "logistic", "squared"])
optimizers = st.sampled_from([{}, {"momentum": 0.8}, {"server_optimizer": "adam"},
                              {"server_optimizer": "adam", "momentum": 0.5}])  # fmt: skip
seeds = st.integers(0, 2**31)


def source_for(loss, seed, machines):
    """Return a source of seven samples for each machine, with labels of the loss."""
    classes = 3 if loss == "softmax" else 2
    source = random_source(seed, SAMPLES * machines, 4, classes, np.float32)
    if loss != "squared":
        return source
    numbers = np.random.default_rng(seed).uniform(-1, 1, SAMPLES * machines)
    features = source._training.features
    test = Samples(source._test.features, np.ones(30))
    numeric = ArraySource(Samples(features, numbers), test, classes, 1.0)
    numeric.label_range = (-1.0, 1.0)
    return numeric


def assert_as_in_plain_numpy(experiment, source):
    simulation = simulation_of(experiment, source)
    plain, result = PlainRun(simulation, source), simulation.run()
    assert simulation.constants.mechanism.clip_norm == pytest.approx(plain.C)
    models = plain.models()
    for found, expected in ((result.x, plain.output(models)), (result.w, models[-1])):
        assert np.linalg.norm(found - expected) < 1e-6 * max(np.linalg.norm(expected), 1e-6)
    assert claim_contradictions(result) == []
    return result, plain


@given(
    losses, st.sampled_from([None, 3, 5]), optimizers, st.sampled_from([1, 2, 4]), st.integers(1, 3),
    st.sampled_from([1.0, 1e6, math.inf]), st.sampled_from([0.3, 1.0]), st.sampled_from([None, 0.5]),
    st.sampled_from([0.5, 5.0]), st.sampled_from([None, 0.4]), seeds, max_examples=25,
)  # fmt: skip
def test_noise_in_local_steps_is_that_of_plain_numpy(
    loss, batch, optimizer, steps, machines, rho, clip, l2, D, tail, seed
):
    source = source_for(loss, seed, machines)
    experiment = Experiment(
        method="fedavg", server="untrusted", loss=loss, machines=machines, rounds=ROUNDS, batch=batch,
        local_steps=steps, rho=rho, clip_norm=clip, l2=l2, diameter=D, tail=tail, eta_scale=0.7, seed=seed,
        evaluations=ROUNDS, **optimizer,
    )  # fmt: skip
    result, plain = assert_as_in_plain_numpy(experiment, source)
    t, per_round = result.history.round, steps * plain.K
    np.testing.assert_array_equal(result.history.gradient_evaluations, machines * per_round * t)
    spent = np.ceil(t * per_round / SAMPLES) / math.ceil(ROUNDS * per_round / SAMPLES)
    np.testing.assert_allclose(result.history.rho_spent, rho * np.sqrt(spent), rtol=1e-12)


@pytest.mark.parametrize("server", ["trusted", "aggregated"])
@given(
    losses, st.sampled_from([None, 3]), optimizers, st.sampled_from([1, 3]),
    st.sampled_from([(3, 1), (4, None)]), st.sampled_from([1.0, math.inf]),
    st.sampled_from([1e-3, 1.0, 2.5]), st.sampled_from([None, 0.5]), seeds, max_examples=12,
)  # fmt: skip
def test_sums_of_whole_machines_are_those_of_plain_numpy(
    server, loss, batch, optimizer, steps, sizes, rho, clip, l2, seed
):
    machines, participants = sizes
    source = source_for(loss, seed, machines)
    experiment = Experiment(
        method="fedavg", unit="machine", server=server, loss=loss, machines=machines, rounds=ROUNDS,
        batch=batch, local_steps=steps, participants=participants, rho=rho, clip_norm=clip, l2=l2,
        diameter=5.0, eta_scale=0.7, seed=seed, evaluations=ROUNDS, **optimizer,
    )  # fmt: skip
    result, plain = assert_as_in_plain_numpy(experiment, source)
    assert result.experiment.participants == (participants or machines)
    assert result.privacy.privacy_unit == "one machine with all its samples"
    expected = (participants or machines) * steps * plain.K * result.history.round
    np.testing.assert_allclose(result.history.gradient_evaluations, expected, rtol=1e-12)


@pytest.mark.parametrize("unit", ["sample", "machine"])
def test_without_a_clipping_norm_it_is_the_bound_on_a_message(unit):
    server, source = "untrusted" if unit == "sample" else "trusted", source_for("softmax", 1, 3)
    experiment = Experiment(
        method="fedavg", unit=unit, server=server, machines=3, rounds=3, local_steps=4, rho=math.inf,
        eta_scale=1.0, diameter=5.0, seed=1,
    )  # fmt: skip
    _, plain = assert_as_in_plain_numpy(experiment, source)
    assert math.isclose(plain.C, math.sqrt(10) * (4 if unit == "machine" else 1))


# ------------------------------------------------------------------------------------ one local step


@pytest.mark.parametrize("settings", [{}, {"batch": 3}, {"momentum": 0.5, "l2": 0.1}])
def test_with_one_local_step_it_is_dp_gd(settings):
    """The same default rounds, noise and steps, and without noise the same bits."""
    source = random_source(1, 21, 4, 3)
    plans = [
        resolve_plan(Experiment(method=method, machines=3, rho=1.0, seed=1, **settings, **own), source, 1)
        for method, own in (("dp-gd", {}), ("fedavg", {"local_steps": 1}))
    ]
    first, second = (plan.constants for plan in plans)
    assert first.mechanism == second.mechanism
    assert (first.rounds, first.eta) == (second.rounds, second.eta)
    results = [
        simulation_of(Experiment(method=method, machines=3, rho=math.inf, rounds=9, seed=1,
                                 **{**settings, **own}), source).run()
        for method, own in (("dp-gd", {}), ("fedavg", {"local_steps": 1}))
    ]  # fmt: skip
    np.testing.assert_array_equal(*(result.x for result in results))
    np.testing.assert_array_equal(*(result.w for result in results))


# ------------------------------------------------------------------------------------------- accounts


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5), st.integers(1, 9), max_examples=60)
def test_every_local_step_that_uses_a_sample_is_counted(n, K, H, T):
    """The account's counts after each round are the largest numbers of sums with the same sample."""
    K = min(n, K)
    sizes = {"machines": 2, "classes": 2, "features": 2, "samples": n, "rho": 1.0}
    options = {"local_steps": H, "batch": K}
    constants = make_schedule("fedavg", rounds=T, options=options, **sizes)
    mechanism, uses = constants.mechanism, np.zeros(n, int)
    assert mechanism.rounds == H * T
    assert constants.sums_per_round == H
    for step in range(H * T):
        np.add.at(uses, np.arange(step * K, step * K + K) % n, 1)
        assert mechanism.affected_sums_until(step + 1) == uses.max()
        if (step + 1) % H == 0:
            t = (step + 1) // H
            assert constants.batching.max_uses_per_sample(t) == uses.max()
            assert constants.rho_spent(t) == pytest.approx(math.sqrt(uses.max() / mechanism.affected_sums))
    assert mechanism.affected_sums == uses.max()
    assert mechanism.sigma == pytest.approx(2 * mechanism.clip_norm * math.sqrt(uses.max()))
    assert mechanism.consistency_errors(1e-5) == []


@pytest.mark.parametrize(("count", "rounds"), [(7, 15), (9, 15), (1, 3), (8, 3)])
def test_a_file_that_counts_other_sums_contradicts_itself(count, rounds):
    """Three rounds of five steps on two of four samples use a sample in 8 of 15 sums."""
    source = random_source(1, 8, 4, 3)
    settings = {"method": "fedavg", "machines": 2, "rounds": 3, "local_steps": 5, "batch": 2, "rho": 1.0}
    result = simulation_of(Experiment(**settings, seed=1), source).run()
    assert claim_contradictions(result) == []
    sigma = result.privacy.mechanism.sigma * math.sqrt(count / 8)
    mechanism = replace(result.privacy.mechanism, affected_sums=count, rounds=rounds, sigma=sigma)
    forged = replace(result, privacy=replace(result.privacy, mechanism=mechanism))
    assert claim_contradictions(forged)


def test_the_account_is_that_of_dp_accounting():
    """Of 4 samples, passes by two in 3 rounds of 5 steps use each in 8 of 15 sums, or seven of them."""
    dp_accounting = pytest.importorskip("dp_accounting")
    sizes = {"machines": 2, "classes": 2, "features": 2, "samples": 4, "rho": 0.7}
    mechanism = make_schedule("fedavg", rounds=3, options={"local_steps": 5, "batch": 2}, **sizes).mechanism
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    event = dp_accounting.GaussianDpEvent(mechanism.sigma / (2 * mechanism.clip_norm))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, 8))
    claimed = mechanism.guarantee().epsilon_exact_noise(1e-5)
    assert claimed == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_a_machine_is_hidden_with_a_sample_s_noise_scaled_to_its_message():
    """The noise of a message does not depend on samples, batches and local steps, but on its norm."""
    sizes = {"classes": 2, "features": 2, "rho": 1.0, "machines": 8, "server": "trusted"}
    found = []
    for samples, H, K, C in ((5, 1, None, 0.3), (50, 4, 3, 0.3), (50, 4, 3, 0.6)):
        options = {"unit": "machine", "local_steps": H, "batch": K, "participants": 2}
        method, problem = make_task("fedavg", samples=samples, clip_norm=C, options=options, **sizes)
        method = method.select_variant(problem.method_options)
        problem = replace(problem, mechanism="poisson-machines")
        constants = method.run_constants(problem, method.batching(problem, 10))
        assert constants.sums_per_round == 1
        assert constants.mechanism.rounds == 10
        assert (constants.mechanism.unit, constants.mechanism.machines) == ("machine", 8)
        assert constants.mechanism.batch_size / constants.mechanism.samples == pytest.approx(1 / 4)
        found.append(constants.mechanism.sigma / C)
    assert found == pytest.approx([found[0]] * 3)


# --------------------------------------------------------------------------- learning rates and presets


def test_learning_rates_by_hand():
    """1 / (L + 2 sqrt(V T) / D) for T H steps; of whole machines, 1 / (H L + 2 sqrt(V T) / D)."""
    source, F, H, T, D = random_source(1, 60, 4, 3), 5, 4, 6, 2.0
    common = {"method": "fedavg", "machines": 3, "rho": 1.0, "rounds": T, "local_steps": H, "diameter": D}
    constants = resolve_plan(Experiment(**common, momentum=0.5), source, 1).constants
    n, M, d, C, L = 20, 3, 3 * F, math.sqrt(2 * F), F / 2
    noise = math.sqrt(d) * constants.mechanism.sigma / (n * math.sqrt(M))
    V = noise**2 + C**2 * 2 * T * H / (n * M)
    assert constants.eta == pytest.approx(0.5 / (L + 2 * math.sqrt(V * T * H) / D))
    options = {"unit": "machine", "server": "trusted", "clip_norm": 0.4, "participants": 2}
    constants = resolve_plan(Experiment(**common, **options), source, 1).constants
    V = d * (constants.mechanism.sigma / 2) ** 2 + 0.4**2 / 2
    assert constants.eta == pytest.approx(1 / (H * L + 2 * math.sqrt(V * T) / D))


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_given_rounds_share_the_path_of_the_preset(method):
    """Step sizes of all local steps add up to the same, however many there are."""
    source = random_source(1, 4000, 6, 4)
    common = {"method": method, "preset": "practical", "machines": 4, "rho": 0.01}
    paths = [
        H * T * resolve_plan(Experiment(**common, local_steps=H, rounds=T), source, 1).experiment.eta_scale
        for H, T in ((1, 100), (5, 100), (50, 20))
    ]
    np.testing.assert_allclose(paths, paths[0], rtol=1e-3)


def test_arrays_of_a_step_have_names_of_their_own():
    """Others would overwrite the mean of query points when a run resumes."""
    for method in ("fedavg", "scaffold"):
        for own in ({}, {"momentum": 0.5}, {"server_optimizer": "adam"} if method == "fedavg" else {}):
            experiment = Experiment(method=method, machines=2, **own)
            names = experiment.chosen_method.state_names(experiment.method_options)
            assert not {"w", "x", "x_previous", "mean"} & set(names)


def test_presets_by_hand():
    """The steps of DP-GD without momentum; messages of machines are short."""
    source = random_source(1, 400, 6, 4)
    common = {"preset": "practical", "machines": 20, "rho": 1.0, "server": "untrusted"}
    plan = lambda **own: resolve_plan(Experiment(**common | own), source, 1).experiment  # noqa: E731
    steps, fedavg = plan(method="dp-gd", momentum=1 - 1 / 3), plan(method="fedavg", local_steps=3)
    assert fedavg.rounds == steps.rounds
    assert (fedavg.clip_norm, fedavg.diameter, fedavg.tail) == (steps.clip_norm, steps.diameter, steps.tail)
    assert (fedavg.momentum, fedavg.eta_scale) == (None, pytest.approx(steps.eta_scale))
    machine = plan(method="fedavg", unit="machine", server="trusted", local_steps=3)
    assert machine.clip_norm == pytest.approx(steps.clip_norm / 4)
    assert machine.participants == 10
    assert 20 <= machine.rounds <= 400


# ------------------------------------------------------------------------------------------- refusals

EACH_STEP = "adds Gaussian noise in each local step of a machine. Use --server untrusted without --noise"
IN_SUMS = "--unit machine hides machines in sums"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        *(({"server": server}, EACH_STEP) for server in ("trusted", "aggregated", "shuffled")),
        ({"noise": "aggregate"}, EACH_STEP),
        ({"mechanism": "poisson-machines"}, EACH_STEP),
        ({"mechanism": "correlated"}, EACH_STEP),
        ({"noise_correlation": 0.5}, EACH_STEP),
        ({"participants": 2}, "--participants needs --unit machine. Otherwise all machines"),
        ({"unit": "machine"}, IN_SUMS),
        ({"unit": "machine", "server": "trusted", "mechanism": "gaussian"},
         IN_SUMS),
        ({"unit": "machine", "server": "trusted", "mechanism": "poisson"},
         IN_SUMS),
        ({"unit": "machine", "server": "shuffled"}, "--mechanism"),
        ({"unit": "person"}, "unit = "),
        ({"local_steps": 0}, "local_steps = "),
        ({"local_steps": 1001}, "local_steps = "),
        ({"server_optimizer": "sgd"}, "server_optimizer = "),
        ({"participants": 0, "unit": "machine", "server": "trusted"}, "participants = "),
        ({"momentum": 1.0}, "momentum = "),
        ({"participation": "uniform:2"}, "--participation"),
        ({"method": "dp-gd", "local_steps": 2}, "local_steps needs method = fedavg or scaffold"),
        ({"method": "dp-sgd", "server": "trusted", "mechanism": "poisson-machines"}, "--mechanism"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_together_are_refused(settings, words):
    chosen = {"method": "fedavg", "server": "untrusted", "machines": 3, **settings}
    with pytest.raises(InputError) as caught:
        resolve_plan(Experiment(**chosen), random_source(1, 60, 4, 3), 1)
    assert words in str(caught.value)


def test_numbers_beyond_the_data_are_refused():
    source = random_source(1, 60, 4, 3)
    with pytest.raises(InputError, match=r"--batch must be at most 20 \(samples of a machine\), got 21"):
        resolve_plan(Experiment(method="fedavg", machines=3, batch=21), source, 1)
    machine = {"method": "fedavg", "machines": 3, "unit": "machine", "server": "trusted"}
    with pytest.raises(InputError, match=r"--participants must be at most 3 \(machines\), got 4"):
        resolve_plan(Experiment(**machine, participants=4), source, 1)
    with pytest.raises(
        InputError, match=r"--rounds must be at most 10000 for the accountant of --unit machine"
    ):
        resolve_plan(Experiment(**machine, participants=3, rounds=10_001), source, 1)
    chosen = resolve_plan(Experiment(**machine, rho=math.inf), source, 1).experiment
    assert (chosen.participants, chosen.rounds) == (3, 100)


@pytest.mark.parametrize(("machines", "expected"), [(5, 5), (60, 10), (250, 25)])
def test_a_tenth_of_the_machines_takes_part_but_at_least_ten(machines, expected):
    source = random_source(1, 2 * machines, 2, 2)
    settings = {"unit": "machine", "server": "trusted", "rho": math.inf, "rounds": 3}
    plan = resolve_plan(Experiment(method="fedavg", machines=machines, **settings), source, 1)
    assert plan.experiment.participants == expected


def test_audits_have_few_samples_and_reach_the_claim():
    method = lookup("methods", "fedavg")
    options = method.options(local_steps=3)
    assert method.audit_settings(3, 6, options) == (2, {"batch": 2})
    options = method.options(unit="machine")
    machine = method.select_variant(options)
    assert machine.audit_settings(9, 6, options) == (1, {"batch": 1, "participants": 3})
    options = method.options(unit="machine", participants=5)
    assert machine.audit_settings(9, 6, options) == (1, {"batch": 1})
