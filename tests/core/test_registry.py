"""What can be chosen by name: what is built in, what others add, and what is said of unknown names."""

import hashlib
import sys
import textwrap
from types import SimpleNamespace

import pytest
from helpers.launch import run_command

from mu2mpi.core import registry
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import extension_files, find, import_files, imported_files, names, register
from mu2mpi.data.formats.format import File
from mu2mpi.data.partition import Partition
from mu2mpi.data.source import Source
from mu2mpi.federation.servers.server import Server
from mu2mpi.losses.loss import Problem
from mu2mpi.methods.method import Method
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

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
    """Forget afterwards what a test registers or imports."""
    for kind, built_in in BUILT_IN.items():
        for name in built_in:
            find(kind, name)
    copies = {kind: dict(things) for kind, things in registry._registered.items()}
    monkeypatch.setattr(registry, "_registered", copies)
    monkeypatch.setattr(registry, "_imported", {})
    yield
    for name in registry._imported:
        del sys.modules[name]


@pytest.mark.parametrize("kind", BUILT_IN)
def test_what_is_built_in_has_the_name_of_its_module(kind):
    assert names(kind)[: len(BUILT_IN[kind])] == BUILT_IN[kind]
    bases = [Problem, Method, Mechanism, Server, Source, File, Partition]
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


def test_a_built_in_thing_that_is_imported_later_replaces_no_other(scratch):
    built_in, own = find("losses", "softmax"), SimpleNamespace(kind="losses", name="softmax")
    register(own)
    register(type(built_in))
    assert find("losses", "softmax") is own


@pytest.mark.parametrize(
    "thing",
    [SimpleNamespace(name="x"), SimpleNamespace(kind="losses"), SimpleNamespace(kind="x", name="x")],
)
def test_what_has_no_kind_or_no_name_cannot_be_registered(thing):
    with pytest.raises(ValueError, match=r"no kind among losses, methods, .*, or no name"):
        register(thing)


LOSS_FILE = """
    import mu2mpi
    from mu2mpi.losses.softmax import Softmax

    @mu2mpi.register
    class Mine(Softmax):
        name = "mine"
    """


@pytest.mark.usefixtures("scratch")
def test_imported_files_register_things_and_are_extensions(tmp_path):
    file = tmp_path / "own_losses.py"
    file.write_text(textwrap.dedent(LOSS_FILE))
    import_files([file, str(file)])
    thing = find("losses", "mine")
    import_files([file])
    assert find("losses", "mine") is thing
    assert extension_files(("losses", "mine")) == {"own_losses": file}
    assert imported_files() == {"own_losses": (file, hashlib.sha256(file.read_bytes()).hexdigest())}


WITHOUT_CONSTANTS = """
from mu2mpi import register
from mu2mpi.losses.loss import Problem

@register
class Mine(Problem):
    name, loss = "mine", abs
"""
WITHOUT_DEFAULT = "from mu2mpi.core.options import Options\n\nclass Mine(Options):\n    steps: int"
WITHOUT_MEANING = """
from pydantic import Field
from mu2mpi.core.options import Options

class Mine(Options):
    steps: int = Field(1, ge="one", description="number of steps")
"""


@pytest.mark.usefixtures("scratch")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("own_a.py", "x = 1\ny = 1 / 0", r"own_a.py, line 2: ZeroDivisionError: division by zero"),
        ("own_b.py", "x = 1\n\ndef f(:", r"own_b.py, line 3: SyntaxError: "),
        ("own_c.py", "import nosuch_module", r"own_c.py, line 1: ModuleNotFoundError: "),
        ("own_d.py", "import sys; sys.exit(3)", r"own_d.py, line 1: SystemExit: 3"),
        ("own_e.txt", "", "it is not a Python file"),
        ("own_g.py", WITHOUT_CONSTANTS, "ValueError: <class 'own_g.Mine'> lacks constants, residual"),
        ("own_h.py", WITHOUT_DEFAULT, "line 3: TypeError: the option steps of Mine needs a default"),
        ("own_i.py", WITHOUT_MEANING, "line 5: SchemaError: "),
        ("json.py", "", "another module may be called json. Rename"),
        ("numpy.py", "", "another module may be called numpy. Rename"),
        ("own.f.py", "", "another module may be called own.f. Rename"),
    ],
)
def test_files_that_cannot_be_imported_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        import_files([tmp_path / name])
    assert not imported_files()
    assert not name.startswith("own") or name.removesuffix(".py") not in sys.modules


@pytest.mark.usefixtures("scratch")
def test_files_that_are_missing_or_have_the_same_name_cannot_be_imported(tmp_path):
    with pytest.raises(InputError, match=r"nosuch.py: it is not a Python file"):
        import_files([tmp_path / "nosuch.py"])
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own_twins.py").touch()
    import_files([tmp_path / "a/own_twins.py"])
    with pytest.raises(InputError, match=r"a/own_twins.py has the same name. Rename one"):
        import_files([tmp_path / "b/own_twins.py"])


OTHERS = """
    from mu2mpi.federation.estimators import GRADIENT, ITERATE
    from mu2mpi.methods.method import Method
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
