"""Metrics of extensions."""

import h5py

import mu2mpi
from mu2mpi.cli import main


def test_an_extension_is_one_module(extension, tmp_path, capsys):
    extension("coverage_metric")
    own = {"data": "population", "samples": 200, "features": 3, "machines": 2, "server": "trusted"}
    paths = [str(tmp_path / f"{seed}.h5") for seed in (1, 2)]
    results = [
        mu2mpi.run({**own, "loss": "squared", "seed": seed}, output=path)
        for seed, path in enumerate(paths, 1)
    ]
    assert 0 < results[0].metrics["coverage"] < 1
    with h5py.File(paths[0]) as file:
        assert file["metrics"].attrs["coverage"] == results[0].metrics["coverage"]
    assert mu2mpi.read_result(paths[0]).metrics == results[0].metrics
    assert "coverage" not in mu2mpi.run(own).metrics
    assert main(["show", paths[0]]) == main(["table", *paths, "--values", "coverage", "--best"]) == 0
    printed = capsys.readouterr().out
    assert "final test coverage" in printed
    assert "Coverage in %: mean" in printed
