"""Presets of extensions."""

import subprocess
import sys

EXTENSION = '''
"""The practical preset with smaller clipping norms."""

from mu2mpi import register
from mu2mpi.methods.presets.practical import PracticalPreset


@register
class Conservative(PracticalPreset):
    """Clipping norms that are half as large, and Algorithm 1 or 2."""

    name, summary = "conservative", "smaller clipping norms, with mu2-sgd"
    is_default, method = False, "mu2-sgd"

    def clip_norm(self, problem, length, nearby):
        return super().clip_norm(problem, length, nearby) / 2
'''

USE = """
import sys
import conservative
import mu2mpi
from mu2mpi.cli import main

own = {"data": "synthetic", "samples": 200, "features": 3, "machines": 2, "rounds": 20, "seed": 1}
results = [
    mu2mpi.run({**own, "preset": "conservative"}, output="a.h5"),
    mu2mpi.run({**own, "preset": "practical", "method": "mu2-sgd"}),
]
ours, practical = (result.experiment for result in results)
assert (ours.preset, ours.method) == ("conservative", "mu2-sgd")
assert ours.clip_norm == practical.clip_norm / 2
# The same noise of a weight at half the noise std allows twice the learning rate.
assert abs(ours.eta_scale / practical.eta_scale - 2) < 1e-3
assert (ours.diameter, ours.normalize) == (practical.diameter, "unit")
assert mu2mpi.read_result("a.h5").experiment == ours
sys.exit(main(["run", "--help"]))
"""


def test_an_extension_is_one_module(tmp_path):
    (tmp_path / "conservative.py").write_text(EXTENSION)
    (tmp_path / "use.py").write_text(USE)
    done = subprocess.run(
        [sys.executable, "use.py"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--preset {practical,conservative}" in done.stdout
    assert "conservative, smaller clipping norms" in " ".join(done.stdout.split())
