"""What can be chosen by name: what is built in, what others add, and what is said of unknown names."""

import sys
import textwrap
from types import SimpleNamespace

import pytest
from helpers.launch import run_command

from mu2mpi.core import registry
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import find, names, register
from mu2mpi.data.formats.base import File
from mu2mpi.data.partitions.base import Partition
from mu2mpi.data.sources.base import DataSource
from mu2mpi.federation.servers.base import Server
from mu2mpi.losses.base import Problem
from mu2mpi.methods.base import Method
from mu2mpi.privacy.mechanisms.base import Mechanism

BUILT_IN = {
    "losses": ["huber", "logistic", "poisson", "smoothed-hinge", "softmax", "squared"],
    "methods": [
        "accelerated-srgd", "anytime-dp-mf", "anytime-sgd", "dp-gd", "dp-sgd",
        "mu2-sgd", "noisy-minibatch-sgd", "parallel-sgd", "snowball-sgd", "storm"
    ],
    "mechanisms": [
        "binomial", "correlated", "gaussian", "last-iterate", "poisson", "replacement", "replacement-exact"
    ],
    "servers": ["aggregated", "shuffled", "trusted", "untrusted"],
    "sources": ["digits", "mnist", "population", "synthetic", "user-file"],
    "formats": ["csv", "hdf5", "npz", "parquet", "svm"],
    "partitions": ["contiguous", "dirichlet", "iid", "labels", "owner", "sorted"],
}  # fmt: skip


@pytest.fixture
def scratch(monkeypatch):
    """Forget afterwards what a test registers."""
    copies = {kind: dict(things) for kind, things in registry._registered.items()}
    monkeypatch.setattr(registry, "_registered", copies)


@pytest.mark.parametrize("kind", BUILT_IN)
def test_what_is_built_in_has_the_name_of_its_module(kind):
    assert names(kind)[: len(BUILT_IN[kind])] == BUILT_IN[kind]
    bases = [Problem, Method, Mechanism, Server, DataSource, File, Partition]
    base = dict(zip(BUILT_IN, bases, strict=True))[kind]
    for name in BUILT_IN[kind]:
        thing = find(kind, name)
        assert (thing.kind, thing.name) == (kind, name)
        assert issubclass(thing, base) if isinstance(thing, type) else isinstance(thing, base)
        assert find(kind, name) is thing


@pytest.mark.parametrize("kind", BUILT_IN)
@pytest.mark.parametrize("name", ["nosuch", "base", "", "__init__", "mu2_sgd", "Softmax"])
def test_unknown_names_are_answered_with_those_that_are_known(kind, name):
    with pytest.raises(InputError) as caught:
        find(kind, name)
    assert repr(name) in str(caught.value)
    for known in BUILT_IN[kind]:
        assert known in str(caught.value)


def test_what_is_registered_is_found(scratch):
    thing = SimpleNamespace(kind="losses", name="hinge")
    assert register(thing) is thing
    assert find("losses", "hinge") is thing
    assert names("losses") == [*BUILT_IN["losses"], "hinge"]
    assert "hinge" not in names("methods")
    later = register(SimpleNamespace(kind="losses", name="hinge"))
    assert find("losses", "hinge") is later
    assert names("losses") == [*BUILT_IN["losses"], "hinge"]


@pytest.mark.parametrize(
    "thing",
    [SimpleNamespace(name="x"), SimpleNamespace(kind="losses"), SimpleNamespace(kind="x", name="x")],
)
def test_what_has_no_kind_or_no_name_cannot_be_registered(thing):
    with pytest.raises(ValueError, match=f"no kind among {', '.join(BUILT_IN)}, or no name"):
        register(thing)


OTHERS = """
    from mu2mpi.federation.estimators import GRADIENT, ITERATE
    from mu2mpi.methods.base import Method
    from mu2mpi.core.registry import register

    print("imported")

    class Mine(Method):
        name, title, summary = "mine", "Mine", "gradients at iterates, in another package"
        estimator, query = GRADIENT, ITERATE

    mine = Mine()
    """
ENTRY_POINTS = """
    [mu2mpi.methods]
    mine = others:mine
    """
SCRIPT = """
    from mu2mpi.core.registry import find, names
    print(names("methods"))
    print(find("methods", "mine").summary)
    from mu2mpi import Experiment, run
    print(run(Experiment(method="mine", machines=2, rounds=3, seed=1)).x.shape)
    """


@pytest.mark.slow
def test_what_another_distribution_offers_is_found_and_imported_when_it_is_asked_for(tmp_path):
    """By its entry points, as of any package that is installed."""
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    (tmp_path / "others.py").write_text(textwrap.dedent(OTHERS))
    path = ":".join([str(tmp_path), *filter(None, sys.path)])
    done = run_command([sys.executable, "-c", textwrap.dedent(SCRIPT)], 120, {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    listed, *rest = done.stdout.splitlines()
    assert listed == str([*BUILT_IN["methods"], "mine"])
    assert rest == ["imported", "gradients at iterates, in another package", "(10, 65)"]
