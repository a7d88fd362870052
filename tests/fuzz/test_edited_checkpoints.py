"""Checkpoints that were edited at random: refused, or they do no harm."""

import os
import random
import signal

import h5py
import numpy as np
import pytest
from helpers.interrupted_runs import Meanwhile
from helpers.slow import slow

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.execution.job import run
from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import checkpoint_path

VALUES = (-1, 0, 1, 2**31, 2**63 - 1, -(2**63), 0.5, -0.0, 1e308, np.nan, np.inf, "", "x", "µ", b"\xff")
VALUES += (np.float32(1), np.int8(3), np.bool_(True), np.zeros(0), np.ones((2, 2)), h5py.Empty("f8"))
TYPES = ("f4", "i2", "u1", "S3", "f8", "i8")


def edit(file: h5py.File, chance: random.Random) -> str:
    """Change something in a file, and say what."""
    names: list[str] = []
    file.visit(names.append)
    groups = ["/", *(name for name in names if isinstance(file[name], h5py.Group))]
    arrays = [name for name in names if isinstance(file[name], h5py.Dataset)]
    kind = chance.choice(["attribute", "no attribute", "value", "array", "no item", "shape"])
    if kind in ("attribute", "no attribute"):
        place = file[chance.choice([group for group in groups if len(file[group].attrs)])]
        name = chance.choice(sorted(place.attrs))
        value = chance.choice(VALUES)
        if kind == "attribute":
            place.attrs[name] = value
        else:
            del place.attrs[name]
        return f"{kind} {place.name} {name} {value!r}"
    name = chance.choice(names if kind == "no item" else arrays)
    old = file[name][()] if name in arrays else np.zeros(0)
    if kind == "no item" or not old.size:
        del file[name]
    elif kind == "value":
        place = tuple(chance.randrange(length) for length in old.shape)
        value = chance.choice([v for v in VALUES if isinstance(v, int | float)])
        with np.errstate(all="ignore"):
            old[place] = np.array(value).astype(old.dtype)
        file[name][...] = old
    else:
        del file[name]
        new = chance.choice([old[:-1], old[..., np.newaxis], np.repeat(old, 2, axis=0), old.ravel()])
        with np.errstate(all="ignore"):
            file[name] = new if kind == "shape" else old.astype(chance.choice(TYPES))
    return f"{kind} {name}"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Return an experiment and its checkpoint, of a run that was stopped."""
    path = tmp_path_factory.mktemp("stopped") / "a.h5"
    experiment = Experiment(data="synthetic", samples=300, features=3, machines=3, seed=1)
    stop = Meanwhile(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with pytest.raises(Interrupted):
        run(experiment, output=path, callbacks=[stop])
    return experiment, checkpoint_path(path).read_bytes()


def goes_on(experiment, content, path):
    """Say whether a run goes on from a checkpoint; if not, all must be as it was."""
    try:
        run(experiment, output=path)
    except InputError:
        assert checkpoint_path(path).read_bytes() == content
        assert not path.exists()
        return False
    assert np.isfinite(read_result(path).x).all()
    path.unlink()
    return True


@pytest.mark.parametrize("number", [60, *slow(500)])
def test_what_was_edited_is_refused_or_does_no_harm(number, stopped, chance, tmp_path):
    experiment, content = stopped
    path, went_on = tmp_path / "a.h5", 0
    for _ in range(number):
        checkpoint_path(path).write_bytes(content)
        with h5py.File(checkpoint_path(path), "r+") as file:
            said = [edit(file, chance) for _ in range(chance.choice([1, 1, 1, 3]))]
        try:
            went_on += goes_on(experiment, checkpoint_path(path).read_bytes(), path)
        except Exception as error:
            raise AssertionError(f"after {said}") from error
    assert went_on < number
    checkpoint_path(path).write_bytes(content)
    assert read_checkpoint(checkpoint_path(path)).rounds_done == 0
    assert goes_on(experiment, content, path)
