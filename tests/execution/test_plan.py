"""What resolving settles, from what, and what it refuses: afterwards nothing is open."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.audit.canaries import CanarySource
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.sources.population import Population
from mu2mpi.execution.plan import RunKeys, complete_experiment, resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.privacy.noise.noise_stream import root_key

SOURCE = random_source(1, 120, 4, 3)


class Owned(type(SOURCE)):
    """Its samples belong to three owners, of 20, 40 and 60."""

    has_owners = True
    owner_sizes = np.array([20, 40, 60])


def owned():
    source = random_source(1, 120, 4, 3)
    source.__class__ = Owned
    return source


def settled(source=SOURCE, ranks=4, **settings):
    """Return M, T and the partition of an experiment."""
    plan = resolve_plan(Experiment(**settings), source, ranks)
    assert (plan.constants.problem.machines, plan.constants.rounds) == (
        plan.experiment.machines,
        plan.experiment.rounds,
    )
    assert plan.source is source
    return plan.experiment.machines, plan.experiment.rounds, plan.partition


def test_machines_are_as_many_as_ranks_or_owners():
    assert settled() == (4, 30, "iid")
    assert settled(ranks=1) == (1, 120, "iid")
    assert settled(machines=3) == (3, 40, "iid")
    # Each machine takes as many rounds as the owner with the fewest samples can.
    assert settled(owned()) == (3, 20, "owner")
    assert settled(owned(), partition="iid") == (4, 30, "iid")
    assert settled(owned(), machines=2, partition="sorted") == (2, 60, "sorted")


@pytest.mark.parametrize("method", ["mu2-sgd", "anytime-sgd"])
def test_steps_are_as_long_as_the_noise_of_a_sum_allows(method):
    settings = {"method": method, "machines": 6, "rounds": 20, "rho": 0.05, "diameter": 0.01}

    def step(server, **own):
        return resolve_plan(Experiment(server=server, **settings, **own), SOURCE, 1).constants.eta

    trusted = step("trusted")
    assert step("untrusted") == pytest.approx(trusted / math.sqrt(6), rel=1e-2)
    for server in ("aggregated", "shuffled"):
        steps = [step(server, colluders=c) for c in (0, 3, 5)]
        np.testing.assert_allclose(steps, trusted * np.sqrt([1, 3 / 6, 1 / 6]), rtol=1e-2)


def test_rounds_are_those_that_are_given_or_that_the_samples_last():
    assert settled(rounds=7) == (4, 7, "iid")
    population = Population(4, 3, 0.5, 0.1, 0.0, 1000, 0)
    assert settled(population, data="population") == (4, 250, "iid")
    # One that has more, as they are made when they are needed.
    assert settled(population, data="population", rounds=5000) == (4, 5000, "iid")


@pytest.mark.parametrize(
    ("settings", "rounds", "batch"),
    [
        # A batch of 256 would be more than the 120 samples of all, 20 times.
        ({"method": "dp-sgd", "server": "trusted"}, 20, 120),
        ({"method": "dp-sgd", "server": "trusted", "batch": 24}, 100, 24),
        ({"method": "dp-sgd", "server": "trusted", "rounds": 9}, 9, 120),
        ({"method": "noisy-minibatch-sgd", "rounds": 9, "rho": math.inf}, 9, 1),
        # What suffices for the noise of the theorem.
        ({"method": "noisy-minibatch-sgd", "rounds": 9, "epsilon": 1.0}, 9, 2),
        ({"method": "noisy-minibatch-sgd", "rounds": 9, "batch": 5, "rho": math.inf}, 9, 5),
    ],
)
def test_methods_that_draw_their_samples_settle_batches(settings, rounds, batch):
    plan = resolve_plan(Experiment(machines=2, **settings), SOURCE, 1)
    assert plan.experiment.batch == batch
    assert plan.experiment.rounds == rounds
    assert "batch" in plan.experiment.explicit_settings
    share = batch / 2 if settings["method"] == "dp-sgd" else batch
    assert plan.constants.batching.batch_size(1) == pytest.approx(share)


def test_a_preset_is_filled_in_once_machines_are_known():
    experiment = Experiment(method="mu2-sgd", preset="practical", rho=1.0, diameter=3.0)
    plan = resolve_plan(experiment, SOURCE, 4)
    found = plan.experiment
    assert (found.normalize, found.clip_norm, found.diameter, found.eta_scale) == ("unit", 0.75, 3.0, 4.0)
    assert {
        "normalize",
        "clip_norm",
        "diameter",
        "eta_scale",
        "machines",
        "rounds",
    } <= found.explicit_settings
    assert plan.constants.problem.feature_scaling.unit_norm
    assert plan.constants.mechanism.clip_norm == 0.75
    assert complete_experiment(experiment, plan.public_facts, machines=4).replace(rounds=30) == found
    # What was left open is, in the experiment that the user gave.
    assert experiment.eta_scale is None
    assert experiment.machines is None


experiments = st.builds(
    Experiment,
    machines=st.none() | st.integers(1, 6),
    rounds=st.none() | st.integers(2, 20),
    server=st.just("trusted"),
    rho=st.sampled_from([0.5, 4.0, math.inf]),
    seed=st.none() | st.just(1),
    method=st.sampled_from(["mu2-sgd", "anytime-sgd", "parallel-sgd", "objective-perturbation"]),
    partition=st.sampled_from([None, "iid", "sorted", "contiguous"]),
)


@given(experiments, max_examples=40)
def test_what_is_resolved_stays_so(experiment):
    try:
        plan = resolve_plan(experiment, SOURCE, 3)
    except InputError:
        return
    # On any number of ranks.
    again = resolve_plan(plan.experiment, SOURCE, 5)
    assert again.experiment == plan.experiment
    assert again.partition == plan.partition
    assert again.constants.mechanism == plan.constants.mechanism
    assert again.constants.batching == plan.constants.batching
    assert again.constants.eta == plan.constants.eta


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"machines": 121}, "121"),
        ({"machines": 4, "rounds": 31}, "30"),
        ({"partition": "owner"}, "owner"),
        ({"method": "objective-perturbation", "machines": 1, "rounds": 1}, "--rounds of 4 or more"),
        ({"method": "noisy-minibatch-sgd", "rho": 1e100}, "smaller"),
    ],
)
def test_what_cannot_be_is_an_input_error(settings, words):
    with pytest.raises(InputError, match=words):
        resolve_plan(Experiment(**settings), SOURCE, 4)


def test_the_same_seed_does_not_give_the_same_noise_to_different_experiments():
    """Else the messages of two runs with one secret seed and different rho would give it away."""
    root = root_key(1)
    experiment = Experiment(machines=2, rounds=10, seed=1)
    keys = {RunKeys.noise_key(root, experiment)}
    for changed in (
        {"rho": 8.0},
        {"machines": 3},
        {"rounds": 9},
        {"diameter": 0.2},
        {"clip_norm": 1.0},
        {"normalize": "unit"},
        {"eta_scale": 2.0},
    ):
        keys.add(RunKeys.noise_key(root, experiment.replace(**changed)))
    assert len(keys) == 8
    for unsent in ({"delta": 1e-6}, {"evaluations": 3}, {"method": "mu2-sgd", "preset": "practical"}):
        assert RunKeys.noise_key(root, experiment.replace(**unsent)) in keys


def test_keys_differ_by_secret_and_purpose():
    experiment, root = Experiment(machines=3, rounds=8, method="dp-sgd", server="trusted"), root_key(1)
    # Each secret differs from the first in one byte.
    flips = [(int.from_bytes(root) ^ (1 << 8 * k)).to_bytes(32) for k in range(32)]
    keys = [RunKeys.create(experiment, Communicator(), secret) for secret in (root, *flips)]
    distinct = {own for run in keys for own in (run.noise.tobytes(), run.partition, run.batching)}
    assert len(distinct) == 3 * len(keys)
    for seeds in ((None, None), (0, 1)):
        runs = [RunKeys.create(experiment.replace(seed=seed), Communicator()) for seed in seeds]
        assert len({run.root for run in runs}) == len({run.batching for run in runs}) == 2


def test_a_run_draws_its_samples_with_its_own_key():
    settings = {"method": "dp-sgd", "server": "trusted", "machines": 3, "rounds": 8, "rho": math.inf}
    source = CanarySource(1200, 1200)  # whose labels are the numbers of the rows
    simulation = Simulation(resolve_plan(Experiment(**settings), source, 1), Communicator())
    keys, plan = simulation.run_keys, simulation.plan
    data = plan.source, plan.constants, keys.partition, range(3), plan.partition
    drawn = simulation.machines.samples.labels
    np.testing.assert_array_equal(drawn, make_sample_reader(*data, keys.batching)(1).labels)
    assert not np.array_equal(drawn, make_sample_reader(*data, bytes(32))(1).labels)
