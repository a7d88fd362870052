"""Runs with their files, in one process: what is written, what is refused, and whose key is used."""

import numpy as np
import pytest
from helpers.slow import slow

from mu2mpi import run
from mu2mpi.analysis.ledgers import contradictions
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.execution import job as module
from mu2mpi.execution.job import Job, holds
from mu2mpi.execution.plan import resolve, shared_source
from mu2mpi.results.observer import Observer
from mu2mpi.results.reader import read_result
from mu2mpi.results.schema import checkpoint_path

SERIAL = Communicator()
SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 4}
SEEDED = Experiment(**SETTINGS, seed=1)
SECRET = Experiment(**SETTINGS)


@pytest.fixture(scope="module")
def source():
    return shared_source(SEEDED, None, SERIAL)


def job(overwrite=False):
    return Job(SERIAL, lambda: False, overwrite, 1e9)


class Meanwhile(Observer):
    """Does something after the first checkpoint, if there is one, and before the first round."""

    def __init__(self, action):
        self.on_start = lambda _: action()


def never():
    pytest.fail("it runs")


def test_what_is_written_is_what_is_returned(tmp_path, source):
    path = tmp_path / "new folder" / "a.h5"
    result = job().run_to_file(SEEDED, source, path)
    found = read_result(path)
    assert found.experiment == result.experiment == SEEDED
    assert (found.x.tobytes(), found.w.tobytes()) == (result.x.tobytes(), result.w.tobytes())
    assert found.privacy == result.privacy
    np.testing.assert_array_equal(found.history.message_norm, result.history.message_norm)
    # Nor does it matter to the result that it was written, or who resolved it.
    assert run(SEEDED).x.tobytes() == result.x.tobytes()
    assert list(path.parent.iterdir()) == [path]


def test_a_plan_that_is_given_is_the_one_that_runs(tmp_path, source, monkeypatch):
    plan = resolve(Experiment(**{**SETTINGS, "rounds": None}, seed=1), source, 1)
    assert plan.experiment.rounds == 30
    monkeypatch.setattr(module, "resolve", lambda *_: pytest.fail("it is settled"))
    result = job().run_to_file(plan.experiment, source, tmp_path / "a.h5", plan=plan)
    assert result.experiment == plan.experiment
    assert result.history.round[-1] == 30


def test_a_result_of_another_experiment_is_refused_unless_it_may_be_replaced(tmp_path):
    path = tmp_path / "a.h5"
    run(SEEDED, output=path)
    before = path.read_bytes()
    other = SEEDED.having(rho=2.0)
    for experiment in (other, SEEDED):
        with pytest.raises(InputError, match="exists"):
            run(experiment, output=path, observers=[Meanwhile(never)])
    assert path.read_bytes() == before
    run(other, output=path, overwrite=True)
    assert read_result(path).experiment == other
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_holds_an_experiment_if_it_is_its_whole_result(tmp_path, source):
    path = tmp_path / "a.h5"
    assert not holds(path, SEEDED)
    job().run_to_file(SEEDED, source, path)
    assert holds(path, SEEDED)
    assert holds(path, Experiment.make({**SETTINGS, "seed": "1"}))
    for other in (SECRET, SEEDED.having(rho=4.5), SEEDED.having(evaluations=3)):
        assert not holds(path, other)
    path.write_bytes(path.read_bytes()[:-100])
    assert not holds(path, SEEDED)


def test_the_state_of_a_run_is_no_result(tmp_path, source):
    path = tmp_path / "a.h5"

    def looks():
        (tmp_path / "b.h5").write_bytes(checkpoint_path(path).read_bytes())
        assert not holds(tmp_path / "b.h5", SECRET)
        assert not holds(path, SECRET)

    job().run_to_file(SECRET, source, path, [Meanwhile(looks)])
    assert holds(path, SECRET)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 1e-10}, "epsilon = 1e-10 at delta = 1e-05 is not known to hold.*give a larger epsilon"),
        ({"epsilon": 1000.0}, "give a smaller epsilon"),
        ({"epsilon": 1.0, "delta": 1e-290}, "or a larger delta"),
        *slow(({"method": "dp-sgd", "server": "trusted", "rho": 1e-6}, "epsilon = 0 at delta = 1e-05")),
    ],
)
def test_an_epsilon_that_would_not_hold_is_not_run(settings, words, tmp_path):
    with pytest.raises(InputError, match=words):
        run(Experiment(**SETTINGS, **settings), output=tmp_path / "a.h5")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("everybody", "one"), [(1e-10, 2.0), (2.0, 1e-10)])
@pytest.mark.parametrize("server", ["untrusted", "trusted"])
def test_no_epsilon_is_run_that_would_not_hold_at_some_machine(server, everybody, one, tmp_path):
    (tmp_path / "budgets.toml").write_text(f"[epsilon]\n1 = {one}\n")
    experiment = Experiment(
        **SETTINGS, server=server, epsilon=everybody, budgets=str(tmp_path / "budgets.toml")
    )
    with pytest.raises(InputError, match=r"epsilon = 1e-10 at delta = 1e-05 is not known to hold"):
        run(experiment, output=tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("settings", [{"epsilon": 1e-6}, {"epsilon": 600.0}, {"rho": 1e-10}, {"rho": 100.0}])
def test_what_is_run_keeps_its_promise(settings, tmp_path):
    run(Experiment(**SETTINGS, **settings), output=tmp_path / "a.h5")
    assert contradictions(read_result(tmp_path / "a.h5")) == []
