"""Increments that are longer than the clipping norm are refuted, whatever the type of features."""

import math
from typing import Any

import numpy as np
import pytest
from slowly import slow

from mu2mpi.audit import tails, trials as trials_module
from mu2mpi.audit.canaries import CLIPPED
from mu2mpi.audit.sensitivity import check_sensitivity
from mu2mpi.audit.trials import audit
from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.machine import Machines
from mu2mpi.parallel import Communicator

ESTIMATORS, LOSSES = ("corrected-momentum", "gradient"), ("softmax", "logistic")
"""Of kernels for one or two gradients, and for models of several rows or one."""


def check(**settings: Any):
    experiment = Experiment(**{"server": "untrusted", "machines": 3, "rounds": 3, "rho": 1.0, **settings})
    return check_sensitivity(trials_module._schedule(experiment, CLIPPED), bytes(32))


def wherever(matches, change):
    """Break `Machines.observe` for features and batches that match."""
    observe = Machines.observe

    def flawed(self, *of):
        samples, bound = self.read(of[0]), self._bound
        if matches(samples.features.dtype, self._batch):
            change(self, samples)
        observe(self, *of)
        self._bound = bound

    return flawed


def unclipped(machines, samples):
    machines._bound = math.inf


@pytest.mark.parametrize(
    ("estimator", "loss"),
    [(estimator, loss) for estimator in ESTIMATORS for loss in LOSSES],
)
@pytest.mark.parametrize("normalize", ["none", *slow("unit")])
def test_faultless_increments_reach_the_clipping_norm_and_no_more(estimator, loss, normalize):
    found = check(estimator=estimator, loss=loss, normalize=normalize)
    assert (found.refutations, found.alarms) == ((), ())
    assert "the longest has 1 of the clipping norm" in found.summary


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize(("estimator", "loss"), [(e, loss) for e in ESTIMATORS for loss in LOSSES])
def test_missing_clipping_of_any_type_is_refuted(monkeypatch, dtype, batch, estimator, loss):
    matches = lambda of, size: of == dtype and size == batch  # noqa: E731
    monkeypatch.setattr(Machines, "observe", wherever(matches, unclipped))
    refutations = check(estimator=estimator, loss=loss).refutations
    assert refutations
    assert all(np.dtype(dtype).name in words for words in refutations)


def test_clipping_that_is_missing_in_whole_batches_alone_is_refuted(monkeypatch):
    def change(machines, samples):
        if len(samples.labels) > 1:
            unclipped(machines, samples)

    monkeypatch.setattr(Machines, "observe", wherever(lambda dtype, batch: batch == 4, change))
    assert check().refutations


def test_other_increments_of_another_type_are_an_alarm(monkeypatch):
    def change(machines, samples):
        machines._bound /= 2

    monkeypatch.setattr(Machines, "observe", wherever(lambda dtype, batch: dtype == np.float32, change))
    found = check()
    assert found.refutations == ()
    assert found.alarms


def test_an_audit_refutes_missing_clipping_of_floats(monkeypatch):
    monkeypatch.setattr(trials_module, "NORMALS_A_TRIAL", 1)
    monkeypatch.setattr(tails, "MESSAGES", 100)
    monkeypatch.setattr(Machines, "observe", wherever(lambda dtype, batch: dtype.kind == "f", unclipped))
    experiment = Experiment(server="trusted", machines=3, rounds=3, rho=1.0, seed=1)
    finding = audit(experiment, 73, Communicator())
    assert finding.refutations
    assert all("float" in words for words in finding.refutations)
