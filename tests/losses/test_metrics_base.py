"""Metrics of extensions."""

import subprocess
import sys

EXTENSION = '''
"""Share of samples whose class is among the two with the highest scores."""

import numpy as np

from mu2mpi import register
from mu2mpi.losses.metrics.base import Metric


@register
class TopTwo(Metric):
    """Top-2 accuracy."""

    name, long_name = "top-two", "top-2 accuracy"
    unit, labels = "%", "classes"

    def value(self, predictions):
        best = np.argsort(predictions.scores, axis=1)[:, -2:]
        return float(np.take_along_axis(predictions.weights, best, axis=1).sum() / predictions.weights.sum())
'''

USE = """
import sys
import h5py
import top_two
import mu2mpi
from mu2mpi.cli import main

own = {"data": "synthetic", "samples": 200, "features": 3, "machines": 2, "server": "trusted"}
results = [mu2mpi.run({**own, "seed": seed}, output=f"{seed}.h5") for seed in (1, 2)]
assert [*results[0].metrics] == ["accuracy", "auc", "balanced_accuracy", "top_two"]
assert results[0].metrics["accuracy"] <= results[0].metrics["top_two"] <= 1
with h5py.File("1.h5") as file:
    assert file["metrics"].attrs["top_two"] == results[0].metrics["top_two"]
assert mu2mpi.read_result("1.h5").metrics == results[0].metrics
numbers = mu2mpi.run({**own, "data": "population", "loss": "squared"})
assert "top_two" not in numbers.metrics
main(["show", "1.h5"])
sys.exit(main(["table", "1.h5", "2.h5", "--values", "top_two", "--best"]))
"""


def test_an_extension_is_one_module(tmp_path):
    (tmp_path / "top_two.py").write_text(EXTENSION)
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run(
        [sys.executable, "use.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "final test top-2 accuracy" in done.stdout
    assert "Top-2 accuracy in %: mean" in done.stdout
