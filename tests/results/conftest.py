import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.timer import TIMED_PHASES
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import Diagnostics, History, Theory
from mu2mpi.results.result import Result


def make_result(classes=3, features=5, rows=4, ranks=2, rho=4.0, seed=1):
    draw = np.random.default_rng(0)
    rounds = np.arange(1, rows + 1)
    return Result(
        experiment=Experiment(data="mnist", machines=2, rounds=rows, rho=rho, seed=seed),
        x=draw.normal(size=(classes, features)),
        w=draw.normal(size=(classes, features)),
        history=History(
            rounds,
            draw.random(rows),
            draw.random(rows),
            np.full(rows, np.nan),
            100 * rounds,
            2 * rounds,
            4 * rounds,
            draw.random(rows),
            draw.random(rows),
            draw.random(rows),
            draw.random(rows),
        ),
        privacy=PrivacyStatement(
            mechanism=GaussianMechanism(
                rho=rho,
                clip_norm=11.5,
                sigma=1000.0,
                grid_spacing=2.0**-20,
                rounds=rows,
                machines=2,
                parameters=classes * features,
                samples=rows,
                batch_size=1.0,
                affected_sums=rows,
            ),
            server="untrusted",
            delta=1e-5,
            epsilon=2 * rho,
            epsilon_exact=rho,
            epsilon_sampler=0.0,
            S=118.5,
            noise_recomputable=seed is not None,
        ),
        theory=Theory(0.3, 2.25, 1e-7, 0.02, 1.1, 0.9),
        diagnostics=Diagnostics(16.75, 0.125),
        class_names=None if seed is None else tuple(f"Größe {k}" for k in range(classes)),
        timing={phase: draw.random(ranks) for phase in TIMED_PHASES},
        environment={"mu2mpi_version": "0.1", "hosts": "nöde (2)", "ranks": ranks, "mpi_library": "MPICH"},
    )


@pytest.fixture
def result():
    return make_result()


@pytest.fixture
def build_result():
    return make_result


@pytest.fixture
def same():
    return results_agree


def results_agree(one, other):
    """Compare every field, types included."""
    assert one.experiment == other.experiment
    assert one.privacy == other.privacy
    assert {k: type(v) for k, v in one.privacy.file_attributes().items()} == {
        k: type(v) for k, v in other.privacy.file_attributes().items()
    }
    assert one.diagnostics == other.diagnostics
    assert one.theory == other.theory
    assert one.environment == other.environment
    for name in (
        "class_names",
        "metrics",
        "label_range",
        "feature_names",
        "schema_toml",
        "feature_scale",
        "loss_unit",
    ):
        assert getattr(one, name) == getattr(other, name)
    assert list(one.timing) == list(other.timing)
    pairs = [(one.x, other.x), (one.w, other.w)]
    pairs += [(one.timing[phase], other.timing[phase]) for phase in one.timing]
    pairs += [(getattr(one.history, name), getattr(other.history, name)) for name in History.column_names()]
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return True
