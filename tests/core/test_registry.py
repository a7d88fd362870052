"""Registry: built-in, registered and imported components, and unknown names."""

import hashlib
import sys
import textwrap
from types import SimpleNamespace

import pytest
from helpers.launch import run_command

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import extension_paths, import_files, imported_files, known_names, lookup, register
from mu2mpi.data.formats.format import DataFile
from mu2mpi.data.partition import Partition
from mu2mpi.data.source import DataSource
from mu2mpi.federation.servers.server import Server
from mu2mpi.losses.loss import Loss
from mu2mpi.methods.method import Method
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

BUILT_IN = {
    "losses": ["huber", "logistic", "poisson", "smoothed-hinge", "softmax", "squared"],
    "methods": [
        "accelerated-srgd", "ada-ssp", "anytime-dp-mf", "anytime-sgd", "dp-gd", "dp-newton", "dp-sgd",
        "fedavg", "localized-srgd", "mu2-sgd", "noisy-minibatch-sgd", "objective-perturbation",
        "parallel-sgd", "scaffold", "storm",
    ],
    "mechanisms": [
        "binomial", "correlated", "gaussian", "objective-perturbation", "poisson", "poisson-machines",
        "replacement-exact", "second-moments",
    ],
    "servers": ["aggregated", "shuffled", "trusted", "untrusted"],
    "sources": ["cifar10", "digits", "fashion-mnist", "mnist", "population", "synthetic", "user-file"],
    "formats": ["csv", "hdf5", "npz", "parquet", "svm"],
    "partitions": ["contiguous", "dirichlet", "iid", "labels", "owner", "sorted"],
}  # fmt: skip


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_components_have_the_names_of_their_modules(kind):
    assert known_names(kind)[: len(BUILT_IN[kind])] == BUILT_IN[kind]
    bases = [Loss, Method, Mechanism, Server, DataSource, DataFile, Partition]
    base = dict(zip(BUILT_IN, bases, strict=True))[kind]
    for name in BUILT_IN[kind]:
        component = lookup(kind, name)
        assert (component.component_kind, component.name) == (kind, name)
        assert issubclass(component, base) if isinstance(component, type) else isinstance(component, base)
        assert lookup(kind, name) is component


@pytest.mark.parametrize("kind", BUILT_IN)
@pytest.mark.parametrize("name", ["nosuch", "base", "", "__init__", "mu2_sgd", "Softmax"])
def test_message_about_an_unknown_name_lists_the_known_names(kind, name):
    with pytest.raises(InputError) as caught:
        lookup(kind, name)
    assert repr(name) in str(caught.value)
    for known in BUILT_IN[kind]:
        assert known in str(caught.value)


def test_registered_components_are_found(restored_registry):
    component = SimpleNamespace(component_kind="losses", name="hinge")
    assert register(component) is component
    assert lookup("losses", "hinge") is component
    assert known_names("losses") == [*BUILT_IN["losses"], "hinge"]
    assert "hinge" not in known_names("methods")
    later = register(SimpleNamespace(component_kind="losses", name="hinge"))
    assert lookup("losses", "hinge") is later
    assert known_names("losses") == [*BUILT_IN["losses"], "hinge"]


def test_a_built_in_component_imported_later_replaces_no_other(restored_registry):
    built_in, own = lookup("losses", "softmax"), SimpleNamespace(component_kind="losses", name="softmax")
    register(own)
    register(type(built_in))
    assert lookup("losses", "softmax") is own


@pytest.mark.parametrize(
    "component",
    [
        SimpleNamespace(name="x"),
        SimpleNamespace(component_kind="losses"),
        SimpleNamespace(component_kind="x", name="x"),
    ],
)
def test_components_without_kind_or_name_cannot_be_registered(component):
    with pytest.raises(ValueError, match=r"no component_kind among losses, methods, .*, or no name"):
        register(component)


LOSS_FILE = """
    import mu2mpi
    from mu2mpi.losses.softmax import SoftmaxLoss

    @mu2mpi.register
    class Mine(SoftmaxLoss):
        name = "mine"
    """


@pytest.mark.usefixtures("restored_registry")
def test_imported_files_register_components_and_are_extensions(tmp_path):
    file = tmp_path / "own_losses.py"
    file.write_text(textwrap.dedent(LOSS_FILE))
    import_files([file, str(file)])
    component = lookup("losses", "mine")
    import_files([file])
    assert lookup("losses", "mine") is component
    assert extension_paths(("losses", "mine")) == {"own_losses": file}
    assert imported_files() == {"own_losses": (file, hashlib.sha256(file.read_bytes()).hexdigest())}


WITHOUT_CONSTANTS = """
from mu2mpi import register
from mu2mpi.losses.loss import Loss

@register
class Mine(Loss):
    name, loss_kernel = "mine", abs
"""
WITHOUT_DEFAULT = "from mu2mpi.core.options import Options\n\nclass Mine(Options):\n    steps: int"
WITHOUT_MEANING = """
from pydantic import Field
from mu2mpi.core.options import Options

class Mine(Options):
    steps: int = Field(1, ge="one", description="number of steps")
"""


@pytest.mark.usefixtures("restored_registry")
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("own_a.py", "x = 1\ny = 1 / 0", r"own_a.py, line 2: ZeroDivisionError: division by zero"),
        ("own_b.py", "x = 1\n\ndef f(:", r"own_b.py, line 3: SyntaxError: "),
        ("own_c.py", "import nosuch_module", r"own_c.py, line 1: ModuleNotFoundError: "),
        ("own_d.py", "import sys; sys.exit(3)", r"own_d.py, line 1: SystemExit: 3"),
        ("own_e.txt", "", "it is not a Python file"),
        ("own_g.py", WITHOUT_CONSTANTS, "ValueError: <class 'own_g.Mine'> lacks constants, residual_kernel"),
        ("own_h.py", WITHOUT_DEFAULT, "line 3: TypeError: the option steps of Mine needs a default"),
        ("own_i.py", WITHOUT_MEANING, "line 5: SchemaError: "),
        ("json.py", "", "another module may be called json. Rename"),
        ("numpy.py", "", "another module may be called numpy. Rename"),
        ("own.f.py", "", "another module may be called own.f. Rename"),
    ],
)
def test_files_that_cannot_be_imported_are_rejected(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        import_files([tmp_path / name])
    assert not imported_files()
    assert not name.startswith("own") or name.removesuffix(".py") not in sys.modules


@pytest.mark.usefixtures("restored_registry")
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
    from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
    from mu2mpi.methods.method import Method
    from mu2mpi.core.registry import register

    print("imported")

    class Mine(Method):
        name, title, summary = "mine", "Mine", "gradients at iterates, in another package"
        estimator, query_point = GRADIENT_ESTIMATOR, LAST_ITERATE

    mine = Mine()
    """
ENTRY_POINTS = """
    [mu2mpi.methods]
    mine = others:mine
    """
SCRIPT = """
    from mu2mpi.core.registry import lookup, known_names
    print(known_names("methods"))
    print(lookup("methods", "mine").summary)
    from mu2mpi import Experiment, run
    print(run(Experiment(method="mine", machines=2, rounds=3, seed=1)).x.shape)
    """


@pytest.mark.slow
def test_entry_points_of_another_distribution_are_imported_when_looked_up(tmp_path):
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
