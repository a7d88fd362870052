"""A result is the same whatever number of threads NumPy's library of linear algebra has."""

import h5py
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run

OF_THE_JOB = ("created", "@history", "run_id", "elapsed_seconds", "timing", "cost")
"""What may differ between two runs of one experiment on one machine."""


def settings(data):
    """Return an experiment whose arrays are so large that the library shares their products out."""
    size = {"features": 2000, "classes": 10, "samples": 1000}
    return {"data": data, "machines": 2, "rounds": 40, "rho": 4.0, "seed": 1, **size}


def numbers(path):
    """Return all that a result holds, by name, but for what tells of the job."""
    found = {}

    def note(name, thing):
        if isinstance(thing, h5py.Dataset):
            found[name] = thing[()]
        else:
            found.update({f"{name}@{key}": value for key, value in thing.attrs.items()})

    with h5py.File(path) as file:
        note("", file)
        file.visititems(note)
    return {name: value for name, value in found.items() if not any(word in name for word in OF_THE_JOB)}


def assert_same(paths):
    one, *others = map(numbers, paths)
    assert {"history/message_norm", "theory@minimum_gap", "theory@final_gradient_norm", "model/x"} < set(one)
    for other in others:
        np.testing.assert_equal(other, one)


@pytest.mark.parametrize("data", ["synthetic", "population"])
def test_numbers_do_not_depend_on_threads(tmp_path, data):
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert threads in [library["num_threads"] for library in threadpool_info()]
            run(Experiment.from_settings(settings(data)), output=tmp_path / f"{threads}.h5")
    assert_same(tmp_path.iterdir())
