"""Data in memory of rank 0 alone: all ranks train on them, with the bits of one rank."""

import numpy as np
import pytest
from helpers.assertions import assert_same
from helpers.simulations import share_result, simulation_of

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.data.memory import MemoryData
from mu2mpi.execution.job import run
from mu2mpi.execution.plan import open_source

random = np.random.default_rng(3)
X, Y = random.uniform(-1, 1, (90, 4)), random.integers(0, 3, 90)
SETTINGS = {"machines": 6, "server": "trusted", "epsilon": 3.0, "seed": 1}
UNIT = {"type": "numeric", "low": -1.0, "high": 1.0}
SCHEMA = {"columns": {**{str(k): UNIT for k in range(4)}, "label": {"type": "label", "classes": [0, 1, 2]}}}


COLUMNS = {**{str(k): column for k, column in enumerate(X.T)}, "label": Y}


@pytest.mark.parametrize(("data", "schema"), [((X, Y), None), (COLUMNS, SCHEMA)])
def test_only_the_arrays_of_rank_0_are_used(communicator: Communicator, data, schema):
    memory = MemoryData.share(Communicator(), data, None, schema, None)
    experiment = Experiment(**{**SETTINGS, **memory.settings})
    alone = simulation_of(experiment, open_source(experiment, memory)).run()
    others = {"data": [None, (X[:5], Y)][communicator.rank % 2], "schema": "nowhere.toml", "target": "other"}
    mine = {"data": data, "schema": schema} if communicator.rank == 0 else others
    assert_same(run(SETTINGS, **mine), share_result(alone, communicator))


def test_refusals_of_rank_0_are_those_of_all_ranks(communicator: Communicator):
    data = (X, Y[:5]) if communicator.rank == 0 else (X, Y)
    with pytest.raises(InputError, match="memory holds 90 rows of features but 5 labels"):
        run(SETTINGS, data=data)
    with pytest.raises(InputError, match="target, schema and test belong to data"):
        run(SETTINGS, **({"target": "y"} if communicator.rank == 0 else {"data": (X, Y)}))


@pytest.mark.filterwarnings("ignore:Another private fit", "ignore:.*bounds not given")
def test_estimators_are_fitted_to_the_arrays_of_rank_0(communicator: Communicator, monkeypatch):
    module = pytest.importorskip("mu2mpi.sklearn")
    model = module.DPClassifier(machines=6, random_state=4)
    model.fit(*((X, Y) if communicator.rank == 0 else (None, None)))
    assert (model.n_features_in_, list(model.classes_)) == (4, [0, 1, 2])
    for place in ("mu2mpi.sklearn.world", "mu2mpi.core.parallel.world"):
        monkeypatch.setattr(place, Communicator)
    alone = module.DPClassifier(machines=6, random_state=4).fit(X, Y)
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
    with pytest.raises(ValueError, match="NaN"):
        module.DPClassifier().fit(X * np.nan, Y)


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ([{"bounds": (-1, 1)}, {"bounds": (-2, 2)}], "bounds is not the same on all ranks"),
        ([{"bounds": (-1, 1)}, {"bounds": (1, -1)}], "bounds must be a pair"),
        ([{"random_state": 3}, {"random_state": -1}], "random_state is not the same on all ranks"),
        ([{"epsilon": 1.0}, {"epsilon": None}], "epsilon and delta must be numbers"),
        ([{"epsilon": 1.0}, {"epsilon": 2.0}], "epsilon is not the same on all ranks"),
    ],
)
def test_parameters_that_differ_between_ranks_are_refused_on_all(
    communicator: Communicator, parameters, told
):
    module = pytest.importorskip("mu2mpi.sklearn")
    with pytest.raises(InputError, match=told):
        module.DPClassifier(**parameters[communicator.rank % 2]).fit(X, Y)


@pytest.mark.several_ranks
def test_estimators_of_two_classes_are_refused_on_all_ranks(communicator: Communicator):
    module = pytest.importorskip("mu2mpi.sklearn")
    estimator = (module.DPRegressor, module.DPClassifier)[communicator.rank % 2]
    with pytest.raises(InputError, match="estimator is not the same on all ranks"):
        estimator().fit(X, X[:, 0])
