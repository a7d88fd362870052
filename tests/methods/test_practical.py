"""The practical preset: its settings, their dependence on public facts, and repeated runs from files."""

import math

import numpy as np
import pytest
from helpers.property_tests import given
from helpers.simulations import simulation_of
from helpers.sources import random_source
from hypothesis import strategies as st

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.toml import read_toml
from mu2mpi.data.source import DataSource, Samples
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.losses.loss import PracticalDefaults
from mu2mpi.losses.softmax import SoftmaxLoss
from mu2mpi.results.reader import read_experiment

SOURCE = random_source(1, 400, 6, 4)
BY_PRESET = ("normalize", "clip_norm", "diameter", "eta_scale")


def completed(**settings):
    chosen = {"preset": "practical", "method": "mu2-sgd", **settings}
    return resolve_plan(Experiment(**chosen), SOURCE, ranks=4).experiment


def test_steps_of_anytime_dp_mf_by_hand():
    """In a run of noise alone, w_T accumulates a noise std of 1.5 in each coordinate."""
    experiment = completed(method="anytime-dp-mf", machines=100, rho=0.5, rounds=4, server="trusted")
    constants = resolve_plan(experiment, SOURCE, 1).constants
    T, c = 4, constants.mechanism.correlation.coefficients()
    C = np.array([[c[i - j] if i >= j else 0.0 for j in range(T)] for i in range(T)])
    noise = np.linalg.norm(np.linalg.norm(C, axis=0) @ np.linalg.inv(C)) * constants.mechanism.sigma
    assert constants.eta * noise / 100 == pytest.approx(1.5, rel=1e-3)
    assert (experiment.diameter, experiment.clip_norm) == (600.0, 0.75)
    assert completed(method="anytime-dp-mf", machines=10, rho=math.inf).eta_scale == 160.0


def test_settings_by_hand():
    """1.5 rho sqrt(M) / 0.75 for the untrusted and 1.5 rho M / 0.75 for the trusted server, at most 16 M."""
    assert {name: getattr(completed(machines=100, rho=0.5), name) for name in BY_PRESET} == {
        "normalize": "unit",
        "clip_norm": 0.75,
        "diameter": 200.0,
        "eta_scale": 10.0,
    }
    assert completed(machines=100, rho=0.5, server="trusted").eta_scale == 100.0
    assert completed(rho=1.0).eta_scale == 4.0
    assert completed(machines=10, rho=math.inf).eta_scale == 160.0


@given(
    st.sampled_from(["untrusted", "trusted"]), st.integers(1, 400), st.floats(0.01, 100), st.floats(0.1, 1.4)
)
def test_eta_scale_gives_every_run_the_same_noise(server, machines, rho, clip_norm):
    experiment = Experiment(
        method="mu2-sgd", preset="practical", server=server, machines=machines, rounds=1, rho=rho,
        clip_norm=clip_norm,
    )  # fmt: skip
    plan = resolve_plan(experiment, SOURCE, 1)
    constants = plan.constants
    draws = machines if server == "untrusted" else 1
    noise = constants.eta * constants.mechanism.sigma * math.sqrt(draws * constants.rounds) / machines
    assert noise <= 1.5 * (1 + 1e-3)
    assert noise >= 1.5 * (1 - 1e-3) or plan.experiment.eta_scale == 16 * machines


def test_the_stored_experiment_repeats_the_run_even_if_the_preset_changes(tmp_path, monkeypatch):
    experiment = Experiment(preset="practical", machines=4, rounds=60, rho=8, seed=1)
    first = run(experiment, output=tmp_path / "a.h5")
    stored = read_experiment(tmp_path / "a.h5")
    assert stored.preset == "practical"
    monkeypatch.setattr(SoftmaxLoss, "practical_defaults", PracticalDefaults(clip_norm=0.1, max_margin=3.5))
    (tmp_path / "a.toml").write_text(stored.to_toml())
    again = run(Experiment.from_settings(read_toml(tmp_path / "a.toml")))
    assert again.x.tobytes() == first.x.tobytes()
    assert run(experiment).x.tobytes() != first.x.tobytes()
    # The preset's name changes nothing that is sent.
    unnamed = run(stored.model_copy(update={"preset": None}))
    assert unnamed.x.tobytes() == first.x.tobytes()


class Table(DataSource):
    """Numbers y = 0.6 z_1 - 0.3 z_2 - 0.2, counts of mean exp(y), or classes by the sign of y.

    Of 3,000 training samples with five features in [-1, 1]; which samples these are, a seed decides.
    """

    name, dimension, training_samples, test_samples, feature_scale = "table", 5, 3000, 500, 1.0

    def __init__(self, kind, seed=0):
        rng = np.random.default_rng(seed)
        z = rng.uniform(-1, 1, (3500, 5))
        y = 0.6 * z[:, 0] - 0.3 * z[:, 1] - 0.2 + rng.normal(0, 0.05, 3500)
        self.classes, self.label_range = (2, None) if kind == "classes" else (10, (0.0, 10.0))
        labels = {"classes": (y > 0).astype(np.int32), "numbers": np.clip(y, -1, 1)}
        labels["counts"] = np.minimum(rng.poisson(5 * np.exp(2 * y)), 10) / 5 - 1
        self.all = Samples(z, labels[kind])

    def read(self, which, rows):
        rows = rows + (3000 if which == "test" else 0)
        return Samples(self.all.features[rows], self.all.labels[rows])


OF_LOSS = {
    "softmax": "classes", "logistic": "classes", "smoothed-hinge": "classes",
    "squared": "numbers", "huber": "numbers", "poisson": "counts",
}  # fmt: skip
METHODS = ("mu2-sgd", "dp-sgd")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", OF_LOSS)
@pytest.mark.parametrize("scaling", [{}, {"normalize": "none"}, {"norm_bound": 1.0}])
def test_settings_depend_on_public_facts_alone(method, loss, scaling):
    settings = {"preset": "practical", "method": method, "loss": loss, "machines": 10, "server": "trusted"}
    plans = [
        resolve_plan(Experiment(epsilon=1.0, **settings, **scaling), Table(OF_LOSS[loss], seed), 1)
        for seed in (0, 1)
    ]
    assert plans[0].experiment == plans[1].experiment
    chosen = plans[0].experiment
    follows = {k: v for k, v in chosen.preset_settings(plans[0].public_facts).items() if k not in scaling}
    assert follows.items() <= chosen.settings().items()
    assert chosen.normalize == ("none" if scaling else "unit")
    # Weights gather the same noise with either method, as long as nothing else limits the steps.
    constants, defaults = plans[0].constants, plans[0].constants.problem.loss.practical_defaults
    length = math.sqrt(constants.problem.feature_scaling.max_squared_norm(5.0))
    assert constants.mechanism.clip_norm <= (1 + 1e-3) * defaults.clip_norm * length
    assert abs(2 * constants.problem.radius * length / (2 * defaults.max_margin) - 1) < 1e-3
    samples = constants.batching.batch_size(1) * 10
    noise = constants.step_size(1) * constants.mechanism.sigma * math.sqrt(constants.rounds) / samples
    assert noise * length <= 1.02 * defaults.margin_noise_std


def test_settings_of_dp_sgd_by_hand():
    """C = 0.6 ||z||, s = 4, steps of 1.8 / L = 7.2 / ||z||^2, with ||z||^2 = 5 + 1."""
    settings = {"preset": "practical", "method": "dp-sgd", "loss": "logistic", "server": "trusted"}
    plan = resolve_plan(Experiment(normalize="none", machines=10, rho=1.0, **settings), Table("classes"), 1)
    assert plan.experiment.clip_norm == 1.47
    assert plan.experiment.diameter == 81.65
    path = 4 / math.sqrt(6) * 3000 / (2 * 1.47)
    assert plan.experiment.rounds == plan.constants.rounds == math.ceil(path / 1.2)
    assert plan.experiment.batch == 256
    assert abs(plan.constants.eta * plan.constants.rounds / path - 1) < 1e-3
    few = resolve_plan(Experiment(normalize="none", machines=10, rho=1e-3, **settings), Table("classes"), 1)
    many = resolve_plan(
        Experiment(normalize="none", machines=10, rho=math.inf, **settings), Table("classes"), 1
    )
    assert (few.constants.rounds, many.constants.rounds) == (100, 20_000)
    assert abs(few.constants.eta * 100 / (1e-3 * path) - 1) < 1e-3
    assert abs(many.constants.eta / 1.2 - 1) < 1e-3


@pytest.mark.parametrize(("tail", "first"), [(None, 9), (0.5, 5), (0.3, 6), (1.0, 1), (0.01, 8)])
def test_the_output_is_the_mean_of_the_tail(tail, first):
    experiment = Experiment(
        method="dp-sgd", server="trusted", machines=3, rounds=8, batch=50, rho=math.inf, tail=tail, seed=1
    )
    simulation = simulation_of(experiment, SOURCE)
    iterates, visited = simulation.server.iterates, []
    visit = iterates.record_query_point
    iterates.record_query_point = lambda t: visited.append(iterates.x.copy()) or visit(t)
    result = simulation.run()
    expected = visited[-1] if tail is None else np.mean(visited[first - 1 :], axis=0)
    assert len(visited) == 8
    np.testing.assert_allclose(result.x, expected, rtol=1e-12, atol=1e-15)
