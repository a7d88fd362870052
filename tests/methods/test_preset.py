"""Presets of extensions."""

import pytest

import mu2mpi


def test_an_extension_is_one_module(extension, tmp_path):
    extension("cautious")
    own = {"data": "synthetic", "samples": 200, "features": 3, "machines": 2, "rounds": 20, "seed": 1}
    result = mu2mpi.run({**own, "preset": "cautious"}, output=tmp_path / "a.h5")
    ours = result.experiment
    practical = mu2mpi.run({**own, "preset": "practical", "method": "mu2-sgd"}).experiment
    assert (ours.preset, ours.method) == ("cautious", "mu2-sgd")
    assert ours.clip_norm == practical.clip_norm / 2
    # The same noise of a weight at half the noise std allows twice the learning rate.
    assert ours.eta_scale / practical.eta_scale == pytest.approx(2, rel=1e-3)
    assert (ours.diameter, ours.normalize) == (practical.diameter, "unit")
    assert mu2mpi.read_result(tmp_path / "a.h5").experiment == ours
